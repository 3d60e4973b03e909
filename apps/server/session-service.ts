// The conversations of a server, on two shelves: those that are saved, in a database, and private ones, in memory until they are closed
// or the server ends. A private one leaves nothing on a disk: its rows are in a database in memory, and its computed state stays in
// memory as well (GenerateOptions.cacheDisk). apps/sessions/purge.ts lists the data that must go when one is deleted.

import { messageOf } from "../../src/base/errors.ts";
import { forgetStoredConversations } from "../../src/index.ts";
import type { Database } from "../../src/platform/database.ts";
import { type BackupOffer, type Backups, backupText, type Restored } from "../sessions/backups.ts";
import { Presets } from "../sessions/presets.ts";
import { type BackupPlace, type CopyPlace, Purge } from "../sessions/purge.ts";
import { Runs } from "../sessions/runs.ts";
import { SessionStore } from "../sessions/store.ts";
import type { ServerContext } from "./context.ts";

export interface Shelf {
  readonly store: SessionStore;
  readonly runs: Runs;
  readonly purge: Purge;
  readonly isPrivate: boolean;
}

export interface SessionService {
  readonly saved: Shelf;
  readonly hidden: Shelf;
  readonly presets: Presets;
  /** The reason why nothing can be saved; null: it can. */
  readonly notice: string | null;
  /** The reason why parts of a deleted conversation may be in files that nothing is deleted from; null: there are none. */
  readonly remark: string | null;
  /** The newest good backup. With `isNeeded`: only if there is damage. */
  backup(options?: { isNeeded: boolean }): BackupOffer | null;
  /** Adds missing or damaged rows from it; a database that is refused is moved aside before. */
  restore(): Promise<Restored>;
  /** The shelf of a session; of an unknown one, the saved ones. */
  of(session: string): Shelf;
  /** The shelf of a run. */
  withRun(run: string): Shelf;
}

export interface OpenedSessions
  extends Pick<SessionService, "saved" | "hidden" | "presets" | "of" | "withRun"> {
  /** Resolves when the leftovers of deleted conversations from an earlier process are removed, or could not be removed. */
  readonly ready: Promise<unknown>;
  /** Ends running answers, saves them, closes the databases. */
  close(): Promise<void>;
}

/**
 * Opens services, one after the other if the database could not be used: private conversations are in all of them. Running answers
 * are ended and saved when the server stops; close() the service after that. `describe`: an error in words.
 */
export function sessionsOpener(
  server: ServerContext,
  describe: (error: unknown) => string,
  backups?: Backups,
): (database: Database) => OpenedSessions {
  const shelf = (
    rows: Database,
    places: CopyPlace[],
    isPrivate: boolean,
    backupPlace?: BackupPlace,
  ): Shelf => {
    const store = new SessionStore(rows, { now: () => server.time() });
    const runs = new Runs(store, { now: () => server.now(), describe });
    server.stopSignal.addEventListener("abort", () => void runs.close());
    return { store, runs, isPrivate, purge: new Purge(store, places, server.log, backupPlace) };
  };
  const memory = memoryOf(server);
  const { cacheFolder } = server.settings;
  const disk: CopyPlace = (ids) => forgetStoredConversations(ids, { cacheFolder });
  let privately: Shelf | undefined;
  return (database) => {
    const saved = shelf(database, [memory, disk], false, backups?.placeOf(database));
    privately ??= shelf(database.inMemory(), [memory], true);
    const hidden = privately;
    for (const { what, why } of saved.store.setAside()) {
      server.log(`conversations: ${what} was damaged and is set aside: ${why}`);
    }
    const since = saved.store.damagedSince();
    if (backups && since !== undefined) server.log(backupText(backups.offer(since)));
    const start = async (): Promise<void> => {
      await saved.purge.run();
      backups?.keep(database, saved.store);
    };
    const ready = database.writable ? start() : Promise.resolve();
    return {
      saved,
      hidden,
      ready,
      presets: new Presets(database),
      of: (session) => (hidden.store.hasId(session) ? hidden : saved),
      withRun: (run) => (hidden.runs.has(run) ? hidden : saved),
      async close() {
        await ready;
        await backups?.stop();
        for (const { runs, purge, store } of [saved, hidden]) {
          await runs.close();
          await purge.close();
          store.close();
        }
      },
    };
  };
}

/** The conversations' state in models, and the texts of slots. */
function memoryOf({ models, slots, log }: ServerContext): CopyPlace {
  return async (conversations) => {
    slots.forget(conversations);
    for (const { model, id } of models.lasting.list()) {
      for (const conversation of conversations) {
        // A model that has ended holds no state, and its copies on disk are removed below.
        await model.forgetConversation(conversation).catch((error: unknown) => {
          log(`${id}: what is in memory of a deleted conversation: ${messageOf(error)}`);
        });
      }
    }
  };
}
