// The options of limits(), and the names that it knows.

import type { ModelLocation } from "../../api/api.ts";
import type { Device, MachineMeasurement } from "../../api/rates.ts";
import type { NamedShape } from "../../limits/configs.ts";
import type { Rate } from "../../limits/devices.ts";
import type { GpuMeasurement } from "../../limits/gpu-device.ts";
import type { Counting } from "../../limits/model-cost.ts";
import type { MeasuredLoad, ServingOptions } from "../../limits/serving-report.ts";
import type { ModelShape } from "../../limits/shape.ts";

/** A model that need not exist: the parsed config.json of a Hugging Face folder, or the sizes of a plain transformer. */
export interface OwnModel {
  config?: unknown;
  shape?: ModelShape | undefined;
  /** For display. */
  name?: string | undefined;
}

/** A file, a folder, a catalog name, a built-in configuration ("qwen1.5-7b"), or a configuration of one's own. */
export type LimitsSource = ModelLocation | OwnModel;

export interface LimitsOptions {
  /**
   * A device by name (limitsNames() lists them), or "this-gpu"; default: this machine. This machine and its GPU are
   * measured if they were not yet.
   */
  device?: string | undefined;
  /** Threads of this machine; default: the tuned number for the model, or else all cores. */
  threads?: number | undefined;
  /** Bits per weight, or the name of a type ("q4_0"); default: as in the file, 16 for a built-in configuration. */
  weights?: number | string | undefined;
  /** The same for the KV cache; default: 16. */
  kv?: number | string | undefined;
  /** The longest prompt and generation in the tables; default 4096. */
  context?: number | undefined;
  /** Memory size to use instead of the device's. */
  memoryBytes?: number | undefined;
  /** The most memory that the model may take on this machine: the rest is read from disk, at a speed that is measured. */
  ramBytes?: number | undefined;
  /** Use this peak rate for all arithmetic; default: the fastest that each matmul's type allows. */
  rate?: Rate | undefined;
  /**
   * "best" (default): as the best program computes, so that no program is faster. "article": as in the published tables, with all
   * arithmetic in F32 and the KV cache read again for every token of a prompt.
   */
  counting?: Counting | undefined;
  speculation?: SpeculationOptions | undefined;
  /** Many concurrent users: the number of users that can be served, and the cost of a batch of requests. */
  serving?: ServingOptions | undefined;
  /** Results of `lantern bench serve` to compare; default: the stored ones of this model on this machine. */
  servedLoads?: readonly MeasuredLoad[] | undefined;
  /**
   * The parsed output of `lantern bench --json`, to compare with the limits; or that of `bench:speculate --json`, to compare with the
   * prediction of `speculation`.
   */
  measured?: unknown;
  /** Name of `measured` for messages. */
  measuredName?: string | undefined;
  /** Provides this machine's measurement, if no device is named; default: machineMeasurement(). */
  machine?: (() => Promise<MachineMeasurement>) | undefined;
  /** The same for "this-gpu"; default: gpuMeasurement(). */
  gpu?: (() => Promise<GpuMeasurement>) | undefined;
}

export interface SpeculationOptions {
  /** Probability that a drafted token is kept, 0 to 1. */
  acceptance: number;
  /** Default: the best number. */
  draftTokens?: number | undefined;
  /** The draft model (a name or location), or a drafted token's time as a fraction of the model's own. */
  draft: ModelLocation | number;
}

export interface LimitsNames {
  models: readonly NamedShape[];
  devices: readonly Device[];
}
