// The cases of the conformance suite on the CPU backend: every architecture, cache type and shape of a tiny model, and how
// far its values may be from the reference's.

import { allArchs } from "../../src/models/table.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";

export interface ConformanceCase {
  readonly name: string;
  readonly options: TinyOptions;
  readonly tolerance: number;
}

const weightTypes = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"];

export const conformanceCases: readonly ConformanceCase[] = [
  // Floats: every value agrees to rounding.
  ...allArchs()
    .flatMap((arch) => arch.names)
    .map((architecture) => ({
      name: `${architecture}, every value`,
      options: { architecture },
      tolerance: 1e-5,
    })),
  // A key that lies between two steps of its type may fall either way.
  { name: "f16 cache", options: { kvType: "f16" }, tolerance: 2e-3 },
  { name: "q8_0 cache", options: { kvType: "q8_0" }, tolerance: 2e-2 },
  {
    name: "rows and columns that fill no tile",
    options: { feedForward: 36, vocab: 51 },
    tolerance: 1e-5,
  },
  { name: "columns that fill no vector", options: { feedForward: 45 }, tolerance: 1e-5 },
  // Quantized: the first steps agree to rounding; an activation that falls to its other neighbour moves later ones.
  ...weightTypes.map((weightType) => ({
    name: `${weightType} weights`,
    options: { weightType },
    tolerance: 3e-2,
  })),
];
