// Prepares the activations of matmuls of several tokens (matmul-small-batch.ts): a workgroup normalises and rounds a token as
// stage.ts does for a single one, with the same text and so to the same bits, and stores it.
//
// A token's record, in words: quants (or half floats, or floats); where they are quants, the sum of each 16 of them, and the scales. For
// matrix units (matmul-matrices.ts) it is half floats in the order of matrix-tiles.ts instead, as round-activations.ts stores them.

import type { Rows, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { rowOfPairAt } from "./group-pairs.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import { dotsText } from "./matmul-chunks.ts";
import { matrixAt } from "./matrix-tiles.ts";
import { blockQuantsOf } from "./round-activations.ts";
import { bytesOfValue, type StageSource, stageText } from "./stage.ts";
import type { Exchange } from "./subgroups.ts";

/** In words of a token's record. */
interface PreparedLayout {
  readonly sumsAt: number;
  readonly scalesAt: number;
  /** Words of the whole record: whole vectors. */
  readonly words: number;
}

/** The quants of a sum. */
const GROUP = 16;

export function preparedLayout({ dtype, shape }: Weight): PreparedLayout {
  const cols = shape[1]!;
  const quants = blockQuantsOf(dtype.activation);
  if (!quants) {
    return { sumsAt: 0, scalesAt: 0, words: Math.ceil((cols * bytesOfValue(dtype)) / 16) * 4 };
  }
  const sumsAt = Math.ceil(cols / 16) * 4;
  const scalesAt = sumsAt + cols / GROUP;
  return { sumsAt, scalesAt, words: Math.ceil((scalesAt + cols / quants.block) / 4) * 4 };
}

export interface PrepareOptions {
  readonly size: number;
  readonly rows: Rows;
  /** The batches that it is for. */
  readonly minRows: number;
  readonly maxRows: number;
  /** For matrix units. */
  readonly halves?: boolean;
  /** For experts on matrix units: each token is copied to the rows of its `pairs` pairs (group-pairs.ts). */
  readonly pairs?: number | undefined;
  /** Default: "rounded" for matrix units. Only that one has room for all tokens of a large batch. */
  readonly into?: "prepared" | "rounded";
  readonly exchange: Exchange;
  readonly batch: BatchLayout;
  readonly packedDots: boolean;
}

export function prepareKernel(
  source: StageSource,
  weight: Weight,
  { size, rows, minRows, maxRows, halves = false, pairs, ...context }: PrepareOptions,
): Kernel {
  const { exchange, batch, packedDots, into = halves ? "rounded" : "prepared" } = context;
  const quants = blockQuantsOf(weight.dtype.activation);
  const stage = stageText(source, weight, size, exchange, batch);
  const stored = halves ? halvesText(weight, size, pairs) : recordText(weight, size);
  const tiles = { name: "tiles", type: "u32", source: { kind: "tiles" } } as const;
  return {
    ...makeKernel({
      name: `prepare ${source.norm ? "norm " : ""}to ${weight.dtype.activation}${halves ? " in halves" : ""}${pairs ? " by expert" : ""} [${weight.shape[1]}]`,
      bindings: [
        ...stage.bindings,
        ...(pairs ? [tiles] : []),
        { name: "prepared", type: "u32", source: { kind: into }, writes: true },
      ],
      enables: exchange.enables,
      size,
      declarations: `${exchange.declarations(size)}${stage.functions.join("")}${stage.declarations}${quants && !halves ? dotsText(packedDots) : ""}`,
      rows,
      minRows,
      maxRows,
      sameBits: !halves,
      grid: (tokens) => [tokens, 1, 1],
      body: `
  let token = group.x;
  let index = 0u;
  ${stage.early}${stage.body}
  ${stored}`,
    }),
    preparedBytes: halves ? 2 : quants ? 4 : bytesOfValue(weight.dtype),
  };
}

/** Stores `staged`, `scales` and the sums as a record. */
function recordText(weight: Weight, size: number): string {
  const cols = weight.shape[1]!;
  const { sumsAt, scalesAt, words } = preparedLayout(weight);
  const quants = blockQuantsOf(weight.dtype.activation);
  const levels =
    quants &&
    `
  for (var i = lane; i < ${cols / GROUP}u; i += ${size}u) {
    prepared[at + ${sumsAt}u + i] = bitcast<u32>(dots(staged[i], vec4u(0x01010101u)));
  }
  for (var i = lane; i < ${cols / quants.block}u; i += ${size}u) {
    prepared[at + ${scalesAt}u + i] = bitcast<u32>(scales[i]);
  }`;
  const valueWords = (cols * (quants ? 1 : bytesOfValue(weight.dtype))) / 4;
  return `let at = token * ${words}u;
  for (var i = lane; i < ${valueWords}u; i += ${size}u) { prepared[at + i] = staged[i >> 2u][i & 3u]; }${levels ?? ""}`;
}

/** Stores half floats, each four in the order 0, 2, 1, 3: in the row of the token, or in those of its `pairs` pairs. */
function halvesText({ dtype, shape }: Weight, size: number, pairs: number | undefined): string {
  const cols = shape[1]!;
  const copies = Array.from({ length: pairs ?? 0 }, (_, i) => i);
  const rows = copies.map(
    (i) => `let row${i} = tiles[${rowOfPairAt(`token * ${pairs}u + ${i}u`)}];`,
  );
  const store = (row: string): string => `
    let at = ${matrixAt(row, "quad * 4u", cols)} / 2u;
    prepared[at] = first;
    prepared[at + 1u] = second;`;
  const quants = blockQuantsOf(dtype.activation);
  const words = quants
    ? `let four = staged[quad >> 2u][quad & 3u];
    let values = vec4f(bitcast<vec4i>(vec4u(four) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u)) * scales[quad / ${quants.block / 4}u];
    let first = packHalves(values.xz);
    let second = packHalves(values.yw);`
    : `let low = staged[quad >> 1u][(quad & 1u) * 2u];
    let high = staged[quad >> 1u][(quad & 1u) * 2u + 1u];
    let first = (low & 0xffffu) | (high << 16u);
    let second = (low >> 16u) | (high & 0xffff0000u);`;
  return `${rows.map((row) => `${row}\n  `).join("")}for (var quad = lane; quad < ${cols / 4}u; quad += ${size}u) {
    ${words}${pairs ? copies.map((i) => `{${store(`row${i}`)} }`).join("\n    ") : store("token")}
  }`;
}
