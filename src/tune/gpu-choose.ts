// Chooses a backend's matmul kernels from times measured on a GPU: for every shape and type the fastest of the table
// for one token, because decode computes one. Without times, or without a clear difference, the backend's own choice
// stays. Layers in one dispatch are chosen in layer-choose.ts.

import type { GpuFacts } from "../backends/webgpu/device.ts";
import { matmulShapes, type Tuning, tuningFor } from "../backends/webgpu/tuning.ts";
import { clearlyFaster } from "./choose.ts";
import { basisFor, estimate } from "./estimate.ts";
import { layerLines, tunedLayers } from "./layer-choose.ts";
import { DEFAULT_VARIANT, type TuneFile } from "./tune-file.ts";

export interface GpuTunedUse {
  /** undefined: the backend's own choice. */
  readonly tuning?: Tuning | undefined;
  /** For --explain. */
  readonly notes: readonly string[];
}

/** `file`: times of this GPU, a sentence why they are not used, or undefined if there are none. */
export function useGpuTuning(file: TuneFile | string | undefined, facts: GpuFacts): GpuTunedUse {
  if (file === undefined) {
    return {
      notes: ['GPU kernels: defaults, nothing was tuned here ("lantern tune --backend webgpu")'],
    };
  }
  if (typeof file === "string") return { notes: [`GPU kernels: defaults; ${file}`] };
  const usual = tuningFor(facts);
  const shapeFor: Tuning["shapeFor"] = (rows, cols, dtype) => {
    const variant = fastestVariant(file, rows, cols, dtype);
    return matmulShapes.get(variant) ?? usual.shapeFor(rows, cols, dtype);
  };
  const dense = file.groups.filter(({ experts }) => experts === undefined);
  const lines = dense.map(({ dtype, n, k, noise }) => {
    const times = timesOf(file, n, k, dtype)
      .map(({ variant, us }) => `${variant} ${us.toFixed(1)} us`)
      .join(", ");
    const noisy = noise === undefined ? "" : `, noise ${(100 * noise).toFixed(1)} %`;
    return `  ${dtype} ${n} x ${k}: ${fastestVariant(file, n, k, dtype)} (1 token: ${times}${noisy})`;
  });
  return {
    tuning: { ...usual, shapeFor, layerDispatch: tunedLayers(file, facts) },
    notes: [`GPU kernels: tuned ${file.date.slice(0, 10)}`, ...lines, ...layerLines(file)],
  };
}

/** The default's name if nothing is clearly faster, beyond the noise. */
export function fastestVariant(file: TuneFile, rows: number, cols: number, dtype: string): string {
  const timed = timesOf(file, rows, cols, dtype);
  const usual = timed.find(({ variant }) => variant === DEFAULT_VARIANT);
  const best = timed.toSorted((a, b) => a.us - b.us)[0];
  const noise = basisFor(file, { dtype, n: rows, k: cols }, 1)?.group.noise;
  const isFaster = usual && best && best.us <= usual.us * clearlyFaster(noise);
  return isFaster ? best.variant : DEFAULT_VARIANT;
}

/** The times of all measured profiles for one token. */
function timesOf(
  file: TuneFile,
  rows: number,
  cols: number,
  dtype: string,
): { variant: string; us: number }[] {
  const basis = basisFor(file, { dtype, n: rows, k: cols }, 1);
  if (!basis) return [];
  return file.profiles.flatMap(({ variant }, profile) => {
    const times = estimate(basis, profile, 1);
    return times ? [{ variant, us: times.init + times.compute }] : [];
  });
}
