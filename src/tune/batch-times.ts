// The time of a whole batch on the processor, from the measured times of its matmuls: how it grows with the number of tokens.
// Other ops (attention, norms) are left out, so the result is a shape more than a time: the engine scales it by the times of its
// batches (src/engine/speculate/costs.ts). Arithmetic only.

import type { MatmulGroup } from "../limits/model-matmuls.ts";
import { fastestStages } from "./device-profiles.ts";
import { type Basis, basisFor, type DeviceAt } from "./estimate.ts";
import { problemText, type TuneFile } from "./tune-file.ts";

/** Milliseconds by tokens, all of which have logits; undefined: a type of the model was not measured. */
export function batchTimes(
  file: TuneFile,
  groups: readonly MatmulGroup[],
  threads: number,
  limits?: DeviceAt,
): ((tokens: number) => number | undefined) | undefined {
  const bases = new Map<string, Basis>();
  for (const problem of groups.flatMap(({ matmuls }) => matmuls)) {
    const basis = basisFor(file, problem, threads, limits);
    if (!basis) return undefined;
    bases.set(problemText(problem), basis);
  }
  if (bases.size === 0) return undefined;
  return (tokens) => {
    const times = new Map(
      [...bases].map(([text, basis]) => [text, fastestStages(file, basis, tokens)]),
    );
    let us = 0;
    for (const { matmuls } of groups) {
      const stages = matmuls.map((one) => times.get(problemText(one)));
      if (stages.some((one) => one === undefined)) return undefined;
      // Activations are prepared once for all that read them.
      us += Math.max(...stages.map((one) => one!.init));
      us += stages.reduce((sum, one) => sum + one!.compute, 0);
    }
    return us / 1000;
  };
}
