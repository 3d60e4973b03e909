// A kernel of the GPU: WGSL text, with all sizes of the model as constants, its bindings, and the number of workgroups for a
// batch's rows. Data only; program.ts makes pipelines and bind groups.

import type { TokenPart } from "../../../graph/batch.ts";
import type { Rows, Value, Weight } from "../../../graph/graph.ts";

/** The resource of a binding. */
export type Source =
  | { readonly kind: "value"; readonly value: Value }
  /** A part of a weight (weight-layout.ts): its bytes or wide plane, or its narrow one. */
  | {
      readonly kind: "weight";
      readonly weight: Weight;
      readonly part: number;
      readonly plane?: "narrow";
    }
  /** Stacked weights, by the first one. */
  | { readonly kind: "stack"; readonly weight: Weight; readonly plane?: "narrow" }
  | { readonly kind: "keys" | "values"; readonly state: number }
  /** Recurrent state: all slots. */
  | { readonly kind: "recurrent"; readonly state: number }
  /** The batch area: tokens, positions, cache blocks (batch-area.ts). */
  | { readonly kind: "batch" }
  /** The activations that were rounded last. */
  | { readonly kind: "rounded" }
  /** Activations of several tokens, prepared for the next matmuls (prepare-activations.ts). */
  | { readonly kind: "prepared" }
  /** Pairs of tokens and slots, by expert (group-pairs.ts). */
  | { readonly kind: "tiles" }
  /** Attention over parts of the context: sums of each part, and the words that merge them (attention-split.ts). */
  | { readonly kind: "partials" }
  /** The best logits of parts of rows, and of rows (best-logits.ts). */
  | { readonly kind: "bestParts" | "best" }
  /** The parts' candidates for the best logit of rows (best-one.ts). */
  | { readonly kind: "bestOne" }
  /** Words that workgroups of the same dispatch exchange (layer.ts). */
  | { readonly kind: "exchange" }
  /** The slots of the experts that `routes` names, where not all are in GPU memory (experts/). */
  | { readonly kind: "slots"; readonly routes: Value }
  /** Constants: a codebook. */
  | { readonly kind: "table"; readonly words: Uint32Array };

export interface Binding {
  /** Name of the variable in the shader. */
  readonly name: string;
  /** Type of an element: "f32", "vec4f", "u32". */
  readonly type: string;
  readonly source: Source;
  readonly writes?: boolean;
}

export type Grid = readonly [x: number, y: number, z: number];

export interface Kernel {
  /** For profiles and errors: "matvec q4_0 [4096, 288]". */
  readonly name: string;
  readonly code: string;
  /** In the order of their binding numbers. */
  readonly sources: readonly Source[];
  /** The rows that its grid depends on; a batch without such rows skips it. */
  readonly rows: Rows;
  /** It only computes these tokens; a batch without any skips it. */
  readonly part?: TokenPart;
  grid(rows: number): Grid;
  /** It runs in batches of minRows to maxRows rows; other kernels run in others. */
  readonly minRows: number;
  readonly maxRows: number;
  /** Rows have the same bits as those that kernels for other numbers of rows compute, if these say so as well. */
  readonly sameBits?: boolean;
  /** On matrix units, whose operands are half floats: its values are less exact than others. */
  readonly inHalves?: boolean;
  /** It only prepares the activations of matmuls (init): the bytes of each value that it stores for them. */
  readonly preparedBytes?: 2 | 4;
  /**
   * The same computation as part of a kernel of a whole layer (layer.ts), in workgroups of `lanes` lanes; undefined: of as many as it has by itself.
   * Gives undefined if it has no such workgroups.
   */
  readonly inLayer?: (lanes: number | undefined) => KernelSpec | undefined;
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
  /** Diagnostics to switch off. */
  readonly quiet?: readonly string[];
  /** The body of main(): may use `group` (id of the workgroup), `groups` (their number), `lane` (thread in the workgroup). */
  readonly body: string;
  readonly rows: Rows;
  grid(rows: number): Grid;
  readonly minRows?: number;
  readonly maxRows?: number;
  readonly sameBits?: boolean;
  /** As part of a layer kernel: it goes through this many workgroups by itself, from number `group.x` on, each `groups.x` further. Its declarations have `fn prefetch` of prefetch.ts. */
  readonly rounds?: number;
  /** As part of a layer kernel, of attention: its first workgroups, which have all to do where the context is short. Its declarations have `fn prefetchCache` of prefetch.ts. */
  readonly busy?: number;
}

/** The default number of threads of a workgroup. */
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
    ...(spec.sameBits && { sameBits: true }),
  };
}

/** One thread for each of `count` items of a row. */
export function perItem(count: number): (rows: number) => Grid {
  return (rows) => [Math.ceil(count / LANES), rows, 1];
}

/** A float literal of WGSL, with all its digits. */
export function float(value: number): string {
  const text = String(Math.fround(value));
  return /[.e]/.test(text) ? `f32(${text})` : `f32(${text}.0)`;
}

/** WGSL that reduces `partial[0 ... size - 1]` (of any type) into partial[0]; the whole workgroup must execute it. */
export function reduceText(size: number, combine: (a: string, b: string) => string): string {
  return `
  workgroupBarrier();
  for (var stride = ${size / 2}u; stride > 0u; stride >>= 1u) {
    if (lane < stride) { partial[lane] = ${combine("partial[lane]", "partial[lane + stride]")}; }
    workgroupBarrier();
  }`;
}

export const sumText = (size: number): string => reduceText(size, (a, b) => `${a} + ${b}`);
