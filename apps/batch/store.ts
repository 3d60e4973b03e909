// The store of batches and their lines; stored-files.ts has the files. Every method that changes rows is one transaction,
// which is on disk when it returns. It computes no answer: runner.ts takes lines from it and gives it their answers. A
// line has an answer once, because its state and its answer are one update of a line that was waiting.

import {
  type Database,
  migrateDatabase,
  type SqlRow,
  unsoundRows,
} from "../../src/platform/database.ts";
import {
  type Batch,
  type BatchApi,
  BatchError,
  type BatchState,
  batchLimits,
  endStates,
  type LineCounts,
  type LineError,
  type LineState,
  lineStates,
  type TokenUsage,
} from "./batch.ts";
import type { FileFolder } from "./file-folder.ts";
import type { LinePlace } from "./lines.ts";
import { BatchMirror } from "./mirror.ts";
import { type Listed, listOf, newId, type Page, pageOf } from "./pages.ts";
import { toBatch } from "./rows.ts";
import { batchesKind } from "./schema.ts";
import { StoredFiles } from "./stored-files.ts";

export interface NewBatch {
  readonly owner: string;
  readonly api: BatchApi;
  readonly endpoint: string;
  readonly inputFile: string;
  readonly window: string;
  readonly windowMs: number;
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** The client of a request about batches, and the API that it uses. */
export interface Asker {
  readonly owner: string;
  readonly api: BatchApi;
}

/** A line of a batch that is to be answered. */
export interface WaitingLine extends LinePlace {
  readonly index: number;
  readonly customId: string;
  /** How many times the line was begun. */
  readonly tries: number;
}

export class BatchStore {
  readonly files: StoredFiles;
  /** Batches and files of other gateways. */
  readonly mirror: BatchMirror;
  /** The damage that was found, in sentences. */
  readonly findings: readonly string[];
  readonly #database: Database;
  readonly #now: () => number;
  #onChange: (kind: "batch" | "file", id: string) => void = () => {};

  /** Takes over the database. */
  constructor(database: Database, folder: FileFolder, options: { now?: () => number } = {}) {
    this.#database = database;
    this.#now = options.now ?? Date.now;
    const mended = migrateDatabase(database, batchesKind);
    this.findings = [...database.findings, ...mended, ...damagedRows(database)];
    this.files = new StoredFiles(database, folder, this.#now, (id) => this.#onChange("file", id));
    this.mirror = new BatchMirror(database);
  }

  /** Calls back after each change of a batch or a file that began here. */
  watch(changed: (kind: "batch" | "file", id: string) => void): void {
    this.#onChange = changed;
  }

  get writable(): boolean {
    return this.#database.writable;
  }

  close(): void {
    this.#database.close();
  }

  // --- batches

  create(wanted: NewBatch): Batch {
    return this.#database.transaction(() => {
      const { purpose } = this.files.get(wanted.inputFile, wanted.owner);
      if (purpose !== "batch") {
        throw new BatchError(
          "invalid",
          `file ${JSON.stringify(wanted.inputFile)} has the purpose "${purpose}", expected "batch"`,
          "input_file_id",
        );
      }
      const count = Number(this.#database.get("SELECT count(*) AS n FROM batches")!.n);
      if (count >= batchLimits.batches) {
        throw new BatchError("full", `there are ${count} batches already, which is the limit`);
      }
      const id = newId(wanted.api === "openai" ? "batch_" : "msgbatch_");
      const now = this.#now();
      this.#database.run(
        `INSERT INTO batches (id, owner, api, endpoint, input_file, state, errors, metadata, completion_window, created_at,
           expires_at, times) VALUES (?, ?, ?, ?, ?, 'validating', '[]', ?, ?, ?, ?, ?)`,
        id,
        wanted.owner,
        wanted.api,
        wanted.endpoint,
        wanted.inputFile,
        wanted.metadata && JSON.stringify(wanted.metadata),
        wanted.window,
        now,
        now + wanted.windowMs,
        JSON.stringify({ validating: now }),
      );
      this.#onChange("batch", id);
      return this.batch(id);
    });
  }

  /** `by`: another client's batch, or one of the other API, counts as missing. */
  batch(id: string, by?: Asker): Batch {
    const row = this.#database.get("SELECT * FROM batches WHERE id = ?", id);
    if (!row || (by && (row.api !== by.api || row.owner !== by.owner))) {
      throw new BatchError("missing", `there is no batch ${JSON.stringify(id.slice(0, 100))}`);
    }
    return this.#read(row);
  }

  list(page: Page, { owner, api }: Asker): Listed<Batch> {
    return pageOf(this.#database, "batches", { owner, api }, page, (row) => this.#read(row));
  }

  /** Batches of this store that are not at their end, the oldest first. */
  unfinished(): Batch[] {
    return this.#database
      .all(
        `SELECT * FROM batches WHERE gateway = '' AND state NOT IN (${listOf(endStates)}) ORDER BY number`,
      )
      .map((row) => this.#read(row));
  }

  /** Changes the state, if it is one of `from`; returns the batch as it is then. */
  move(
    id: string,
    from: readonly BatchState[],
    to: BatchState,
    more: { errors?: readonly LineError[]; output?: string | null; errorFile?: string | null } = {},
  ): Batch {
    return this.#database.transaction(() => {
      const batch = this.batch(id);
      if (!from.includes(batch.state)) return batch;
      // Another gateway's batch changes state there; the request to end it is passed on to that gateway.
      if (to !== "cancelling" && !this.isOwn(id)) return batch;
      const times = JSON.stringify({ ...batch.at, [to]: this.#now() });
      this.#database.run("UPDATE batches SET state = ?, times = ? WHERE id = ?", to, times, id);
      if (more.errors) {
        const errors = JSON.stringify(more.errors.slice(0, batchLimits.shownErrors));
        this.#database.run("UPDATE batches SET errors = ? WHERE id = ?", errors, id);
      }
      if (more.output !== undefined) {
        this.#database.run(
          "UPDATE batches SET output_file = ?, error_file = ? WHERE id = ?",
          more.output,
          more.errorFile ?? null,
          id,
        );
        // The answers are in the files by now.
        this.#database.run("UPDATE lines SET answer = NULL WHERE batch = ?", this.#number(id));
      }
      this.#onChange("batch", id);
      return this.batch(id);
    });
  }

  /** false: it is another gateway's batch, or does not exist. */
  isOwn(id: string): boolean {
    return this.mirror.gatewayOf(id) === "";
  }

  /** Deletes a batch that has ended; its files stay. */
  delete(id: string, by: Asker): void {
    this.#database.transaction(() => {
      const { state } = this.batch(id, by);
      if (!endStates.has(state)) {
        throw new BatchError("conflict", `batch ${id} is ${state}. Cancel it first`);
      }
      this.#database.run("DELETE FROM batches WHERE id = ?", id);
      this.#onChange("batch", id);
    });
  }

  // --- lines

  /** Adds a line while a batch is being validated; false: a line with this custom_id exists. */
  addLine(
    id: string,
    line: { index: number; number: number; customId: string; place: LinePlace; orderKey: string },
  ): boolean {
    const { index, customId, place, orderKey } = line;
    const added = this.#database.run(
      "INSERT OR IGNORE INTO lines (batch, place, custom_id, start, finish, order_key) VALUES (?, ?, ?, ?, ?, ?)",
      this.#number(id),
      index,
      customId,
      place.start,
      place.end,
      orderKey,
    );
    return added === 1;
  }

  /** Runs several changes as one write to the disk. */
  transaction<T>(work: () => T): T {
    return this.#database.transaction(work);
  }

  removeLines(id: string): void {
    this.#database.run("DELETE FROM lines WHERE batch = ?", this.#number(id));
  }

  setModel(id: string, model: string): void {
    this.#database.run("UPDATE batches SET model = ? WHERE id = ?", model, id);
  }

  /** In a cluster: the fingerprint of the model of this name that computes the batch: the result of `now` at the first call. */
  fingerprintOf(id: string, model: string, now: () => string | undefined): string | undefined {
    const row = this.#database.get("SELECT fingerprints FROM batches WHERE id = ?", id);
    const known = new Map(Object.entries(JSON.parse(String(row?.fingerprints ?? "{}"))));
    const found = (known.get(model) as string | undefined) ?? now();
    if (found === undefined || known.has(model)) return found;
    const text = JSON.stringify(Object.fromEntries(known.set(model, found)));
    this.#database.run("UPDATE batches SET fingerprints = ? WHERE id = ?", text, id);
    this.#onChange("batch", id);
    return found;
  }

  /** Waiting lines, in the order in which they should be answered, after the line `last`. */
  waiting(id: string, limit: number): WaitingLine[] {
    return this.#database
      .all(
        `SELECT place, custom_id, start, finish, tries FROM lines WHERE batch = ? AND state = 'waiting'
         ORDER BY order_key, place LIMIT ?`,
        this.#number(id),
        limit,
      )
      .map((row) => ({
        index: row.place as number,
        customId: row.custom_id as string,
        start: row.start as number,
        end: row.finish as number,
        tries: row.tries as number,
      }));
  }

  /** Records that a line is begun, on disk before the work, so that a line which kills its process is noticed. */
  began(id: string, index: number): void {
    this.#database.run(
      "UPDATE lines SET tries = tries + 1 WHERE batch = ? AND place = ?",
      this.#number(id),
      index,
    );
  }

  /** Records that a line was not answered for an external reason, such as a stop. */
  gaveBack(id: string, index: number): void {
    this.#database.run(
      "UPDATE lines SET tries = max(0, tries - 1) WHERE batch = ? AND place = ?",
      this.#number(id),
      index,
    );
  }

  /** Saves an answer, once: false if the line has one, or is no longer waiting. */
  finish(id: string, index: number, state: LineState, answer: string, usage: TokenUsage): boolean {
    return this.#database.transaction(() => {
      const number = this.#number(id);
      const changed = this.#database.run(
        "UPDATE lines SET state = ?, answer = ? WHERE batch = ? AND place = ? AND state = 'waiting'",
        state,
        answer,
        number,
        index,
      );
      if (changed === 0) return false;
      this.#database.run(
        `UPDATE batches SET input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?,
           output_tokens = output_tokens + ? WHERE number = ?`,
        usage.input,
        usage.cached,
        usage.output,
        number,
      );
      this.#onChange("batch", id);
      return true;
    });
  }

  /** Sets this state for all waiting lines: the batch was cancelled, or has expired. */
  giveUp(id: string, state: "cancelled" | "expired"): void {
    this.#database.run(
      "UPDATE lines SET state = ? WHERE batch = ? AND state = 'waiting'",
      state,
      this.#number(id),
    );
  }

  /** Answered lines in the order of the input file, from an index on. */
  answers(
    id: string,
    from: number,
    limit: number,
  ): { index: number; customId: string; state: LineState; answer: string | null }[] {
    return this.#database
      .all(
        "SELECT place, custom_id, state, answer FROM lines WHERE batch = ? AND place >= ? ORDER BY place LIMIT ?",
        this.#number(id),
        from,
        limit,
      )
      .map((row) => ({
        index: row.place as number,
        customId: row.custom_id as string,
        state: row.state as LineState,
        answer: row.answer as string | null,
      }));
  }

  #read(row: SqlRow): Batch {
    return toBatch(row, () => this.#counts(row.number as number));
  }

  #number(id: string): number {
    const row = this.#database.get("SELECT number FROM batches WHERE id = ?", id);
    if (!row) throw new BatchError("missing", `there is no batch ${JSON.stringify(id)}`);
    return row.number as number;
  }

  #counts(number: number): LineCounts {
    const counts: Record<LineState | "total", number> = {
      total: 0,
      ...(Object.fromEntries(lineStates.map((state) => [state, 0])) as Record<LineState, number>),
    };
    for (const row of this.#database.all(
      "SELECT state, count(*) AS n FROM lines WHERE batch = ? GROUP BY state",
      number,
    )) {
      counts[row.state as LineState] = row.n as number;
      counts.total += row.n as number;
    }
    return counts;
  }
}

/** Rows that differ from their checksums, in sentences. They stay in the database, so that the user can look at them. */
function damagedRows(database: Database): string[] {
  const queries: Readonly<Record<string, string>> = {
    files: "SELECT 'the file ' || id AS what FROM files WHERE number = ?",
    batches: "SELECT 'the batch ' || id AS what FROM batches WHERE number = ?",
    lines: `SELECT 'line ' || (place + 1) || ' of the batch ' || b.id AS what
      FROM lines JOIN batches b ON b.number = batch WHERE batch = ? AND place = ?`,
  };
  return Object.entries(queries).flatMap(([table, query]) =>
    unsoundRows(database, batchesKind, table).map((key) => {
      const what = database.get(query, ...Object.values(key))?.what ?? `a row of ${table}`;
      return `${what} is not as it was written (its checksum is wrong)`;
    }),
  );
}
