// Records: a row of activations as the matmul that alone reads it wants it, for batches of one token. The kernel that computes the row
// rounds it (to the bits that stage.ts would), once; otherwise every workgroup of the matmul would load all of it as floats, and round it.
//
//   [quants, four in a word][a float for each block: its scale]     where the floats of the row would be
//
// So a workgroup must compute whole blocks: those of 32 values, not of 256. Batches of several tokens have floats there, and
// prepare-activations.ts.

import type { Value, Weight } from "../../../graph/graph.ts";
import type { Arrival } from "./arrival.ts";
import { nearestHalfText } from "./halves.ts";
import type { Binding } from "./kernel.ts";
import { type BlockQuants, blockQuantsOf, packText } from "./round-activations.ts";
import { type StageText, stagedText } from "./stage.ts";
import { type Exchange, SUBGROUP } from "./subgroups.ts";

/** A row that is stored as a record. */
export interface RecordRow {
  readonly value: Value;
  readonly quants: BlockQuants;
}

/** Rows of a subgroup, at most, so that a workgroup computes whole blocks of a record. */
const MOST_ROWS = 8;

/**
 * The same shape (MatmulShape) with as many rows as a workgroup needs for whole blocks of the result of gate and up; undefined: too many.
 */
export function recordShape<Shape extends { rows: number; subgroups: number; split: number }>(
  { value, quants }: RecordRow,
  shape: Shape,
): Shape | undefined {
  for (let { rows } = shape; rows <= MOST_ROWS; rows *= 2) {
    const own = ((shape.subgroups / shape.split) * rows) / 2;
    if (own % quants.block === 0 && value.cols % own === 0) return { ...shape, rows };
  }
  return undefined;
}

/** The word of the first scale. */
export const scalesAt = ({ value }: RecordRow): number => value.cols / 4;

/** The WGSL by which lanes store a record, of which each has four neighbouring values. */
export interface RecordLanes {
  readonly binding: Binding;
  readonly functions: readonly string[];
  readonly declarations: string;
  /** WGSL that stores `values` as number `at` of the row's fours, if `isOwn`; the whole workgroup executes it. The lanes of a block are neighbours. */
  put(at: string, values: string, isOwn: string): string;
}

/** `base`: WGSL of the word where the record begins. */
export function recordLanes(row: RecordRow, exchange: Exchange, base = "0u"): RecordLanes {
  const from = base === "0u" ? "" : `${base} + `;
  const { block, exact, scale } = row.quants;
  const width = block / 4;
  return {
    binding: {
      name: "record",
      type: "u32",
      source: { kind: "value", value: row.value },
      writes: true,
    },
    functions: [nearestHalfText, packText],
    declarations: exchange.reduce("largestOfRecord", width, "max"),
    put: (at, values, isOwn) => `{
    let four = ${values};
    let largest = largestOfRecord(largestOf(four), lane);
    ${exact}
    if (${isOwn}) {
      let at = ${at};
      record[${from}at] = quantWord(four, inverse);
      if (at % ${width}u == 0u) { record[${from}${scalesAt(row)}u + at / ${width}u] = bitcast<u32>(${scale("exact")}); }
    }
  }`,
  };
}

/** The WGSL by which a kernel stores the record of its results. */
export interface RecordStore extends Omit<RecordLanes, "put"> {
  /** WGSL that keeps `value` of `row` until all of the workgroup are there. */
  keep(row: string, value: string): string;
  /** WGSL after that, for the whole workgroup, number `index`. */
  readonly body: string;
}

/** `own`: values that a workgroup computes, whole blocks. */
export function recordStore(
  row: RecordRow,
  own: number,
  exchange: Exchange,
  base?: string,
): RecordStore {
  const { put, declarations, ...rest } = recordLanes(row, exchange, base);
  const four = [0, 1, 2, 3].map((j) => `finished[quad * 4u + ${j}u]`);
  return {
    ...rest,
    declarations: `${declarations}
var<workgroup> finished: array<f32, ${own}>;`,
    keep: (at, value) => `finished[${at} % ${own}u] = ${value};`,
    body: `
  workgroupBarrier();
  let quad = lane % ${own / 4}u;
  ${put(`index * ${own / 4}u + quad`, `vec4f(${four.join(", ")})`, `lane < ${own / 4}u`)}`,
  };
}

/**
 * The record of attention of one token, a head in each workgroup, for the matmul that alone reads it; undefined: heads are no whole blocks, or the lanes of
 * a block, four values each, are more than a subgroup.
 */
export function headsRecord(
  value: Value,
  headDim: number,
  { dtype }: Weight,
): RecordRow | undefined {
  const quants = blockQuantsOf(dtype.activation);
  if (!quants || headDim % quants.block !== 0 || quants.block / 4 > SUBGROUP) return undefined;
  return { value, quants };
}

/** The WGSL that loads activations for a lane that multiplies a chunk; as LaneDot.lowAt and so on. */
export interface RecordLoads {
  readonly bindings: readonly Binding[];
  quants(at: string): string;
  scale(at: string): string;
}

export function recordLoads(row: RecordRow): RecordLoads {
  const source = { kind: "value", value: row.value } as const;
  return {
    bindings: [
      { name: "record", type: "vec4u", source },
      { name: "recordWords", type: "u32", source },
    ],
    quants: (at) => `record[${at}]`,
    scale: (at) => `bitcast<f32>(recordWords[${scalesAt(row)}u + ${at}])`,
  };
}

/** Stages a record in workgroup memory: where it comes from workgroups of the same dispatch, each of its words is loaded once. */
export function recordStage(row: RecordRow, size: number, arrival: Arrival): StageText {
  const { bindings, quants, scale } = recordLoads(row);
  const { cols } = row.value;
  const counts = { staged: cols / 16, scales: cols / row.quants.block };
  const steps = (count: number) => Array.from({ length: Math.ceil(count / size) }, (_, i) => i);
  const at = (step: number): string => `lane + ${step * size}u`;
  const each = (text: (name: string, at: string, exists: string, from: string) => string): string =>
    [
      ...steps(counts.staged).map((i) =>
        text(`staged${i}`, at(i), `${at(i)} < ${counts.staged}u`, quants(at(i))),
      ),
      ...steps(counts.scales).map((i) =>
        text(`scales${i}`, at(i), `${at(i)} < ${counts.scales}u`, scale(at(i))),
      ),
    ].join("\n  ");
  const target = (name: string): string => name.replace(/\d+$/, "");
  return {
    bindings,
    functions: [],
    declarations: stagedText(cols, row.quants),
    early: "",
    body: `
  ${each((name) => `var ${name} = ${name.startsWith("staged") ? "vec4u()" : "0.0"};`)}
  ${arrival.loads(each((name, _at, exists, from) => `if (${exists}) { ${name} = ${from}; }`))}
  ${each((name, index, exists) => `if (${exists}) { ${target(name)}[${index}] = ${name}; }`)}
  workgroupBarrier();`,
  };
}
