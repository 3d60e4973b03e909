// What times are of: this processor and these kernels. Another processor, another engine, or a change in the code of the
// kernels makes them say nothing; the text of some kernels stands for the code of all.

import { detectWasmFeatures } from "../kernels/features.ts";
import { print } from "../kernels/ir/print.ts";
import { blockMatmulKernel } from "../kernels/ops/matmul-blocks.ts";
import { floatMatmulKernel } from "../kernels/ops/matmul-floats.ts";
import { blockLayoutFor } from "../kernels/ops/packed.ts";
import { packedTypes, packingOf } from "../kernels/ops/packings.ts";
import { wasmTarget } from "../kernels/target.ts";
import type { TuneIdentity } from "./tune-file.ts";

let revision: string | undefined;

export function identityOf(machine: { cpu: string; cores: number }): TuneIdentity {
  const { relaxed, dot4 } = detectWasmFeatures();
  revision ??= kernelRevision();
  return {
    engine: `kernels ${revision}`,
    cpu: machine.cpu,
    cores: machine.cores,
    features: `wasm ${relaxed ? "relaxed" : "simd"} dot4=${dot4}`,
  };
}

/** A hash of what the kernels are made of: of every layout as data, and of the code for a short and a long one. */
function kernelRevision(): string {
  const shape = { groups: 2, tokens: 4, replicated: false, order: "matrix" } as const;
  const target = wasmTarget({ dot4: "signed", vectorRegisters: 16 });
  const layouts = packedTypes().map((type) => packingOf(type)!.layout("signed"));
  const short = layouts.find(({ spanBlocks }) => spanBlocks === 1)!;
  const long = layouts.find(({ spanBlocks }) => spanBlocks > 1)!;
  const blocks = [short, long].map((layout) =>
    blockMatmulKernel({ ...shape, name: "blocks", layout: blockLayoutFor(layout, target) }),
  );
  const floats = floatMatmulKernel({
    name: "f32",
    weights: "f32",
    groups: 2,
    tokens: 4,
    order: "matrix",
    target,
  });
  return fnv([JSON.stringify(layouts), ...[...blocks, floats].map(print)].join("\n"));
}

/** 32-bit FNV-1a, in hexadecimal. */
function fnv(text: string): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, "0");
}
