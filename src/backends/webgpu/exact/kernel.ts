// Makes a kernel of this folder: it binds the batch data, which has the word that is always 0 (arithmetic.ts).

import type { Value, Weight } from "../../../graph/graph.ts";
import { type Binding, type Kernel, type KernelSpec, makeKernel } from "../wgsl/kernel.ts";
import { ZERO_WORD } from "./arithmetic.ts";

/** The word that is 0, in WGSL. */
export const zero: string = `batch[${ZERO_WORD}u]`;

const batchBinding: Binding = { name: "batch", type: "u32", source: { kind: "batch" } };

/** The batch data counts as used, for any functions that are called. */
export function exactKernel(spec: KernelSpec): Kernel {
  return makeKernel({
    ...spec,
    name: `exact ${spec.name}`,
    bindings: [...spec.bindings, batchBinding],
    body: `
  _ = &batch;${spec.body}`,
  });
}

export function read(name: string, value: Value): Binding {
  return { name, type: "f32", source: { kind: "value", value } };
}

export function write(value: Value): Binding {
  return { name: "result", type: "f32", source: { kind: "value", value }, writes: true };
}

export function vector(name: string, weight: Weight): Binding {
  return { name, type: "f32", source: { kind: "weight", weight, part: 0 } };
}
