// What this machine allows each loaded model, for the gauges: asked of the server once per model, and again after the
// machine was measured. Until an answer has ended the server itself does not say how close it came; this does.

import { RequestError } from "../api.ts";
import type { LimitsReport } from "../api-types.ts";
import { client } from "./connection.ts";
import { Store } from "./store.ts";

/** By model; "unmeasured": the machine was never measured. */
export type ModelLimits = ReadonlyMap<string, LimitsReport | "unmeasured">;

export const modelLimits: Store<ModelLimits> = new Store<ModelLimits>(new Map());

const asked = new Set<string>();
const againMs = 3000;

/** Asks for a model's limits, unless that was done. */
export async function wantLimits(model: string): Promise<void> {
  if (asked.has(model)) return;
  asked.add(model);
  try {
    put(model, await client.limits(model));
  } catch (error) {
    const measured = !(error instanceof RequestError && error.reason === "not_measured");
    if (!measured) put(model, "unmeasured");
    // The server measures when it has nothing else to do; the next answer asks again.
    if (!measured || (error instanceof RequestError && error.offline)) {
      setTimeout(() => asked.delete(model), againMs);
    }
  }
}

/** The machine was measured anew: what was known is old. */
export function forgetLimits(): void {
  asked.clear();
  modelLimits.set(new Map());
}

function put(model: string, found: LimitsReport | "unmeasured"): void {
  modelLimits.set(new Map([...modelLimits.value, [model, found]]));
}

/** The most tokens per second when the text has `length` tokens: between two rows of the report, in proportion. */
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
