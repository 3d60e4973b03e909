// Maintains the search index: removes deleted messages in slices, and then all other remains of deleted text in the file; and
// rebuilds a damaged index, since all of its content is also in the other tables. search.ts queries it; schema.ts has the triggers
// that fill it.

import { pause } from "../../src/base/backoff.ts";
import type { Database } from "../../src/platform/database.ts";
import { hasRemains, removeRemains } from "./replaced.ts";

/** The longest time that other work waits for a deletion from the index. */
const purgeSliceMs = 20;

/** Rewriting the file takes some 15 ms for each MB of it: the next rewrite waits for this multiple of that time. */
const restTimes = 20;

/** A larger index is not compared word by word when the file is opened: that would take seconds. */
const checkedBytes = 4_000_000;

const tables = ["search_messages", "search_titles"];

const made = `CREATE VIRTUAL TABLE search_messages USING fts5 (text, tokenize = 'trigram');
   CREATE VIRTUAL TABLE search_titles USING fts5 (text, tokenize = 'trigram');
   INSERT INTO search_messages (search_messages, rank) VALUES ('secure-delete', 1);
   INSERT INTO search_titles (search_titles, rank) VALUES ('secure-delete', 1);
   DELETE FROM search_deleted;
   INSERT INTO search_messages (rowid, text)
     SELECT number, content FROM messages WHERE state <> 'streaming';
   INSERT INTO search_titles (rowid, text) SELECT number, title FROM sessions;`;

export class SearchIndex {
  readonly #database: Database;
  readonly #closed: AbortSignal;
  #restUntil = 0;
  #purging: Promise<void> | undefined;

  constructor(database: Database, closed: AbortSignal) {
    this.#database = database;
    this.#closed = closed;
  }

  /** Whether it was found damaged when the file was opened, or has the wrong number of messages. */
  isDamaged(): boolean {
    if (this.#database.damaged.some((name) => tables.includes(name))) return true;
    try {
      const row = this.#database.get(
        `SELECT (SELECT count(*) FROM search_messages_docsize) AS indexed,
           (SELECT count(*) FROM messages WHERE state <> 'streaming') AS wanted,
           (SELECT count(*) FROM search_deleted) AS deleted,
           (SELECT count(*) FROM messages WHERE state = 'streaming') AS running,
           (SELECT count(*) FROM messages m JOIN search_messages_content c ON c.id = m.number
            WHERE m.state <> 'streaming' AND c.c0 IS NOT m.content) AS others,
           (SELECT count(*) FROM sessions s LEFT JOIN search_titles_content c ON c.id = s.number
            WHERE c.c0 IS NOT s.title) AS titles,
           (SELECT coalesce(sum(length(block)), 0) FROM search_messages_data) AS bytes`,
      ) as Record<
        "indexed" | "wanted" | "deleted" | "running" | "others" | "titles" | "bytes",
        number
      >;
      if (row.others > 0 || row.titles > 0) return true;
      if (this.#database.writable && row.bytes <= checkedBytes) this.#check();
      // A continued answer, or one that was deleted before it ended, may be in the index or not.
      return row.indexed < row.wanted || row.indexed > row.wanted + row.deleted + row.running;
    } catch {
      return true;
    }
  }

  /** Throws if its words differ from those of the messages. */
  #check(): void {
    for (const table of tables) {
      this.#database.exec(`INSERT INTO ${table} (${table}) VALUES ('integrity-check')`);
    }
  }

  /** Must not be called inside a transaction. */
  rebuild(): void {
    this.#database.forget(tables);
    this.#database.transaction(() => this.#database.exec(made));
  }

  /** Removes deleted messages with pauses, including those left by an earlier process. Then rewrites the file, and empties the log. */
  purge(): Promise<void> {
    this.#purging ??= this.#purgeAll().finally(() => {
      this.#purging = undefined;
    });
    return this.#purging;
  }

  /** A message takes from some milliseconds to a few hundred, so several are removed at once as long as that is quick. */
  async #purgeAll(): Promise<void> {
    let count = 1;
    while (!this.#closed.aborted && this.#database.writable) {
      const started = performance.now();
      if (!this.#database.transaction(() => this.#purgeSome(count))) {
        const restMs = this.#restUntil - started;
        if (restMs > 0 && hasRemains(this.#database)) {
          await pause(restMs, this.#closed);
          continue; // more may have been deleted
        }
        removeRemains(this.#database);
        this.#database.get("PRAGMA wal_checkpoint(TRUNCATE)");
        const ended = performance.now();
        this.#restUntil = ended + restTimes * (ended - started);
        return;
      }
      const tookMs = performance.now() - started;
      count = tookMs < purgeSliceMs ? count * 2 : Math.ceil(count / 2);
      await new Promise<void>((resolve) => setTimeout(resolve, 0));
    }
  }

  /** false if nothing was left. */
  #purgeSome(count: number): boolean {
    const rows = this.#database.all("SELECT number FROM search_deleted LIMIT ?", count);
    for (const { number } of rows) {
      this.#database.run("DELETE FROM search_messages WHERE rowid = ?", number!);
      this.#database.run("DELETE FROM search_deleted WHERE number = ?", number!);
    }
    return rows.length > 0;
  }
}
