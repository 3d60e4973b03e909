// The common parts of every connection to NATS, in Node (connect.ts) and in a browser (connect-socket.ts): the credentials, the options,
// and the error messages, which name the servers and never a password or a token. Types only of NATS's packages.

import type { ConnectionOptions, NatsConnection } from "@nats-io/nats-core";
import { retry } from "../../src/base/backoff.ts";
import { messageOf, SourceError, UsageError } from "../../src/base/errors.ts";

export type { NatsConnection } from "@nats-io/nats-core";

export interface ClusterPlace {
  /** nats://host:port or tls://host:port, in a browser ws:// or wss://, without user and password. */
  readonly servers: readonly string[];
  /** The name of the connection in NATS's own lists. */
  readonly name: string;
  /** The text of a .creds file (JWT and key), or the seed of an nkey. */
  readonly creds?: string | undefined;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  readonly token?: string | undefined;
  /** For tests: how long a server may take to accept a client. */
  readonly timeoutMs?: number | undefined;
}

type Core = Pick<typeof import("@nats-io/nats-core"), "credsAuthenticator" | "nkeyAuthenticator">;

/** A connection that comes back by itself, for as long as the process or the page lives. */
export function connectionOptions(
  place: ClusterPlace,
  { credsAuthenticator, nkeyAuthenticator }: Core,
): ConnectionOptions {
  return {
    servers: [...place.servers],
    name: place.name,
    maxReconnectAttempts: -1,
    reconnectDelayHandler: reconnectDelay(),
    timeout: place.timeoutMs ?? 20_000, // a server that is not there says so at once; one on a busy machine takes its time
    pingInterval: 5000,
    maxPingOut: 2,
    ...(place.creds !== undefined && {
      authenticator: isSeed(place.creds)
        ? nkeyAuthenticator(new TextEncoder().encode(place.creds.trim()))
        : credsAuthenticator(new TextEncoder().encode(place.creds)),
    }),
    ...(place.user !== undefined && { user: place.user }),
    ...(place.password !== undefined && { pass: place.password }),
    ...(place.token !== undefined && { token: place.token }),
  };
}

const LEAST_DELAY_MS = 250;
const MOST_DELAY_MS = 10_000;

/**
 * The pause of NATS's client between two tries: an eighth of the time for which it has tried. (It asks several times for one
 * pause, so a value that doubles with each call would put the next try off without end: it cannot be base/backoff.ts.)
 */
export function reconnectDelay(now: () => number = () => performance.now()): () => number {
  let began = -Infinity;
  let last = -Infinity;
  return () => {
    const at = now();
    if (at - last > 4 * MOST_DELAY_MS) began = at; // it was connected in between
    last = at;
    return Math.max(LEAST_DELAY_MS, Math.min(MOST_DELAY_MS, (at - began) / 8));
  };
}

export function noConnection({ servers }: ClusterPlace, error: unknown): SourceError {
  return new SourceError(
    `cluster: no connection to NATS at ${servers.join(", ")}: ${messageOf(error)}. Is nats-server running there, and may this user connect?`,
    { cause: error },
  );
}

/**
 * Resolves when NATS has received all earlier messages. A connection that is lost meanwhile comes back by itself and sends them again;
 * this waits for it, and rejects if it is closed for good, or with the signal.
 */
export async function heard(
  connection: NatsConnection,
  { log, signal }: { log: (line: string) => void; signal?: AbortSignal | undefined },
): Promise<void> {
  let isAway = false;
  await retry(
    async () => {
      try {
        await orAborted(connection.flush(), signal);
      } catch (cause) {
        signal?.throwIfAborted();
        if (!connection.isClosed()) throw cause;
        const why = messageOf((await connection.closed()) ?? cause);
        throw new SourceError(`cluster: the connection to NATS was closed: ${why}`, { cause });
      }
    },
    { firstMs: 100, mostMs: 2000, tries: Infinity },
    {
      signal,
      onFailure: (error) => {
        if (connection.isClosed()) throw error;
        if (!isAway) log("NATS has gone away. This waits until it is back");
        isAway = true;
      },
    },
  );
}

/** Settles with the promise or, if that takes longer, rejects with the abort. */
async function orAborted(work: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
  work.catch(() => {}); // it may fail after the abort
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal?.reason);
  signal?.addEventListener("abort", stop, { once: true });
  try {
    await Promise.race([work, promise]);
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}

/** A user's nkey alone, without a JWT: the server's configuration has its public half. */
function isSeed(text: string): boolean {
  return /^\s*SU[A-Z2-7]{56}\s*$/.test(text);
}

/** A new id of a worker, a gateway or a call: one part of a subject. */
export function newPeerId(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 20);
}

/** Refuses messages that NATS would refuse, with numbers: NATS would close the connection. */
export function checkPayload(connection: NatsConnection, bytes: Uint8Array, what: string): void {
  const most = connection.info?.max_payload ?? 2 ** 20;
  if (bytes.length + 1024 <= most) return;
  throw new UsageError(
    `cluster: ${what} takes ${bytes.length} bytes, but this NATS server carries messages of at most ${most}. Make it shorter, or raise max_payload in the server's configuration`,
  );
}
