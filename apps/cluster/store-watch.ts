// Notices that NATS has lost its store: its disk was wiped, or held its streams in memory only. Then the server is there again and the streams
// are not, or are new ones that another client has made in the meantime: these have another age. A user of the store looks after every
// reconnection, and now and then; until it has looked, all that it knew of the store is uncertain.

import type { JetStreamManager } from "@nats-io/jetstream";
import { poll } from "../../src/base/backoff.ts";
import { loadJetStream } from "./line-streams.ts";
import type { NatsConnection } from "./peer.ts";

/** The interval of looks without events, and after a look that failed. */
const LOOK_MS = 30_000;
const RETRY_MS = 1000;

export interface StoreWatch {
  /** Whether the store is unchanged since the last look. */
  readonly isSure: boolean;
  /** Resolves when the store is certain again, or after stop(). */
  sure(): Promise<void>;
  stop(): void;
}

/** `look` throws if NATS cannot be asked, and is called again then. */
export function watchStore(connection: NatsConnection, look: () => Promise<void>): StoreWatch {
  const end = new AbortController();
  const { signal } = end;
  let isSure = true;
  let losses = 0;
  let waiting: (() => void)[] = [];
  const release = (): void => {
    for (const resolve of waiting) resolve();
    waiting = [];
  };
  const listen = async (): Promise<void> => {
    for await (const { type } of connection.status()) {
      if (type === "reconnect") looking.now();
      if (type !== "disconnect") continue;
      losses++;
      isSure = false;
    }
  };
  const lookAgain = async (): Promise<void> => {
    if (connection.isClosed()) return stop();
    const before = losses;
    await look().catch((error: unknown) => {
      isSure = false;
      throw error;
    });
    isSure = before === losses;
    if (!isSure) throw new Error("NATS was lost meanwhile");
    release();
  };
  const looking = poll(lookAgain, { everyMs: LOOK_MS, firstMs: RETRY_MS, mostMs: LOOK_MS });
  const stop = (): void => {
    end.abort();
    looking.stop();
    release();
  };
  void listen();
  return {
    get isSure() {
      return isSure;
    },
    async sure() {
      if (isSure || signal.aborted) return;
      await new Promise<void>((resolve) => waiting.push(resolve));
    },
    stop,
  };
}

/** The time at which a stream, or a consumer of it, was made; undefined: it is not there. Throws if NATS cannot be asked. */
export async function ageOf(
  manager: JetStreamManager,
  stream: string,
  consumer?: string,
): Promise<string | undefined> {
  const { JetStreamApiError, JetStreamApiCodes } = await loadJetStream();
  const gone: readonly number[] = [
    JetStreamApiCodes.StreamNotFound,
    JetStreamApiCodes.ConsumerNotFound,
  ];
  try {
    const { created } =
      consumer === undefined
        ? await manager.streams.info(stream)
        : await manager.consumers.info(stream, consumer);
    return String(created);
  } catch (error) {
    if (error instanceof JetStreamApiError && gone.includes(error.code)) return undefined;
    throw error;
  }
}
