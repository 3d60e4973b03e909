// A bucket of keys and values, and one of files, in JetStream, in the layout of NATS's own tools and clients: `nats kv ls LANTERN_BATCHES` and
// `nats object ls LANTERN_FILES` show them. Both are streams (line-streams.ts): a value is the last message of its subject, and a write must
// give the revision that it replaces; a file is its pieces under a name of their own, and a description that comes last.

import type { JetStreamClient, JetStreamManager } from "@nats-io/jetstream";
import { SourceError } from "../../src/base/errors.ts";
import { loadJetStream, openStream } from "./line-streams.ts";
import type { NatsConnection } from "./peer.ts";
import { ageOf } from "./store-watch.ts";
import { toBase64 } from "./wire.ts";

const KEYS = "LANTERN_BATCHES";
const FILES = "LANTERN_FILES";
const keyStream = `KV_${KEYS}`;
const fileStream = `OBJ_${FILES}`;

/** A hash that takes bytes as they come. */
export interface Hash {
  update(bytes: Uint8Array): void;
  digest(encoding: "base64"): string;
}

export interface Entry {
  readonly key: string;
  /** undefined: it was removed. */
  readonly value: Uint8Array | undefined;
  readonly revision: number;
}

export interface KeyBucket {
  /** `after`: the revision that it replaces, 0: it must be new. Returns the new one; undefined: another client was first. */
  put(key: string, value: Uint8Array, after: number): Promise<number | undefined>;
  remove(key: string, after: number): Promise<number | undefined>;
  /** The revision of the newest change. */
  newest(): Promise<number>;
  /** The time at which NATS made it; undefined: NATS has lost it. */
  age(): Promise<string | undefined>;
  /** All entries as they are now, and every change from then on, in order. */
  watch(take: (entry: Entry) => void): Promise<{ stop(): void }>;
}

export async function openKeys(
  connection: NatsConnection,
  log: (line: string) => void,
): Promise<KeyBucket> {
  const { jetstream, jetstreamManager, DeliverPolicy, DiscardPolicy } = await loadJetStream();
  const { headers } = await import("@nats-io/transport-node");
  const manager = await jetstreamManager(connection, { checkAPI: false });
  const client = jetstream(connection);
  const prefix = `$KV.${KEYS}.`;
  await openStream(
    manager,
    connection,
    {
      ...{ name: keyStream, subjects: [`${prefix}>`], max_msgs_per_subject: 1 },
      ...{ discard: DiscardPolicy.New, deny_delete: true, allow_rollup_hdrs: true },
    },
    log,
  );
  const write = async (
    key: string,
    value: Uint8Array,
    after: number,
    isRemoval: boolean,
  ): Promise<number | undefined> => {
    const how = headers();
    if (isRemoval) how.set("KV-Operation", "DEL");
    try {
      const expect = { lastSubjectSequence: after };
      return (await client.publish(prefix + key, value, { expect, headers: how })).seq;
    } catch (error) {
      if (await isWrongSequence(error)) return undefined;
      throw error;
    }
  };
  return {
    put: (key, value, after) => write(key, value, after, false),
    remove: (key, after) => write(key, new Uint8Array(), after, true),
    newest: async () => (await manager.streams.info(keyStream)).state.last_seq,
    age: () => ageOf(manager, keyStream),
    async watch(take) {
      const consumer = await client.consumers.get(keyStream, {
        filter_subjects: `${prefix}>`,
        deliver_policy: DeliverPolicy.LastPerSubject,
      });
      const messages = await consumer.consume({
        callback: ({ subject, data, seq, headers: found }) => {
          const isGone = (found?.get("KV-Operation") ?? "") !== "";
          const value = isGone ? undefined : Uint8Array.from(data);
          take({ key: subject.slice(prefix.length), value, revision: seq });
        },
      });
      return { stop: () => messages.stop() };
    },
  };
}

async function isWrongSequence(error: unknown): Promise<boolean> {
  const { JetStreamApiError, JetStreamApiCodes } = await loadJetStream();
  return (
    error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamWrongLastSequence
  );
}

/** NATS's description of a file. */
interface FileFacts {
  readonly name: string;
  readonly bucket: string;
  readonly nuid: string;
  readonly size: number;
  readonly chunks: number;
  readonly digest: string;
  readonly mtime: string;
  readonly deleted?: boolean;
  readonly options: { readonly max_chunk_size: number };
}

export interface FileBucket {
  /** Makes the bucket again if NATS has lost it. */
  make(): Promise<void>;
  has(name: string): Promise<boolean>;
  create(name: string): BucketWriter;
  /** The bytes of a file in order; throws a SourceError if there is none, or if they differ from the written ones. */
  read(name: string): AsyncGenerator<Uint8Array>;
  remove(name: string): Promise<void>;
}

export interface BucketWriter {
  write(bytes: Uint8Array): Promise<void>;
  /** The file is visible to all clients when this resolves. */
  finish(): Promise<void>;
  discard(): Promise<void>;
}

/** Bytes of a message: the size of NATS's own clients. */
const PIECE = 128 * 1024;
/** Pieces on their way at a time. */
const AHEAD = 8;

export async function openFiles(
  connection: NatsConnection,
  newHash: () => Hash,
  log: (line: string) => void,
): Promise<FileBucket> {
  const { jetstream, jetstreamManager, DiscardPolicy } = await loadJetStream();
  const manager = await jetstreamManager(connection, { checkAPI: false });
  const config = {
    ...{ name: fileStream, subjects: [`$O.${FILES}.C.>`, `$O.${FILES}.M.>`] },
    ...{ discard: DiscardPolicy.New, allow_rollup_hdrs: true },
  };
  const make = (): Promise<void> => openStream(manager, connection, config, log);
  await make();
  const parts: FileParts = { client: jetstream(connection), manager, newHash };
  return {
    make,
    async has(name) {
      const facts = await factsOf(parts, name);
      return facts !== undefined && facts.deleted !== true;
    },
    create: (name) => new Writer(parts, name),
    read: (name) => piecesOf(parts, name),
    async remove(name) {
      const facts = await factsOf(parts, name);
      if (!facts || facts.deleted) return;
      await writeFacts(parts, { ...facts, size: 0, chunks: 0, digest: "", deleted: true });
      await manager.streams.purge(fileStream, { filter: pieceSubject(facts.nuid) });
    },
  };
}

interface FileParts {
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
  readonly newHash: () => Hash;
}

const pieceSubject = (nuid: string): string => `$O.${FILES}.C.${nuid}`;
const factsSubject = (name: string): string =>
  `$O.${FILES}.M.${urlBase64(toBase64(new TextEncoder().encode(name)))}`;
/** With the letters of URLs, and padded, as NATS's clients write it. */
const urlBase64 = (text: string): string => text.replaceAll("+", "-").replaceAll("/", "_");

async function factsOf({ manager }: FileParts, name: string): Promise<FileFacts | undefined> {
  const found = await manager.streams.getMessage(fileStream, { last_by_subj: factsSubject(name) });
  return found ? (JSON.parse(new TextDecoder().decode(found.data)) as FileFacts) : undefined;
}

async function writeFacts({ client }: FileParts, facts: FileFacts): Promise<void> {
  const { headers } = await import("@nats-io/transport-node");
  const only = headers();
  only.set("Nats-Rollup", "sub"); // replaces the earlier description
  const bytes = new TextEncoder().encode(JSON.stringify(facts));
  await client.publish(factsSubject(facts.name), bytes, { headers: only, retries: 5 });
}

class Writer implements BucketWriter {
  readonly #parts: FileParts;
  readonly #name: string;
  readonly #nuid = crypto.randomUUID().replaceAll("-", "").slice(0, 22);
  readonly #hash: Hash;
  #held: Uint8Array = new Uint8Array(PIECE);
  #filled = 0;
  #size = 0;
  #chunks = 0;
  #sent: Promise<unknown>[] = [];
  #isDone = false;

  constructor(parts: FileParts, name: string) {
    this.#parts = parts;
    this.#name = name;
    this.#hash = parts.newHash();
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      const count = Math.min(PIECE - this.#filled, bytes.length - at);
      this.#held.set(bytes.subarray(at, at + count), this.#filled);
      this.#filled += count;
      at += count;
      if (this.#filled === PIECE) await this.#send();
    }
  }

  async #send(): Promise<void> {
    const piece = this.#held.subarray(0, this.#filled);
    this.#held = new Uint8Array(PIECE);
    this.#filled = 0;
    this.#hash.update(piece);
    this.#size += piece.length;
    this.#chunks++;
    // With an id, so that a piece whose receipt was lost is not stored twice.
    const how = { msgID: `${this.#nuid}.${this.#chunks}`, retries: 5 };
    this.#sent.push(this.#parts.client.publish(pieceSubject(this.#nuid), piece, how));
    if (this.#sent.length < AHEAD) return;
    await Promise.all(this.#sent.splice(0));
  }

  async finish(): Promise<void> {
    if (this.#filled > 0) await this.#send();
    await Promise.all(this.#sent.splice(0));
    await writeFacts(this.#parts, {
      ...{ name: this.#name, bucket: FILES, nuid: this.#nuid, options: { max_chunk_size: PIECE } },
      ...{ size: this.#size, chunks: this.#chunks, mtime: new Date().toISOString() },
      digest: `SHA-256=${urlBase64(this.#hash.digest("base64"))}`,
    });
    this.#isDone = true;
  }

  async discard(): Promise<void> {
    if (this.#isDone || this.#chunks === 0) return;
    await Promise.allSettled(this.#sent.splice(0));
    await this.#parts.manager.streams.purge(fileStream, { filter: pieceSubject(this.#nuid) });
  }
}

async function* piecesOf(parts: FileParts, name: string): AsyncGenerator<Uint8Array> {
  const facts = await factsOf(parts, name);
  if (!facts || facts.deleted) throw new SourceError(`cluster: ${fileStream} has no file ${name}`);
  const hash = parts.newHash();
  let size = 0;
  if (facts.chunks > 0) {
    const subject = pieceSubject(facts.nuid);
    const consumer = await parts.client.consumers.get(fileStream, { filter_subjects: subject });
    const messages = await consumer.consume();
    let left = facts.chunks;
    for await (const { data } of messages) {
      hash.update(data);
      size += data.length;
      yield data;
      if (--left === 0) break;
    }
    messages.stop();
  }
  const digest = `SHA-256=${urlBase64(hash.digest("base64"))}`;
  if (size === facts.size && digest === facts.digest) return;
  throw new SourceError(
    `cluster: file ${name} of ${fileStream} came with ${size} bytes and ${digest}, expected ${facts.size} and ${facts.digest}`,
  );
}
