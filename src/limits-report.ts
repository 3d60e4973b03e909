// Limits as the public API has them: what a device allows a model, as a record or a picture. What this needs (formats,
// models, the measured machine) is loaded when it is called. The arithmetic itself is in src/limits.

import type { ModelLocation } from "./api.ts";
import type { NamedShape } from "./limits/configs.ts";
import type { Device, MachineMeasurement } from "./limits/device.ts";
import type { Rate } from "./limits/devices.ts";
import type { GpuMeasurement } from "./limits/gpu-device.ts";
import type { Counting } from "./limits/model-cost.ts";
import type { LimitsReport } from "./limits/report.ts";

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
  /** Count all arithmetic at this peak; default: the fastest that each product's type allows. */
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

/** What a device allows a model: a file, a folder, a name of the catalog or a built-in configuration ("qwen1.5-7b"). */
export async function limits(
  model: ModelLocation,
  options: LimitsOptions = {},
): Promise<LimitsReport> {
  const { makeReport } = await import("./limits-compose.ts");
  return await makeReport(model, options);
}

/** The picture of a report, as the text of an SVG file. */
export async function limitsPicture(report: LimitsReport): Promise<string> {
  const { limitsPlot } = await import("./limits/plot.ts");
  return limitsPlot(report);
}

/** The built-in configurations and the devices that have a name. */
export async function limitsNames(): Promise<LimitsNames> {
  const [{ namedShapes }, { devices }] = await Promise.all([
    import("./limits/configs.ts"),
    import("./limits/devices.ts"),
  ]);
  return { models: namedShapes, devices };
}
