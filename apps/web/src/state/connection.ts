// The connection to the server: whether it responds. If it is lost, it is asked less and less often until it is back; then waiting requests continue. Polling
// by other pages uses follow(). Also our identity: the API key, if the server needs one, stored for this tab only; and whether the server lets us in at all.

import { type Poll, poll } from "../../../../src/base/backoff.ts";
import { httpClient, type LanternClient, RequestError, sentence } from "../api.ts";
import { Store } from "./store.ts";

export interface Connection {
  online: boolean;
  /** The server needs an API key that we do not have. */
  needsKey: boolean;
  /** The credential that the server needs before it shows conversations and models; null: none. */
  access: AccessNeed | null;
}

/** The token of its link; its admin key; a browser on its own machine. */
export type AccessNeed = "token" | "key" | "local";

export const connection: Store<Connection> = new Store<Connection>({
  online: true,
  needsKey: false,
  access: null,
});

const keyName = "lantern-api-key";

export const client: LanternClient = httpClient("", {
  key: () => sessionStorage.getItem(keyName) ?? undefined,
  reached: (answered) => {
    if (answered) connection.patch({ online: true });
    else lost();
  },
});

let watching: Poll | undefined;

/** Marks the server as gone; it is asked at once whether it is back, and then less and less often. */
export function lost(): void {
  connection.patch({ online: false });
  askNow();
}

/** Asks now whether the server is back: a user waits for it. */
export function askNow(): void {
  watching?.now();
}

const heartbeatMs = 2000;
/** While the server is away, or answers with errors. */
const slowHeartbeatMs = 10_000;

/**
 * A page without requests also asks from time to time, so that the banner appears before the next click and changes by
 * other tabs are seen.
 */
export function watchServer(ask: () => Promise<void>): void {
  const look = async (): Promise<void> => {
    if (!connection.value.online) await client.health();
    else if (document.visibilityState === "visible") await ask();
  };
  watching = poll(look, { everyMs: heartbeatMs, mostMs: slowHeartbeatMs });
  document.addEventListener("visibilitychange", askNow);
  addEventListener("online", askNow);
}

const slowFollowMs = 30_000;

/**
 * Calls `look` at this interval while the page is visible and the server answers and lets us in; after failures less
 * and less often. `onTrouble`: the reason why it cannot be read, null: it can.
 */
export function follow(
  look: () => Promise<void>,
  everyMs: number,
  onTrouble: (problem: string | null) => void = () => {},
): Poll {
  const carefully = async (): Promise<void> => {
    if (document.visibilityState === "hidden") return;
    await whenLetIn();
    try {
      await look();
      onTrouble(null);
    } catch (error) {
      if (!noteFailure(error)) onTrouble(sentence(error));
      throw error;
    }
  };
  return poll(carefully, { everyMs, mostMs: slowFollowMs });
}

/** Resolves when the server responds, which may be immediately. */
export async function whenOnline(): Promise<void> {
  await connection.until(({ online }) => online);
}

/** Resolves when the server responds and asks for no token and no key. */
export async function whenLetIn(): Promise<void> {
  await connection.until(({ online, needsKey, access }) => online && !needsKey && access === null);
}

export function setKey(key: string): void {
  sessionStorage.setItem(keyName, key);
  connection.patch({ needsKey: false });
}

/** Handles errors of the connection; true if no other message is needed. */
export function noteFailure(error: unknown): boolean {
  if (!(error instanceof RequestError)) return false;
  const access = /^admin_(token|key|local)/.exec(error.reason ?? "")?.[1];
  if (access !== undefined) {
    connection.patch({ access: access as AccessNeed });
    return true;
  }
  if (error.status === 401) connection.patch({ needsKey: true });
  return error.offline || error.status === 401;
}
