// Whether the server responds. If it is lost, it is polled every second or so until it is back; then waiting requests
// continue. Also our identity: the API key, if the server needs one, stored for this tab only; and whether the server
// lets us in at all.

import { httpClient, type LanternClient, RequestError } from "../api.ts";
import { Store } from "./store.ts";

export interface Connection {
  online: boolean;
  /** The server needs an API key that we do not have. */
  needsKey: boolean;
  /** What the server needs before it shows conversations and models; null: nothing more. */
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
const retryMs = 1000;

export const client: LanternClient = httpClient("", {
  key: () => sessionStorage.getItem(keyName) ?? undefined,
  reached: (answered) => {
    if (answered) connection.patch({ online: true });
    else lost();
  },
});

let retrying = false;

/** Marks the server as gone, and polls until it is back. */
export function lost(): void {
  connection.patch({ online: false });
  if (retrying) return;
  retrying = true;
  const retry = async (): Promise<void> => {
    try {
      await client.health();
      retrying = false;
    } catch {
      setTimeout(() => void retry(), retryMs);
    }
  };
  setTimeout(() => void retry(), retryMs);
}

const heartbeatMs = 2000;

/**
 * A page without requests also polls from time to time, so that the banner appears before the next click and changes
 * by other tabs are seen.
 */
export function watchServer(ask: () => Promise<void>): void {
  const look = (): void => {
    if (document.visibilityState === "visible" && connection.value.online) {
      void ask().catch(() => {});
    }
  };
  setInterval(look, heartbeatMs);
  document.addEventListener("visibilitychange", look);
}

/** Resolves when the server responds, which may be immediately. */
export async function whenOnline(): Promise<void> {
  if (connection.value.online) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = connection.watch(() => {
    if (!connection.value.online) return;
    stop();
    resolve();
  });
  await promise;
}

export function setKey(key: string): void {
  sessionStorage.setItem(keyName, key);
  connection.patch({ needsKey: false });
}

/** Handles errors that concern the connection; true if nothing more needs to be shown. */
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
