// This machine's limits of each loaded model, for the gauges: requested once per model, and again after a measurement.
// The server reports how close an answer came only when it has ended; the gauge needs the limit before.

import { RequestError } from "../api.ts";
import type { LimitsReport } from "../api-types.ts";
import { client } from "./connection.ts";
import { Store } from "./store.ts";

/** Limits by model; "unmeasured": the machine was never measured. */
export type ModelLimits = ReadonlyMap<string, LimitsReport | "unmeasured">;

export const modelLimits: Store<ModelLimits> = new Store<ModelLimits>(new Map());

const asked = new Set<string>();
const againMs = 3000;

/** Requests a model's limits, if that was not done yet. */
export async function wantLimits(model: string): Promise<void> {
  if (asked.has(model)) return;
  asked.add(model);
  try {
    put(model, await client.limits(model));
  } catch (error) {
    const measured = !(error instanceof RequestError && error.reason === "not_measured");
    if (!measured) put(model, "unmeasured");
    // The server measures when it is idle; the next answer asks again.
    if (!measured || (error instanceof RequestError && error.offline)) {
      setTimeout(() => asked.delete(model), againMs);
    }
  }
}

/** Call after a measurement: the known limits are outdated. */
export function forgetLimits(): void {
  asked.clear();
  modelLimits.set(new Map());
}

function put(model: string, found: LimitsReport | "unmeasured"): void {
  modelLimits.set(new Map([...modelLimits.value, [model, found]]));
}

/** The limit of tokens per second at a text of `length` tokens: interpolated between two rows of the report. */
export function limitAt(
  { decode }: LimitsReport,
  length: number,
): { rate: number; resource: string } {
  const above = decode.rows.findIndex(({ token }) => token >= length);
  const high = decode.rows[above < 0 ? decode.rows.length - 1 : above]!;
  const low = decode.rows[Math.max(0, above - 1)]!;
  const span = high.token - low.token;
  const share = above <= 0 || span === 0 ? 1 : (length - low.token) / span;
  const ms = low.ms + share * (high.ms - low.ms);
  return { rate: 1000 / ms, resource: high.resource };
}
