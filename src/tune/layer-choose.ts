// Chooses the dispatch of layers for the GPU backend from measurements of layers in one dispatch, with a sentence about
// it for --explain.

import type { GpuFacts } from "../backends/webgpu/device.ts";
import {
  LAYER_REVISION,
  type LayerDispatch,
  tuningFor,
  USUAL_POLLS,
  usualLayers,
} from "../backends/webgpu/tuning.ts";
import {
  type ContextTimes,
  dispatchName,
  layerRefusals,
  type TunedDispatch,
  type TunedLayers,
} from "./layer-lines.ts";
import type { TuneFile } from "./tune-file.ts";

/** The dispatch that is used; undefined: the file names none, or one of kernels that no longer exist. */
function usedDispatch({ use, dispatches, revision }: TunedLayers): TunedDispatch | undefined {
  if (revision !== LAYER_REVISION) return undefined;
  const timed = dispatches.filter(({ result }) => typeof result !== "string");
  return timed.find((one) => dispatchName(one) === use);
}

/** The tuned dispatches, each for models with layers of its shape; for others the usual one. undefined: none is tuned. */
export function tunedLayers(
  { layers = [], date }: Pick<TuneFile, "layers" | "date">,
  facts: GpuFacts,
): LayerDispatch | undefined {
  // They were measured with these shapes of matmuls, instead of the matmuls' own.
  const { shapeFor } = tuningFor(facts);
  return layers.reduceRight((otherwise: LayerDispatch | undefined, tuned) => {
    const used = usedDispatch(tuned);
    if (!used) return otherwise;
    const { groups, lanes } = used;
    const how = { groups, lanes, polls: USUAL_POLLS, ...(groups > 0 && { shapeFor }) };
    return { ...how, shape: tuned.shape, why: `tuned ${date.slice(0, 10)}`, otherwise };
  }, usualLayers(facts));
}

/** Measurements of layers of one shape, for people. */
export interface LayersAnalysis
  extends Pick<TunedLayers, "shape" | "bytes" | "contexts" | "noise"> {
  /** "176x256": workgroups and their lanes; "apart": a dispatch for each op; undefined: the times are of other kernels. */
  readonly use: string | undefined;
  /** Its speed relative to a dispatch for each op. */
  readonly gain: number;
  /** Microseconds after each context, or why there are none. */
  readonly dispatches: readonly { readonly name: string; readonly result: ContextTimes | string }[];
}

export function analyzeLayers({ layers = [] }: Pick<TuneFile, "layers">): LayersAnalysis[] {
  return layers.map((tuned) => {
    const { shape, bytes, contexts, noise } = tuned;
    const used = usedDispatch(tuned);
    const apart = tuned.dispatches.find(({ groups }) => groups === 0);
    return {
      ...{ shape, bytes, contexts, ...(noise !== undefined && { noise }) },
      use: used && dispatchName(used),
      gain: used && apart ? sumOf(apart) / sumOf(used) : 1,
      dispatches: tuned.dispatches.map((one) => {
        const { result } = one;
        const name = dispatchName(one);
        return { name, result: typeof result === "string" ? layerRefusals[result] : result };
      }),
    };
  });
}

function sumOf({ result }: TunedDispatch): number {
  return typeof result === "string" ? Number.NaN : result[0] + result[1];
}

/** One line for each shape of layers. */
export function layerLines(file: Pick<TuneFile, "layers">): string[] {
  return analyzeLayers(file).map(({ shape, bytes, use, contexts, noise, dispatches }) => {
    const name = `layers of ${(bytes / 2 ** 20).toFixed(1)} MiB (${shape})`;
    if (use === undefined) return `  ${name}: not used, of other kernels`;
    const each = dispatches.map(({ name, result }) =>
      typeof result === "string"
        ? `${name} is out: ${result}`
        : `${name} ${result.map((us) => us.toFixed(1)).join(" and ")} us`,
    );
    const noisy = noise === undefined ? "" : `, noise ${(100 * noise).toFixed(1)} %`;
    return `  ${name}: ${use} (1 token after ${contexts.join(" and ")}: ${each.join(", ")}${noisy})`;
  });
}
