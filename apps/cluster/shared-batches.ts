// The batches of all gateways, known to all of them. Each gateway runs its own, in its own store, and writes their progress into a bucket of
// NATS (buckets.ts); it reads the records of the others there, and keeps copies of them (apps/batch/mirror.ts). So any gateway answers for any
// batch, and the others have all that a lost gateway had: its batches, their input files, and the answers of their lines, which are in NATS
// (line-streams.ts).
//
// Replacing a record takes its revision. So of two gateways that want a lost one's batch one gets it, and a gateway that was only cut off
// learns that its batch is another's now before any client sees its results.

import type { JetStreamManager } from "@nats-io/jetstream";
import { Backoff, pause, poll, retry, type Waits } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import { StorageError } from "../../src/platform/database.ts";
import { type Batch, BatchError, endStates, type StoredFile } from "../batch/batch.ts";
import type { BatchRecord } from "../batch/mirror.ts";
import type { BatchRunner } from "../batch/runner.ts";
import type { SharedState } from "../batch/shared.ts";
import type { BatchStore } from "../batch/store.ts";
import { endValidation, readLines } from "../batch/validate.ts";
import { type Entry, type KeyBucket, openKeys } from "./buckets.ts";
import { saveKnownAnswers } from "./line-answers.ts";
import { openStreams } from "./line-streams.ts";
import { subjects } from "./messages.ts";
import type { NatsConnection } from "./peer.ts";
import type { SharedFolder } from "./shared-folder.ts";
import { type StoreWatch, watchStore } from "./store-watch.ts";
import { decode, encode } from "./wire.ts";

export interface SharedBatchesOptions {
  readonly connection: NatsConnection;
  readonly store: BatchStore;
  readonly runner: BatchRunner;
  readonly folder: SharedFolder;
  readonly log: (line: string) => void;
  readonly times?: Partial<ShareTimes>;
}

/** In milliseconds. */
interface ShareTimes {
  /** Between two signs of life of a gateway. */
  readonly beat: number;
  /** A gateway that was silent for this time has lost its batches. */
  readonly lost: number;
  /** Between two records of a batch whose lines are being answered. */
  readonly counts: number;
  /** How long a request waits for NATS. */
  readonly wait: number;
}

const shareTimes: ShareTimes = { beat: 1000, lost: 10_000, counts: 1000, wait: 10_000 };

const RETRY_MS = 2000;
const waits: Waits = { firstMs: RETRY_MS, mostMs: 30_000, tries: Infinity };
const unfinishedStates = ["validating", "in_progress", "finalizing", "cancelling"] as const;
const keyOf = { batch: (id: string) => `batch.${id}`, file: (id: string) => `file.${id}` } as const;

/** A record that is to be written. */
interface Changed {
  readonly kind: "batch" | "file";
  readonly id: string;
}

export class SharedBatches implements SharedState {
  readonly self: string;
  readonly #options: SharedBatchesOptions;
  readonly #times: ShareTimes;
  readonly #stop = new AbortController();
  readonly #opened = Promise.withResolvers<KeyBucket>();
  /** The newest revision of each key that was read or written. */
  readonly #revisions = new Map<string, number>();
  /** Batches that a client wants to end. */
  readonly #cancelled = new Set<string>();
  /** When each gateway was last heard of. */
  readonly #alive = new Map<string, number>();
  /** Gateways whose presence was logged. */
  readonly #heard = new Set<string>();
  readonly #dirty = new Map<string, Changed>();
  readonly #takingOver = new Set<string>();
  /** Back-off of batches that could not be taken over yet. */
  readonly #takeOvers = new Map<string, Backoff>();
  /** Batches of this gateway that have ended, by their records. */
  readonly #ended = new Set<string>();
  #writing: Promise<void> = Promise.resolve();
  #seen = 0;
  #waiting: (() => void)[] = [];
  #lastTick = performance.now();
  #end: () => void = () => {};
  #stopWatching: () => void = () => {};
  /** The age of the bucket that all revisions belong to. */
  #age: string | undefined;
  #watch: StoreWatch | undefined;
  /** NATS has lost the files, and some of the files here are not written back yet. */
  #hasLostFiles = false;

  constructor(options: SharedBatchesOptions) {
    this.#options = options;
    this.#times = { ...shareTimes, ...options.times };
    this.self = options.store.mirror.self();
    this.#opened.promise.catch(() => {});
  }

  async start(): Promise<void> {
    const { connection, store, log } = this.#options;
    const { signal } = this.#stop;
    const isOver = (): boolean => signal.aborted || connection.isClosed();
    const begin = async (): Promise<void> => {
      const bucket = await this.#open();
      store.watch((kind, id) => this.#changed(kind, id));
      this.#watch = watchStore(connection, () => this.#checkStore(bucket));
      this.#listen();
      this.#opened.resolve(bucket);
    };
    const onFailure = (error: unknown): void => {
      if (isOver()) throw error;
      log(`cluster: batches of other gateways: ${messageOf(error)}`);
    };
    await retry(begin, waits, { signal, onFailure }).catch((error: unknown) => {
      if (!isOver()) throw error;
    });
  }

  /** Reads the records of all others, and writes those of this gateway that they do not have. */
  async #open(): Promise<KeyBucket> {
    const { connection, log } = this.#options;
    const bucket = await openKeys(connection, log);
    const age = await bucket.age();
    this.#stopWatching();
    this.#revisions.clear();
    this.#cancelled.clear();
    this.#ended.clear();
    this.#seen = 0;
    let isCurrent = true;
    const watching = await bucket.watch((entry) => {
      if (isCurrent) this.#take(entry); // and no entries of a bucket that is lost
    });
    this.#stopWatching = () => {
      isCurrent = false;
      watching.stop();
    };
    await this.#seenAll(bucket);
    this.#publishOwn();
    this.#age = age;
    return bucket;
  }

  /** NATS came back without the bucket: revisions begin again, and each gateway writes its records. */
  async #checkStore(bucket: KeyBucket): Promise<void> {
    const { store, folder, log } = this.#options;
    if ((await bucket.age()) !== this.#age) {
      const before = this.#age;
      // Not during a write: it would be compared with revisions of the other bucket.
      const opening = this.#writing.then(() => this.#open());
      this.#writing = opening.then(
        () => {},
        () => {},
      );
      await opening;
      if (this.#age !== before) {
        log("cluster: NATS has lost the batches of all gateways: this one writes its own again");
        this.#hasLostFiles = true;
      }
    }
    if (!this.#hasLostFiles) return;
    const { mirror } = store;
    const files = mirror.files().flatMap((id) => mirror.file(id) ?? []);
    const count = await folder.restore(files);
    this.#hasLostFiles = false;
    log(`cluster: ${count} files of batches that NATS had lost are there again`);
  }

  async upToDate(): Promise<void> {
    await this.#inTime(async () => await this.#seenAll(await this.#opened.promise));
  }

  async flush(): Promise<void> {
    await this.#inTime(async () => {
      await this.#opened.promise;
      await this.#write();
    });
  }

  async close(): Promise<void> {
    this.#options.store.watch(() => {});
    await Promise.race([this.#write().catch(() => {}), pause(1000, this.#stop.signal)]);
    this.#stop.abort();
    this.#watch?.stop();
    this.#end();
    this.#stopWatching();
  }

  async #inTime(work: () => Promise<void>): Promise<void> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      late.reject(new Error(`NATS has not answered for ${this.#times.wait / 1000} s`));
    }, this.#times.wait);
    try {
      await Promise.race([work(), late.promise]);
    } catch (error) {
      throw new StorageError("failed", `the cluster's store of batches: ${messageOf(error)}`, {
        cause: error,
      });
    } finally {
      clearTimeout(timer);
    }
  }

  async #seenAll(bucket: KeyBucket): Promise<void> {
    let newest = await bucket.newest();
    while (this.#seen < newest) {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      this.#waiting.push(() => resolve(true));
      const timer = setTimeout(() => resolve(false), RETRY_MS);
      const hasCome = await promise;
      clearTimeout(timer);
      // Entries that NATS has lost by now never come.
      if (!hasCome) newest = Math.min(newest, await bucket.newest());
    }
  }

  // --- records of others

  #take({ key, value, revision }: Entry): void {
    try {
      const [kind, id] = key.split(".");
      const known = this.#revisions.get(key) ?? 0;
      if (revision > known) {
        this.#revisions.set(key, revision);
        if (kind === "batch") this.#takeBatch(id!, value && (decode(value) as BatchRecord));
        else if (kind === "file") this.#takeFile(id!, value && (decode(value) as StoredFile));
        else if (kind === "cancel") this.#takeCancel(id!, value !== undefined);
      }
    } catch (error) {
      this.#options.log(`cluster: ${key}: ${messageOf(error)}`);
    } finally {
      this.#seen = Math.max(this.#seen, revision);
      for (const resolve of this.#waiting.splice(0)) resolve();
    }
  }

  #takeBatch(id: string, record: BatchRecord | undefined): void {
    const { store, runner } = this.#options;
    const isOwn = store.isOwn(id);
    if (record && endStates.has(record.batch.state)) this.#ended.add(id);
    if (!record) {
      store.mirror.dropBatch(id);
      if (isOwn) runner.lose(id);
    } else if (record.gateway !== this.self) {
      this.#dirty.delete(keyOf.batch(id));
      store.mirror.putBatch(this.#withCancel(record));
      if (isOwn) runner.lose(id);
    } else if (!isOwn && !this.#takingOver.has(id)) {
      // A batch of its own that is not in its store: it was lost during the takeover by this gateway.
      store.mirror.putBatch(this.#withCancel(record));
    }
  }

  #withCancel(record: BatchRecord): BatchRecord {
    const { batch } = record;
    const isLate = batch.state === "validating" || batch.state === "in_progress";
    if (!this.#cancelled.has(batch.id) || !isLate) return record;
    const at = { cancelling: Date.now(), ...batch.at };
    return { ...record, batch: { ...batch, state: "cancelling", at } };
  }

  #takeFile(id: string, file: StoredFile | undefined): void {
    const { store, folder, log } = this.#options;
    if (file) {
      store.mirror.putFile(file);
    } else {
      store.mirror.dropFile(id);
      folder.forget(id).catch((error: unknown) => log(messageOf(error)));
    }
  }

  #takeCancel(id: string, isWanted: boolean): void {
    const { store, runner } = this.#options;
    if (isWanted) this.#cancelled.add(id);
    else this.#cancelled.delete(id);
    if (isWanted && store.isOwn(id)) runner.cancel(id);
  }

  // --- records of this gateway

  /** Records that an earlier process of this store did not write. */
  #publishOwn(): void {
    const { mirror } = this.#options.store;
    for (const id of mirror.ownBatches()) if (!this.#ended.has(id)) this.#changed("batch", id);
    this.#ended.clear();
    for (const id of mirror.files()) {
      if (!this.#revisions.has(keyOf.file(id))) this.#changed("file", id);
    }
  }

  #changed(kind: "batch" | "file", id: string): void {
    this.#dirty.set(keyOf[kind](id), { kind, id });
  }

  /** Writes all changes, files before the batches that name them. One at a time. */
  #write(): Promise<void> {
    const work = this.#writing.then(async () => {
      const bucket = await this.#opened.promise;
      const all = [...this.#dirty];
      const more: typeof all = [];
      this.#dirty.clear();
      all.sort(([, a], [, b]) => Number(a.kind === "batch") - Number(b.kind === "batch"));
      try {
        for (const one of all) {
          // A batch is written in its state by then: its new files come before it, too.
          for (let file = this.#changedFile(); file; file = this.#changedFile()) {
            this.#dirty.delete(file[0]);
            more.push(file);
            await this.#writeOne(bucket, ...file);
          }
          await this.#writeOne(bucket, ...one);
        }
      } catch (error) {
        for (const [key, one] of [...all, ...more])
          if (!this.#dirty.has(key)) this.#dirty.set(key, one);
        throw error;
      }
    });
    this.#writing = work.catch(() => {});
    return work;
  }

  #changedFile(): [string, Changed] | undefined {
    return [...this.#dirty].find(([, { kind }]) => kind === "file");
  }

  async #writeOne(bucket: KeyBucket, key: string, { kind, id }: Changed): Promise<void> {
    const after = this.#revisions.get(key) ?? 0;
    const { store } = this.#options;
    const gateway = kind === "batch" ? store.mirror.gatewayOf(id) : undefined;
    if (gateway !== undefined && gateway !== "") return await this.#passOn(bucket, store.batch(id));
    const value = kind === "file" ? store.mirror.file(id) : gateway === "" && this.#record(id);
    if (!value && after === 0) return;
    const bytes = value ? encode(value) : undefined;
    const revision = bytes ? await bucket.put(key, bytes, after) : await bucket.remove(key, after);
    if (revision !== undefined) {
      this.#revisions.set(key, Math.max(revision, this.#revisions.get(key) ?? 0));
      if (kind === "batch" && (!value || endStates.has((value as BatchRecord).batch.state))) {
        await this.#forgetCancel(bucket, id);
      }
      return;
    }
    if ((await bucket.age()) !== this.#age) throw new Error("NATS has lost what was written there");
    // Another gateway has the batch. The results made here do not count; its record is on the way.
    if (kind !== "batch" || !value) return;
    const { batch } = value as BatchRecord;
    this.#options.log(`cluster: batch ${id} is another gateway's now`);
    for (const file of [batch.outputFile, batch.errorFile]) {
      if (file !== null) await store.files.delete(file, batch.owner).catch(() => {});
    }
  }

  #record(id: string): BatchRecord {
    return { batch: this.#options.store.batch(id), gateway: this.self };
  }

  /** A batch of another gateway that was cancelled here. */
  async #passOn(bucket: KeyBucket, { id, state }: Batch): Promise<void> {
    if (state !== "cancelling" || this.#cancelled.has(id)) return;
    const key = `cancel.${id}`;
    await bucket.put(key, encode(true), this.#revisions.get(key) ?? 0);
  }

  async #forgetCancel(bucket: KeyBucket, id: string): Promise<void> {
    const key = `cancel.${id}`;
    if (this.#cancelled.has(id)) await bucket.remove(key, this.#revisions.get(key) ?? 0);
  }

  // --- which gateways are alive

  /** Logs a new gateway, for operators who did not mean to share: no other sign tells two clusters from one with two gateways. */
  #hear(gateway: string): void {
    if (gateway !== this.self && !this.#heard.has(gateway)) {
      this.#heard.add(gateway);
      this.#options.log(
        `cluster: gateway ${gateway} is in this account of NATS, too: workers, files and batches are the same for both. If it is of another cluster, give each an account (docs/use/cluster.md, "Two clusters on one NATS")`,
      );
    }
    this.#alive.set(gateway, performance.now());
  }

  #listen(): void {
    const { connection, log } = this.#options;
    const subscription = connection.subscribe(subjects.gateways, {
      callback: (error, { subject }) => {
        if (error) return log(`cluster: ${subjects.gateways}: ${messageOf(error)}`);
        this.#hear(subject.slice(subject.lastIndexOf(".") + 1));
      },
    });
    const beat = setInterval(() => this.#tick(), this.#times.beat);
    const everyMs = this.#times.counts;
    const write = async (): Promise<void> =>
      await this.#write().catch((error: unknown) => {
        log(`cluster: batches: ${messageOf(error)}`);
        throw error;
      });
    const counts = poll(write, { everyMs, mostMs: Math.max(everyMs, waits.mostMs) });
    this.#end = () => {
      clearInterval(beat);
      counts.stop();
      subscription.unsubscribe();
    };
    this.#tick();
  }

  #tick(): void {
    const { connection, store } = this.#options;
    if (connection.isClosed()) return;
    connection.publish(subjects.gateway(this.self));
    const now = performance.now();
    // This process was stopped for a while, or cut off: no gateway could be heard.
    const wasAway = now - this.#lastTick > this.#times.lost / 2 || this.#watch?.isSure === false;
    this.#lastTick = now;
    if (wasAway) for (const gateway of this.#alive.keys()) this.#alive.set(gateway, now);
    for (const { id, gateway } of store.mirror.foreignBatches()) {
      const isSelf = gateway === this.self;
      if (!this.#alive.has(gateway)) this.#alive.set(gateway, now);
      const isLost = isSelf || now - this.#alive.get(gateway)! > this.#times.lost;
      if (isLost && !this.#takingOver.has(id)) void this.#takeOver(id);
    }
  }

  /** Takes over a lost gateway's batch: its lines are made again from its input, with the answers that they have. */
  async #takeOver(id: string): Promise<void> {
    const { store, runner, connection, log } = this.#options;
    this.#takingOver.add(id);
    try {
      const bucket = await this.#opened.promise;
      const key = keyOf.batch(id);
      const batch = store.batch(id);
      const record = encode({ batch, gateway: this.self });
      const revision = await bucket.put(key, record, this.#revisions.get(key) ?? 0);
      if (revision === undefined) return void this.#takeOvers.delete(id); // another gateway was first
      this.#revisions.set(key, Math.max(revision, this.#revisions.get(key) ?? 0));
      store.mirror.beginTakeover(batch);
      // The last record of its gateway may be outdated: lines of a batch that was being validated can have answers.
      const read = await readLines(store, batch, this.#stop.signal);
      if (read.errors.length === 0) {
        const manager: JetStreamManager = await openStreams(connection, log);
        await saveKnownAnswers({ connection, manager, store, batch: id });
      }
      store.transaction(() => {
        store.mirror.takeOver(id);
        if (batch.state === "validating") endValidation(store, id, read);
      });
      if (this.#cancelled.has(id)) runner.cancel(id);
      this.#takeOvers.delete(id);
      log(`cluster: batch ${id} goes on here: its gateway is lost`);
      this.#changed("batch", id);
      runner.wake();
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      if (error instanceof BatchError) {
        // Its input file is gone: no gateway can continue it.
        this.#takeOvers.delete(id);
        const lost = { code: "input_lost", message: error.message, param: null, line: null };
        store.mirror.takeOver(id);
        store.move(id, [...unfinishedStates], "failed", { errors: [lost] });
        return;
      }
      log(`cluster: batch ${id} could not be taken over, and is tried again: ${messageOf(error)}`);
      const backoff = this.#takeOvers.get(id) ?? new Backoff(waits);
      this.#takeOvers.set(id, backoff);
      await backoff.failed(this.#stop.signal);
    } finally {
      this.#takingOver.delete(id);
    }
  }
}
