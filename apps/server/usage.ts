// The use of memory and processors in the last minutes: a sample every few seconds, of the machine, of this process and of
// each model. For the Machine page and /metrics. The caller that starts the server supplies the machine's numbers, since a
// server touches no system.

import type { Model, ModelInfo } from "../../src/index.ts";

/** The system's numbers at a moment. The difference of two readings describes the time in between. */
export interface SystemReading {
  atMs: number;
  cores: number;
  memoryBytes: number;
  /** Memory that is available to programs. */
  availableBytes: number;
  /** Memory of this process. */
  residentBytes: number;
  /** CPU seconds of all cores together, and of this process, since they started. */
  busySeconds: number;
  ownSeconds: number;
}

export interface ModelUsage {
  id: string;
  weightBytes: number;
  kvBytes: number;
  scratchBytes: number;
  /** The GPU that holds it, or a part of it; null: all of it is in the machine's memory. */
  device: string | null;
  /** Share of the time in which its threads or its GPU computed; null: it was opened without a profile. */
  busy: number | null;
}

export interface UsageSample {
  /** Milliseconds since 1970. */
  time: number;
  /** null: the system was not asked. */
  machine: MachineUsage | null;
  models: ModelUsage[];
}

export interface MachineUsage {
  cores: number;
  memoryBytes: number;
  availableBytes: number;
  residentBytes: number;
  /** Shares of all cores, 0 to 1, since the sample before: of this process, and of all; null in the first sample. */
  ownCpu: number | null;
  cpu: number | null;
}

/** The watched source: the served models and a clock, in milliseconds and since 1970. */
interface UsageSource {
  readonly models: { list(): readonly WatchedModel[] };
  now(): number;
  time(): number;
}

interface WatchedModel {
  readonly id: string;
  readonly model: Pick<Model, "info" | "health" | "status">;
}

const sampleMs = 5000;
/** Ten minutes. */
const mostSamples = 120;

export class UsageHistory {
  readonly #server: UsageSource;
  readonly #read: (() => SystemReading) | undefined;
  readonly #samples: UsageSample[] = [];
  #before: SystemReading | undefined;
  /** By model: the time of the last status, and its compute time until then. */
  #busy = new Map<string, { atMs: number; busyMs: number }>();
  #taking: Promise<UsageSample> | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(server: UsageSource, read: (() => SystemReading) | undefined) {
    this.#server = server;
    this.#read = read;
  }

  /** Takes a sample every few seconds until stop(). */
  start(): void {
    // A failed reading may succeed next time: a server does not end for that.
    const take = (): void => void this.sample().catch(() => {});
    take();
    this.#timer = setInterval(take, sampleMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Oldest first. */
  get samples(): readonly UsageSample[] {
    return this.#samples;
  }

  /** The last sample; a new one if that is too old. */
  async latest(): Promise<UsageSample> {
    const last = this.#samples.at(-1);
    const isFresh = last !== undefined && this.#server.time() - last.time < sampleMs;
    return isFresh ? last : await this.sample();
  }

  /** Takes a sample now; one at a time, because a busy engine answers late. */
  sample(): Promise<UsageSample> {
    this.#taking ??= this.#take().finally(() => {
      this.#taking = undefined;
    });
    return this.#taking;
  }

  async #take(): Promise<UsageSample> {
    const models = await Promise.all(
      this.#server.models.list().map((one) => this.#modelUsage(one)),
    );
    const sample: UsageSample = {
      time: this.#server.time(),
      machine: this.#machineUsage(),
      models: models.flat(),
    };
    this.#samples.push(sample);
    if (this.#samples.length > mostSamples) this.#samples.shift();
    return sample;
  }

  #machineUsage(): MachineUsage | null {
    const now = this.#read?.();
    if (!now) return null;
    const before = this.#before;
    this.#before = now;
    const { cores, memoryBytes, availableBytes, residentBytes } = now;
    const seconds = before ? ((now.atMs - before.atMs) / 1000) * cores : 0;
    const share = (used: number): number | null =>
      seconds > 0 ? Math.min(1, Math.max(0, used / seconds)) : null;
    return {
      cores,
      memoryBytes,
      availableBytes,
      residentBytes,
      ownCpu: before ? share(now.ownSeconds - before.ownSeconds) : null,
      cpu: before ? share(now.busySeconds - before.busySeconds) : null,
    };
  }

  /** No entry for a model that is being closed, or whose engine does not answer. */
  async #modelUsage({ id, model }: WatchedModel): Promise<ModelUsage[]> {
    const { status: state } = await model.health().catch(() => ({ status: "error" }) as const);
    const status = state === "ok" ? await model.status().catch(() => undefined) : undefined;
    if (!status) return [];
    const { stateBytesHeld: kvBytes, memory } = status;
    const { weightBytes, workBytes: scratchBytes } = memory;
    const device = deviceOf(model.info);
    const busy = this.#busyShare(id, status.busyMs);
    return [{ id, weightBytes, kvBytes, scratchBytes, device, busy }];
  }

  #busyShare(id: string, busyMs: number | undefined): number | null {
    if (busyMs === undefined) return null;
    const now = { atMs: this.#server.now(), busyMs };
    const before = this.#busy.get(id);
    this.#busy.set(id, now);
    if (!before || now.atMs <= before.atMs || busyMs < before.busyMs) return null;
    return Math.min(1, (busyMs - before.busyMs) / (now.atMs - before.atMs));
  }
}

/** The GPU that holds a model, or a part of it; null: none. */
export function deviceOf({ backend }: ModelInfo): string | null {
  const onDevice = backend.placement.find(({ isDevice }) => isDevice);
  return onDevice ? (onDevice.adapter ?? onDevice.backend) : null;
}
