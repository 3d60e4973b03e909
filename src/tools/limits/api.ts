// The public API of limits: the speeds that a device allows a model, as a record or a chart. Formats, models and the measurement
// are loaded when it is called. The arithmetic is in src/limits.

import type { LimitsReport } from "../../limits/report.ts";
import type { LimitsNames, LimitsOptions, LimitsSource } from "./options.ts";

export { meetsSla } from "../../limits/serving-report.ts";
export type {
  LimitsNames,
  LimitsOptions,
  LimitsSource,
  OwnModel,
  SpeculationOptions,
} from "./options.ts";

/** The limits that a device sets a model. */
export async function limits(
  model: LimitsSource,
  options: LimitsOptions = {},
): Promise<LimitsReport> {
  const { makeReport } = await import("./compose.ts");
  return await makeReport(model, options);
}

/** The chart of a report, as SVG text. */
export async function limitsPicture(report: LimitsReport): Promise<string> {
  const { limitsPlot } = await import("../../limits/plot.ts");
  return limitsPlot(report);
}

/** The names of the built-in configurations and devices. */
export async function limitsNames(): Promise<LimitsNames> {
  const [{ namedShapes }, { devices }] = await Promise.all([
    import("../../limits/configs.ts"),
    import("../../limits/devices.ts"),
  ]);
  return { models: namedShapes, devices };
}
