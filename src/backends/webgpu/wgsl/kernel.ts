// A kernel: WGSL text with everything that is known when a model is loaded written into it as numbers, what it binds, and
// how many workgroups a batch of so many rows takes. Data only; pipelines and buffers are made of it elsewhere.

import type { Rows, Value, Weight } from "../../../graph/graph.ts";

/** What stands behind a binding. */
export type Source =
  | { readonly kind: "value"; readonly value: Value }
  /** A part of a weight (weight-layout.ts): its bytes or wide plane, or its narrow one. */
  | {
      readonly kind: "weight";
      readonly weight: Weight;
      readonly part: number;
      readonly plane?: "narrow";
    }
  /** Stacked weights, by the first. */
  | { readonly kind: "stack"; readonly weight: Weight; readonly plane?: "narrow" }
  | { readonly kind: "keys" | "values"; readonly state: number }
  /** Of all slots. */
  | { readonly kind: "recurrent"; readonly state: number }
  /** What changes with every batch: tokens, positions, cache blocks (batch-area.ts). */
  | { readonly kind: "batch" }
  /** Activations as they were rounded last, for the matmuls that read them. */
  | { readonly kind: "rounded" }
  /** Attention over parts of the context: sums of each part, and by what they are merged (attention-split.ts). */
  | { readonly kind: "partials" | "tops" }
  /** Numbers that never change: a codebook. */
  | { readonly kind: "table"; readonly words: Uint32Array };

export interface Binding {
  /** Of the variable in the shader. */
  readonly name: string;
  /** Of one element: "f32", "vec4f", "u32". */
  readonly type: string;
  readonly source: Source;
  readonly writes?: boolean;
}

export type Grid = readonly [x: number, y: number, z: number];

export interface Kernel {
  /** For people: "matvec q4_0 [4096, 288]". */
  readonly name: string;
  readonly code: string;
  /** In the order of their binding numbers. */
  readonly sources: readonly Source[];
  /** What its grid is made for; a batch without such rows leaves it out. */
  readonly rows: Rows;
  grid(rows: number): Grid;
  /** Batches of fewer or more rows are another kernel's. */
  readonly minRows: number;
  readonly maxRows: number;
}

export interface KernelSpec {
  readonly name: string;
  readonly bindings: readonly Binding[];
  /** Functions and workgroup variables. */
  readonly declarations?: string;
  /** Threads of a workgroup. */
  readonly size?: number;
  /** Extensions of WGSL that it uses: "subgroups", "f16". */
  readonly enables?: readonly string[];
  /** Diagnostics that are switched off, where the text knows better. */
  readonly quiet?: readonly string[];
  /** Of main(): may use `group` (its id), `groups` (how many), `lane` (thread in the workgroup). */
  readonly body: string;
  readonly rows: Rows;
  grid(rows: number): Grid;
  readonly minRows?: number;
  readonly maxRows?: number;
}

/** Threads of a workgroup where nothing speaks for another number. */
export const LANES = 64;

export function makeKernel(spec: KernelSpec): Kernel {
  const { name, bindings, size = LANES, rows, grid, minRows = 1, maxRows = Infinity } = spec;
  const variables = bindings.map(
    (binding, i) =>
      `@group(0) @binding(${i}) var<storage, ${binding.writes ? "read_write" : "read"}> ${binding.name}: array<${binding.type}>;`,
  );
  const directives = [
    ...(spec.quiet ?? []).map((name) => `diagnostic(off, ${name});\n`),
    ...(spec.enables ?? []).map((name) => `enable ${name};\n`),
  ].join("");
  const code = `${directives}${variables.join("\n")}
${spec.declarations ?? ""}
@compute @workgroup_size(${size})
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {${spec.body}
}
`;
  return {
    name,
    code,
    sources: bindings.map(({ source }) => source),
    rows,
    grid,
    minRows,
    maxRows,
  };
}

/** One thread for each of `count` items of a row. */
export function perItem(count: number): (rows: number) => Grid {
  return (rows) => [Math.ceil(count / LANES), rows, 1];
}

/** A float in WGSL: with all its digits, and recognisable as one. */
export function float(value: number): string {
  const text = String(Math.fround(value));
  return /[.e]/.test(text) ? `f32(${text})` : `f32(${text}.0)`;
}

/** WGSL that sums `partial[0 ... size - 1]` (of any type) into partial[0]; a whole workgroup must come by. */
export function reduceText(size: number, combine: (a: string, b: string) => string): string {
  return `
  workgroupBarrier();
  for (var stride = ${size / 2}u; stride > 0u; stride >>= 1u) {
    if (lane < stride) { partial[lane] = ${combine("partial[lane]", "partial[lane + stride]")}; }
    workgroupBarrier();
  }`;
}

export const sumText = (size: number): string => reduceText(size, (a, b) => `${a} + ${b}`);
