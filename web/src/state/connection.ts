// Whether the server answers. Lost, it is asked again every second or so until it does; whoever waits is woken then. Also
// who we are for it: the API key, which a server may want, kept for this tab only; and whether it lets us in at all.

import { httpClient, type LanternClient, RequestError } from "../api.ts";
import { Store } from "./store.ts";

export interface Connection {
  online: boolean;
  /** The server wants an API key that we do not have. */
  needsKey: boolean;
  /** What the server wants before it shows conversations and models; null: nothing more. */
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

/** Says that the server has gone, and asks until it is back. */
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
 * A page that only shows something asks now and then, too: the banner should not wait for the next click, and what other
 * tabs changed should be seen here.
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

/** Resolves when the server answers, which may be at once. */
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

/** Looks at an error for what concerns the connection; true where there is nothing more to say about it. */
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
