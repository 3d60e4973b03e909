// The list of conversations of both modes, newest first, and search results. It follows the server: after every change
// it is read again from the start.

import { RequestError, sentence } from "../api.ts";
import type { BackupOffer, OpenSession, SearchHit } from "../api-types.ts";
import { client, noteFailure } from "./connection.ts";
import { draftKey, dropDraft } from "./drafts.ts";
import { notify } from "./notices.ts";
import { forgetPlace } from "./places.ts";
import { Store } from "./store.ts";

export interface SessionsState {
  sessions: readonly OpenSession[];
  next: string | null;
  loaded: boolean;
  /** The reason why conversations cannot be stored here: --no-sessions, a damaged file. */
  unavailable: string | null;
  /** The reason why the shown conversations can be read but not saved. */
  notice: string | null;
  /** The contents of a backup, if there is damage. */
  backup: BackupOffer | null;
  /** The server was started without sessions; otherwise the list is requested again. */
  isOff: boolean;
  /** Damaged entries that the server set aside. */
  setAside: number;
  query: string;
  /** null: no search. */
  hits: readonly SearchHit[] | null;
}

export const sessions: Store<SessionsState> = new Store<SessionsState>({
  sessions: [],
  next: null,
  loaded: false,
  unavailable: null,
  notice: null,
  backup: null,
  isOff: false,
  setAside: 0,
  query: "",
  hits: null,
});

export async function refreshSessions(): Promise<void> {
  await readSessions().catch(() => {}); // the list shows the error
}

/** Throws the server's error: a caller that polls must know of it. */
export async function readSessions(): Promise<void> {
  try {
    const page = await client.sessions();
    const before = sessions.value;
    // Pages that were already loaded stay.
    const ids = new Set(page.sessions.map(({ id }) => id));
    const isLonger = before.sessions.length > page.sessions.length && page.next !== null;
    const older = isLonger ? before.sessions.filter(({ id }) => !ids.has(id)) : [];
    const all = [...page.sessions, ...older];
    const next = older.length > 0 ? before.next : page.next;
    const isSame = JSON.stringify(all) === JSON.stringify(before.sessions);
    sessions.patch({
      ...(!isSame && { sessions: all }),
      next,
      loaded: true,
      unavailable: null,
      notice: page.notice,
      backup: page.backup,
      setAside: page.setAside,
    });
  } catch (error) {
    const isKnown = !(error instanceof RequestError) || noteFailure(error);
    if (!isKnown) {
      const isOff = error.status === 404;
      const unavailable = isOff ? "This server does not save conversations." : sentence(error);
      const isDamaged = error.reason === "storage_corrupt";
      const backup = isDamaged ? await client.backup().catch(() => null) : null;
      sessions.patch({ loaded: true, unavailable, isOff, backup });
    }
    throw error;
  }
}

/** Adds missing or damaged conversations from the newest good backup. */
export async function restoreSessions(): Promise<void> {
  const { added, copied, failed } = await client.restore();
  const not = failed.length === 0 ? "" : ` Not restored, see the server's log: ${failed.length}.`;
  const done = `Conversations that were missing and are back: ${added}; copies of damaged ones: ${copied}.`;
  notify(done + not, failed.length === 0 ? "done" : "error");
  await refreshSessions();
}

/** An empty session is not shown: its first message was refused, or is being sent. */
export function isListed({ title, messageCount, run }: OpenSession): boolean {
  return title !== "" || messageCount > 0 || run !== null;
}

export async function moreSessions(): Promise<void> {
  const { next } = sessions.value;
  if (next === null) return;
  const page = await client.sessions(next);
  sessions.patch({ sessions: [...sessions.value.sessions, ...page.sessions], next: page.next });
}

const patienceMs = 150;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Searches a moment after the last keystroke. */
export function search(query: string): void {
  clearTimeout(timer);
  sessions.patch({ query });
  if (query.trim() === "") {
    sessions.patch({ hits: null });
    return;
  }
  const look = async (): Promise<void> => {
    const hits = await client.search(query).catch(() => []);
    if (sessions.value.query === query) sessions.patch({ hits });
  };
  timer = setTimeout(() => void look(), patienceMs);
}

export async function deleteSession(id: string): Promise<void> {
  const warning = await client.deleteSession(id);
  if (warning !== null) notify(warning, "error");
  forgetPlace(id);
  for (const mode of ["chat", "story"] as const) dropDraft(draftKey(mode, id));
  const { hits } = sessions.value;
  sessions.patch({ hits: hits?.filter(({ session }) => session !== id) ?? null });
  await refreshSessions();
}
