// `key`: of a model (modelKey).

import type { JetStreamManager, StreamConfig } from "@nats-io/jetstream";
import { Backoff, type Waits } from "../../src/base/backoff.ts";
import { messageOf, SourceError, UsageError } from "../../src/base/errors.ts";
import type { LineId } from "../batch/batch.ts";
import type { NatsConnection } from "./peer.ts";

export const lineStream = "LANTERN_LINES";
export const answerStream = "LANTERN_ANSWERS";
const deadStream = "LANTERN_DEAD";

/** `key`: of a model (modelKey). */
export const lineSubjects = {
  line: (key: string, { batch, place }: LineId): string => `lantern.line.${key}.${batch}.${place}`,
  linesOf: (key: string): string => `lantern.line.${key}.>`,
  answer: ({ batch, place }: LineId): string => `lantern.done.${batch}.${place}`,
  answers: "lantern.done.>",
  answersOf: (batch: string): string => `lantern.done.${batch}.*`,
  dead: ({ batch, place }: LineId): string => `lantern.dead.${batch}.${place}`,
} as const;

/** The line that a subject names. */
export function lineOf(subject: string): LineId {
  const [batch, place] = subject.split(".").slice(-2);
  return { batch: batch!, place: Number(place) };
}

/** A model as one part of a subject: its name in base64 with the letters of URLs, and its fingerprint. */
export function modelKey(model: string, fingerprint: string): string {
  const bytes = new TextEncoder().encode(model);
  const text = btoa(String.fromCharCode(...bytes));
  return `${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}-${fingerprint}`;
}

/** The header with a line's route. */
export const urlHeader = "Lantern-Url";

const second = 1_000_000_000;
const hour = 3600 * second;
const day = 24 * hour;

/** The time for which a worker may be silent about a line before another one gets it, in milliseconds; it speaks three times as often. */
export const lineAckMs = 30_000;

export async function loadJetStream(): Promise<typeof import("@nats-io/jetstream")> {
  try {
    return await import("@nats-io/jetstream");
  } catch (error) {
    throw new UsageError(
      'batches of a cluster need the package @nats-io/jetstream, which is not installed. "npm install @nats-io/jetstream" beside Lantern installs it',
      { cause: error },
    );
  }
}

/** Streams with three copies if NATS is a cluster. */
export async function openStreams(
  connection: NatsConnection,
  log: (line: string) => void = () => {},
): Promise<JetStreamManager> {
  const { jetstreamManager, RetentionPolicy } = await loadJetStream();
  const manager = await jetstreamManager(connection, { checkAPI: false });
  const wanted: (Partial<StreamConfig> & { name: string; subjects: string[] })[] = [
    {
      name: lineStream,
      subjects: ["lantern.line.>"],
      retention: RetentionPolicy.Workqueue,
      duplicate_window: 2 * hour,
    },
    {
      name: answerStream,
      subjects: [lineSubjects.answers],
      max_age: 8 * day,
      duplicate_window: 2 * hour,
    },
    { name: deadStream, subjects: ["lantern.dead.>"], max_age: 30 * day },
  ];
  for (const config of wanted) await openStream(manager, connection, config, log);
  return manager;
}

/** A cluster of NATS that has just started has no leader for a few seconds. */
const TRIES = 14;
const waits: Waits = { firstMs: 250, mostMs: 2000, tries: TRIES };

export async function openStream(
  manager: JetStreamManager,
  connection: NatsConnection,
  config: Partial<StreamConfig> & { name: string },
  log: (line: string) => void,
): Promise<void> {
  let problem: unknown;
  const copies = connection.info?.cluster === undefined ? 1 : 3;
  const backoff = new Backoff(waits);
  for (let tries = 0; ; tries++) {
    try {
      await manager.streams.info(config.name);
      return;
    } catch {
      // The stream is not there yet, or NATS cannot be asked.
    }
    try {
      // A cluster of two cannot keep three copies; one that is still starting will.
      const isLast = tries >= TRIES / 2;
      await manager.streams.add({ ...config, num_replicas: isLast ? 1 : copies });
      if (isLast && copies > 1) {
        log(`cluster: ${config.name} has one copy: three could not be had (${messageOf(problem)})`);
      }
      return;
    } catch (error) {
      problem = error;
    }
    if (connection.isClosed() || !(await backoff.failed())) break;
  }
  throw new SourceError(
    `cluster: the stream ${config.name} could not be made: ${messageOf(problem)}. Batches need JetStream: start nats-server with -js, and let this user use it (docs/use/cluster.md)`,
    { cause: problem },
  );
}
