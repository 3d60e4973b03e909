// Batches and files of other gateways, as rows of this store: so every gateway returns the same lists. A gateway runs only its own
// batches; others' are copies of their records, until one gateway is lost and another takes its batches over. apps/cluster exchanges the
// records (shared-batches.ts).

import type { Database } from "../../src/platform/database.ts";
import { type Batch, endStates, type StoredFile } from "./batch.ts";
import { listOf } from "./pages.ts";
import { toFile } from "./rows.ts";

/** A batch, and the gateway that runs it; "": this store's own batch. */
export interface BatchRecord {
  readonly batch: Batch;
  readonly gateway: string;
}

export class BatchMirror {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** The name of this store among others; it stays the same as long as its file exists. */
  self(): string {
    return this.#database.transaction(() => {
      const row = this.#database.get("SELECT id FROM self");
      if (row) return row.id as string;
      const id = crypto.randomUUID().replaceAll("-", "").slice(0, 20);
      this.#database.run("INSERT INTO self (id) VALUES (?)", id);
      return id;
    });
  }

  /** undefined: there is no such batch. */
  gatewayOf(id: string): string | undefined {
    const row = this.#database.get("SELECT gateway FROM batches WHERE id = ?", id);
    return row && (row.gateway as string);
  }

  ownBatches(): string[] {
    return this.#ids("SELECT id FROM batches WHERE gateway = ''");
  }

  /** Unfinished batches of other gateways. */
  foreignBatches(): { id: string; gateway: string }[] {
    return this.#database
      .all(
        `SELECT id, gateway FROM batches WHERE gateway <> '' AND state NOT IN (${listOf(endStates)})`,
      )
      .map(({ id, gateway }) => ({ id: id as string, gateway: gateway as string }));
  }

  files(): string[] {
    return this.#ids("SELECT id FROM files");
  }

  /** A file of any owner. */
  file(id: string): StoredFile | undefined {
    const row = this.#database.get("SELECT * FROM files WHERE id = ?", id);
    return row && toFile(row);
  }

  /** Stores another gateway's batch as that gateway reports it. */
  putBatch({ batch, gateway }: BatchRecord): void {
    const { counts, usage } = batch;
    this.#database.transaction(() => {
      this.#database.run(
        `INSERT OR IGNORE INTO batches (id, owner, api, endpoint, input_file, state, errors, completion_window, created_at,
           expires_at, times) VALUES (?, ?, ?, ?, ?, ?, '[]', ?, ?, ?, '{}')`,
        ...[batch.id, batch.owner, batch.api, batch.endpoint, batch.inputFile, batch.state],
        ...[batch.window, batch.createdAt, batch.expiresAt],
      );
      this.#database.run(
        `UPDATE batches SET gateway = ?, counts = ?, state = ?, errors = ?, metadata = ?, model = ?, output_file = ?,
           error_file = ?, input_tokens = ?, cached_tokens = ?, output_tokens = ?, times = ?, fingerprints = ? WHERE id = ?`,
        ...[gateway, JSON.stringify(counts), batch.state, JSON.stringify(batch.errors)],
        ...[batch.metadata && JSON.stringify(batch.metadata), batch.model, batch.outputFile],
        ...[batch.errorFile, usage.input, usage.cached, usage.output, JSON.stringify(batch.at)],
        ...[JSON.stringify(batch.fingerprints ?? {}), batch.id],
      );
      const { number } = this.#database.get("SELECT number FROM batches WHERE id = ?", batch.id)!;
      this.#database.run("DELETE FROM lines WHERE batch = ?", number!);
    });
  }

  /**
   * Called before the lines of a batch are made again here: drops its rows. A batch whose files were being written goes back one
   * state, since they are written again.
   */
  beginTakeover({ id, at }: Batch): void {
    const before = at.cancelling === undefined ? "in_progress" : "cancelling";
    this.#database.run(
      `UPDATE batches SET input_tokens = 0, cached_tokens = 0, output_tokens = 0,
         state = CASE state WHEN 'finalizing' THEN ? ELSE state END WHERE id = ?`,
      before,
      id,
    );
  }

  /** Its lines are stored: from now on it is this store's own batch. */
  takeOver(id: string): void {
    this.#database.run("UPDATE batches SET gateway = '', counts = NULL WHERE id = ?", id);
  }

  dropBatch(id: string): void {
    this.#database.run("DELETE FROM batches WHERE id = ?", id);
  }

  putFile({ id, owner, name, purpose, bytes, createdAt, expiresAt }: StoredFile): void {
    this.#database.run(
      "INSERT OR IGNORE INTO files (id, owner, name, purpose, bytes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
      ...[id, owner, name, purpose, bytes, createdAt, expiresAt],
    );
  }

  dropFile(id: string): void {
    this.#database.run("DELETE FROM files WHERE id = ?", id);
  }

  #ids(sql: string): string[] {
    return this.#database.all(sql).map(({ id }) => id as string);
  }
}
