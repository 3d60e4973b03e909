// The store of files: a row for each in the database, and their bytes in a folder.
//
// A file's bytes are written before its row, and its row is deleted before its bytes: a crash leaves bytes without a row,
// which the next start removes.

import type { Database } from "../../src/platform/database.ts";
import { BatchError, batchLimits, endStates, type StoredFile } from "./batch.ts";
import type { FileFolder, NewFile } from "./file-folder.ts";
import { type Listed, listOf, newId, type Page, pageOf } from "./pages.ts";
import { toFile } from "./rows.ts";

/** An id by newId(). */
const isOurs = /^file-[0-9a-f]{32}$/;

export class StoredFiles {
  readonly #database: Database;
  readonly folder: FileFolder;
  readonly #now: () => number;
  readonly #changed: (id: string) => void;

  /** `changed` is called when a file is created or deleted. */
  constructor(
    database: Database,
    folder: FileFolder,
    now: () => number,
    changed: (id: string) => void,
  ) {
    this.#database = database;
    this.folder = folder;
    this.#now = now;
    this.#changed = changed;
  }

  /** Begins a file; `finish` gives it a row. Refused when the store is full. */
  async create(wanted: Pick<StoredFile, "owner" | "name" | "purpose">): Promise<FileWriter> {
    const { owner, name, purpose } = wanted;
    const row = this.#database.get(
      "SELECT count(*) AS files, coalesce(sum(bytes), 0) AS bytes FROM files",
    )!;
    if (Number(row.files) >= batchLimits.files || Number(row.bytes) >= batchLimits.allBytes) {
      throw new BatchError(
        "full",
        `there are ${row.files} files with ${row.bytes} bytes, and at most ${batchLimits.files} files with ${batchLimits.allBytes} bytes are kept. Delete some first`,
      );
    }
    const id = newId("file-");
    const file = await this.folder.create(id);
    return new FileWriter(file, (bytes, expiresAt) => {
      const createdAt = this.#now();
      this.#database.run(
        "INSERT INTO files (id, owner, name, purpose, bytes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        id,
        owner,
        name,
        purpose,
        bytes,
        createdAt,
        expiresAt,
      );
      this.#changed(id);
      return { id, owner, name, purpose, bytes, createdAt, expiresAt };
    });
  }

  /** Another client's file counts as missing. */
  get(id: string, owner: string): StoredFile {
    const row = this.#database.get("SELECT * FROM files WHERE id = ?", id);
    if (row?.owner === owner) return toFile(row);
    throw new BatchError("missing", `there is no file ${JSON.stringify(id.slice(0, 100))}`);
  }

  list(page: Page, where: { owner: string; purpose?: string | undefined }): Listed<StoredFile> {
    return pageOf(this.#database, "files", where, page, toFile);
  }

  /** Deletes a file that no running batch reads. */
  async delete(id: string, owner: string): Promise<void> {
    this.#database.transaction(() => {
      this.get(id, owner);
      const reader = this.#database.get(
        `SELECT id FROM batches WHERE input_file = ? AND state NOT IN (${listOf(endStates)})`,
        id,
      );
      if (reader) {
        throw new BatchError(
          "conflict",
          `batch ${reader.id} is reading file ${JSON.stringify(id)}. Cancel the batch first, or wait for its end`,
        );
      }
      this.#database.run("DELETE FROM files WHERE id = ?", id);
    });
    this.#changed(id);
    await this.folder.remove(id);
  }

  /** Removes expired files, and bytes without a row. */
  async clean(): Promise<void> {
    const now = this.#now();
    const over = this.#database.all(
      `SELECT id, owner FROM files WHERE expires_at <= ? AND id NOT IN
         (SELECT input_file FROM batches WHERE state NOT IN (${listOf(endStates)}))`,
      now,
    );
    for (const { id, owner } of over) await this.delete(id as string, owner as string);
    for (const id of await this.folder.list()) {
      if (!isOurs.test(id)) continue; // a file of another program
      const known = this.#database.get("SELECT 1 FROM files WHERE id = ?", id);
      if (!known) await this.folder.remove(id);
    }
  }
}

/** A file that is being written. */
export class FileWriter {
  readonly #file: NewFile;
  readonly #save: (bytes: number, expiresAt: number | null) => StoredFile;
  #bytes = 0;

  constructor(file: NewFile, save: (bytes: number, expiresAt: number | null) => StoredFile) {
    this.#file = file;
    this.#save = save;
  }

  get bytes(): number {
    return this.#bytes;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#bytes += bytes.length;
    if (this.#bytes > batchLimits.fileBytes) {
      throw new BatchError(
        "invalid",
        `the file has more than ${batchLimits.fileBytes} bytes, which is the limit. Divide it into several`,
        "file",
      );
    }
    await this.#file.write(bytes);
  }

  async finish(expiresAt: number | null = null): Promise<StoredFile> {
    await this.complete();
    return this.save(expiresAt);
  }

  /** All bytes are written; save() makes the file visible, alone or in a transaction with other rows. */
  async complete(): Promise<void> {
    await this.#file.finish();
  }

  save(expiresAt: number | null = null): StoredFile {
    return this.#save(this.#bytes, expiresAt);
  }

  async discard(): Promise<void> {
    await this.#file.discard();
  }
}
