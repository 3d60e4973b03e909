// What limits() is asked, and the names that it knows.

import type { ModelLocation } from "../../api/api.ts";
import type { NamedShape } from "../../limits/configs.ts";
import type { Device, MachineMeasurement } from "../../limits/device.ts";
import type { Rate } from "../../limits/devices.ts";
import type { GpuMeasurement } from "../../limits/gpu-device.ts";
import type { Counting } from "../../limits/model-cost.ts";

export interface LimitsOptions {
  /**
   * A device by name (limitsNames() lists them), or "this-gpu"; default: this machine. Both of these are measured if they
   * have not been.
   */
  device?: string | undefined;
  /** Threads of this machine; default: those that the model runs on here, as tuned, else all cores. */
  threads?: number | undefined;
  /** Bits of a weight, or a type's name ("q4_0"); default: as the file has them, 16 for a built-in configuration. */
  weights?: number | string | undefined;
  /** The same for the KV cache; default: 16. */
  kv?: number | string | undefined;
  /** The longest prompt and generation that is computed; default 4096. */
  context?: number | undefined;
  /** Memory to fill, instead of the device's. */
  memoryBytes?: number | undefined;
  /** Count all arithmetic at this peak; default: the fastest that each matmul's type allows. */
  rate?: Rate | undefined;
  /**
   * "best" (default): as the best program computes, so that nothing is faster. "article": as the published tables count, with
   * all arithmetic in F32 and the KV cache read anew for every token of a prompt.
   */
  counting?: Counting | undefined;
  speculation?: SpeculationOptions | undefined;
  /** What `lantern bench --json` printed, parsed: compared with the limits. */
  measured?: unknown;
  /** For messages about `measured`. */
  measuredName?: string | undefined;
  /** Where this machine's measurement comes from, if no device is named; default: machineMeasurement(). */
  machine?: (() => Promise<MachineMeasurement>) | undefined;
  /** The same for "this-gpu"; default: gpuMeasurement(). */
  gpu?: (() => Promise<GpuMeasurement>) | undefined;
}

export interface SpeculationOptions {
  /** Chance that a drafted token is kept, 0 to 1. */
  acceptance: number;
  /** Default: as many as are best. */
  draftTokens?: number | undefined;
  /** A model that drafts (a name or location), or a drafted token's time as a share of the model's own. */
  draft: ModelLocation | number;
}

export interface LimitsNames {
  models: readonly NamedShape[];
  devices: readonly Device[];
}
