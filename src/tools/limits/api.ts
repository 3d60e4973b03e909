// Limits as the public API has them: what a device allows a model, as a record or a picture. What this needs (formats,
// models, the measured machine) is loaded when it is called. The arithmetic itself is in src/limits.

import type { ModelLocation } from "../../api/api.ts";
import type { LimitsReport } from "../../limits/report.ts";
import type { LimitsNames, LimitsOptions } from "./options.ts";

export type { LimitsNames, LimitsOptions, SpeculationOptions } from "./options.ts";

/** What a device allows a model: a file, a folder, a name of the catalog or a built-in configuration ("qwen1.5-7b"). */
export async function limits(
  model: ModelLocation,
  options: LimitsOptions = {},
): Promise<LimitsReport> {
  const { makeReport } = await import("./compose.ts");
  return await makeReport(model, options);
}

/** The picture of a report, as the text of an SVG file. */
export async function limitsPicture(report: LimitsReport): Promise<string> {
  const { limitsPlot } = await import("../../limits/plot.ts");
  return limitsPlot(report);
}

/** The built-in configurations and the devices that have a name. */
export async function limitsNames(): Promise<LimitsNames> {
  const [{ namedShapes }, { devices }] = await Promise.all([
    import("../../limits/configs.ts"),
    import("../../limits/devices.ts"),
  ]);
  return { models: namedShapes, devices };
}
