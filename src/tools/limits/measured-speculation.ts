// The times of a model's batches on this machine, from its tune file, and the gain of speculation by them: the part of a report
// that src/limits cannot compute from rates. Of the processor only: the times of a GPU's batches are not in its tune file.

import type { ModelLocation } from "../../api/api.ts";
import {
  type BatchTimes,
  type MeasuredGain,
  predictedRun,
  type SpeculationHere,
  speculationHere,
} from "../../limits/speculation-here.ts";
import { withModelFile } from "../../load/model-file.ts";
import { nativeHere } from "../../machine/native.ts";
import { buildModel } from "../../models/build.ts";
import { currentPlatform } from "../../platform/current.ts";
import { measuredBatches } from "../../tune/measured-choices.ts";

export interface HereRequest {
  readonly model: ModelLocation;
  readonly threads: number;
  readonly acceptance: number;
  /** A model, or a drafted token's time as a fraction of the model's own. */
  readonly draft: ModelLocation | number;
  readonly runs: readonly MeasuredGain[];
}

/** A string names the missing part. */
export async function measuredSpeculation({
  model,
  threads,
  acceptance,
  draft,
  runs,
}: HereRequest): Promise<SpeculationHere | string> {
  const times = await timesOf(model, threads);
  const one = times?.(1);
  if (!times || one === undefined) return missing("this model's");
  const draftMs = typeof draft === "number" ? draft * one : (await timesOf(draft, threads))?.(1);
  if (draftMs === undefined) return missing("the draft model's");
  const compared = [];
  for (const run of runs) {
    const own = run.threads === threads ? times : await timesOf(model, run.threads);
    compared.push(predictedRun(run, own));
  }
  return speculationHere(acceptance, threads, times, draftMs, compared) ?? missing("this model's");
}

function missing(whose: string): string {
  return `not measured: the tune file has no times of ${whose} matmuls. Make them with: lantern tune -m MODEL`;
}

async function timesOf(model: ModelLocation, threads: number): Promise<BatchTimes | undefined> {
  return await withModelFile(model, async (file) => {
    const platform = await currentPlatform();
    const native = await nativeHere(platform);
    const shape = await measuredBatches(platform, file, { threads, native, given: undefined });
    return shape?.(buildModel(file).graph);
  });
}
