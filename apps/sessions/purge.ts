// Lists the copies that must go when a conversation is deleted, or a system prompt replaced. Every copy of conversations is one of these:
//
//   the rows                       at once, in one transaction                              SessionStore.deleteSession()
//   runs, and who follows them     at once                                                  Runs.delete()
//   other copies: state computed   before the request is answered; what could not be        the `places` of Purge
//   of it, in memory and on disk   is in the table `forgotten` and is tried again: after
//                                  a minute, and before the next server answers
//   backups of the database        before the request is answered; as above, by the        Backups.purge()
//                                  tables `forgotten` and `replaced`
//   search index, free pages and   within seconds, or at the next start                     SessionStore.purgeDeleted()
//   bytes, log of the database
//
// Code that makes another copy of conversations adds a CopyPlace where Purge is made (apps/server/session-service.ts): it is
// called with the ids of all conversations that were deleted since it last succeeded.

import { type Poll, poll } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import type { Replaced } from "./replaced.ts";
import type { SessionStore } from "./store.ts";

/** Removes all copies of these conversations in one storage. Rejects if it could not: then it is called again, with these and others. */
export type CopyPlace = (conversations: readonly string[]) => Promise<void>;

/** Removes deleted rows from backups, and updates replaced ones in them. */
export type BackupPlace = (
  conversations: readonly string[],
  replaced: readonly Replaced[],
) => Promise<void>;

const everyMs = 60_000;
const mostMs = 3_600_000;

export class Purge {
  readonly #store: SessionStore;
  readonly #places: readonly CopyPlace[];
  readonly #log: (line: string) => void;
  readonly #backups: BackupPlace | undefined;
  /** One after the other: the next run includes the deletions that came meanwhile. */
  #last: Promise<string | null> = Promise.resolve(null);
  /** Retries failed removals. */
  readonly #again: Poll;
  #isClosed = false;

  constructor(
    store: SessionStore,
    places: readonly CopyPlace[],
    log: (line: string) => void,
    backups?: BackupPlace,
  ) {
    this.#backups = backups;
    this.#store = store;
    this.#places = places;
    this.#log = log;
    const look = async (): Promise<void> => {
      const why = await this.#copies();
      if (why !== null) throw new Error(why);
    };
    this.#again = poll(look, { everyMs, mostMs });
  }

  /** Resolves when no other copy is left: with null, or with a sentence that says why some are. The database continues by itself. */
  run(): Promise<string | null> {
    this.#purgeDatabase();
    return this.#copies();
  }

  #copies(): Promise<string | null> {
    this.#last = this.#last.then(() => this.#purgeCopies());
    return this.#last;
  }

  /** Resolves when no removal is running. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#again.stop();
    await this.#last;
  }

  #purgeDatabase(): void {
    this.#store.purgeDeleted().catch((error: unknown) => this.#log(messageOf(error)));
  }

  async #purgeCopies(): Promise<string | null> {
    try {
      const conversations = this.#store.forgotten();
      const replaced = this.#store.replaced();
      if (conversations.length + replaced.length === 0 || this.#isClosed) return null;
      if (conversations.length > 0) {
        for (const place of this.#places) await place(conversations);
      }
      await this.#backups?.(conversations, replaced);
      this.#store.endForgetting(conversations, replaced);
      this.#purgeDatabase();
      return null;
    } catch (error) {
      const why = `copies of deleted conversations could not be removed, and Lantern tries again: ${messageOf(error)}`;
      this.#log(why);
      return why;
    }
  }
}
