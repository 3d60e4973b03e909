// Stages the activations of a matmul (matmul-gemv.ts) in workgroup memory: normalised, where a norm is fused with it, and
// rounded to DType.activation: 8-bit quants with a scale for each block, half floats, or floats as they are.

import type { DType } from "../../../dtypes/dtype.ts";
import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Arrival, noArrival } from "./arrival.ts";
import { activationHalfText, nearestHalfText } from "./halves.ts";
import { type Binding, float } from "./kernel.ts";
import { type BlockQuants, blockQuantsOf, packText, roundsToHalves } from "./round-activations.ts";
import { type Exchange, SUBGROUP } from "./subgroups.ts";

/** The input of a matmul, with the nodes before it that are fused with it. */
export interface StageSource {
  readonly x: Value;
  /** Only these rows of x are read. */
  readonly select?: NodeOf<"select"> | undefined;
  readonly norm?: NodeOf<"rms_norm"> | undefined;
  /** The first workgroup also stores the normalised values here. */
  readonly keep?: Value | undefined;
}

export interface StageText {
  readonly bindings: readonly Binding[];
  /** Functions that other parts of a kernel may have as well, each a text of its own. */
  readonly functions: readonly string[];
  readonly declarations: string;
  /** The loads that can begin before x is there. */
  readonly early: string;
  /** After that: fills `staged` (vec4u) and `scales`; ends with a barrier. Reads `token` and `index`, the number of the workgroup. */
  readonly body: string;
}

/** Bytes of workgroup memory that staging needs. */
export function stageBytes({ dtype, shape }: Weight): number {
  const cols = shape[1]!;
  const quants = blockQuantsOf(dtype.activation);
  return (quants ? cols + (cols / quants.block) * 4 : cols * bytesOfValue(dtype)) + 1024;
}

/** Bytes of an activation that is no quant. */
export function bytesOfValue(dtype: DType): 2 | 4 {
  return roundsToHalves({ dtype }) ? 2 : 4;
}

export function stageText(
  source: StageSource,
  weight: Weight,
  size: number,
  exchange: Exchange,
  batch: BatchLayout,
  arrival: Arrival = noArrival,
): StageText {
  const { x, select, norm } = source;
  const quads = x.cols / 4;
  const quants = blockQuantsOf(weight.dtype.activation);
  const stored = quants
    ? quantText(quants, exchange)
    : bytesOfValue(weight.dtype) === 2
      ? halfText(exchange)
      : floats;
  const held = heldQuads(quads, size, stored.own);
  const runs = runsOf(held);
  const isOnce = runs.length === 1;
  const load = (run: readonly HeldQuad[]): string => loadsText(source, run, arrival);
  const inRuns: InRuns = (text) =>
    runs
      .map((run) => `{ ${isOnce ? "" : `${weightsText(source, run)}${load(run)}`} ${text(run)} }`)
      .join("\n  ");
  return {
    bindings: stageBindings(source),
    functions: stored.functions,
    declarations: `${norm ? normDeclarations(size, exchange) : ""}${stored.declarations(quads)}`,
    early: isOnce ? weightsText(source, held) : "",
    body: `
  let row = ${select ? `batch[${batch.outputRows}u + token]` : "token"} * ${quads}u;
  ${isOnce ? load(held) : ""}
  ${norm ? normalisedText(source, stored, size, exchange, inRuns, isOnce) : inRuns((run) => stored.body(run, false))}
  workgroupBarrier();`,
  };
}

/** WGSL of `text` for all of a row, as many vectors at a time as a lane holds. */
type InRuns = (text: (run: readonly HeldQuad[]) => string) => string;

/** Four neighbouring values that a lane holds in registers: v0, v1, ... are the values, quad0, quad1, ... where they are in the row. */
interface HeldQuad {
  readonly name: number;
  readonly at: string;
  /** WGSL: whether the row has it. */
  readonly exists: string;
}

/**
 * The vectors of each lane, `own` neighbouring ones at a time. All of them are loaded before the first is used: one after the other,
 * each would wait for the memory, and of a matmul of one token most of the time is such waiting.
 */
function heldQuads(quads: number, size: number, own: number): HeldQuad[] {
  const steps = Math.ceil(quads / (size * own));
  return Array.from({ length: steps * own }, (_, name) => {
    const step = Math.floor(name / own);
    const isSure = (step + 1) * size * own <= quads;
    const at = `lane * ${own}u + ${step * size * own + (name % own)}u`;
    return { name, at, exists: isSure ? "true" : `quad${name} < ${quads}u` };
  });
}

/** Vectors of 4 values that a lane holds at a time, at most. */
const MOST_HELD = 16;

/** The vectors that are loaded at once. */
function runsOf(held: readonly HeldQuad[]): (readonly HeldQuad[])[] {
  return Array.from({ length: Math.ceil(held.length / MOST_HELD) }, (_, i) =>
    held.slice(i * MOST_HELD, (i + 1) * MOST_HELD),
  );
}

/** The vectors of a lane, with their addresses: beyond the end of the row, its last vector. */
function eachHeld(
  { x }: StageSource,
  held: readonly HeldQuad[],
  text: (quad: HeldQuad, from: string) => string,
): string {
  const last = x.cols / 4 - 1;
  return held
    .map((quad) => {
      const { name, exists } = quad;
      return text(quad, exists === "true" ? `quad${name}` : `min(quad${name}, ${last}u)`);
    })
    .join(" ");
}

/** Sets quad0, quad1, ..., and norm0, norm1, ..., the weights of a norm. */
function weightsText(source: StageSource, held: readonly HeldQuad[]): string {
  return `${eachHeld(source, held, ({ name, at }) => `let quad${name} = ${at};`)}
  ${source.norm ? eachHeld(source, held, ({ name }, from) => `let norm${name} = norm[${from}];`) : ""}`;
}

/** Sets v0, v1, ... */
function loadsText(
  source: StageSource,
  held: readonly HeldQuad[],
  { declare, loads }: Arrival,
): string {
  const values = eachHeld(
    source,
    held,
    ({ name }, from) => `${declare ? "" : "var "}v${name} = x[row + ${from}];`,
  );
  return `
  ${declare ? eachHeld(source, held, ({ name }) => declare(`v${name}`, "vec4f")) : ""}${loads(values)}`;
}

function stageBindings({ x, select, norm, keep }: StageSource): Binding[] {
  const bindings: Binding[] = [{ name: "x", type: "vec4f", source: { kind: "value", value: x } }];
  if (norm) {
    const source = { kind: "weight", weight: norm.weight, part: 0 } as const;
    bindings.push({ name: "norm", type: "vec4f", source });
  }
  if (select) bindings.push({ name: "batch", type: "u32", source: { kind: "batch" } });
  if (keep) {
    const source = { kind: "value", value: keep } as const;
    bindings.push({ name: "keep", type: "vec4f", source, writes: true });
  }
  return bindings;
}

/**
 * Squares of a row are added up in the order of a workgroup of this many lanes, so that their sum does not depend on the number of lanes: those of each of
 * its subgroups are a part. A smaller workgroup has a whole number of parts in each subgroup.
 */
export const STAGE_LANES = 512;
const SQUARE_PARTS: number = STAGE_LANES / SUBGROUP;

const normDeclarations = (size: number, exchange: Exchange): string => `
var<workgroup> squares: array<f32, ${SQUARE_PARTS}>;${exchange.sumsDeclarations(size, squaresOfSubgroup(size))}
fn squareOf(v: vec4f) -> f32 { return fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, v.w * v.w))); }`;

/**
 * Normalises a row and stores it. Quants are those of any multiple of the row, but for rounding: so they are stored before the factor is known, by which
 * the row is normalised, and their scales are multiplied by it. Every workgroup computes it again. `isOnce`: a lane holds all of its vectors.
 */
function normalisedText(
  { x, norm, keep }: StageSource,
  { body, finish, own }: Stored,
  size: number,
  exchange: Exchange,
  inRuns: InRuns,
  isOnce: boolean,
): string {
  const quads = x.cols / 4;
  const times = (run: readonly HeldQuad[], factor = ""): string =>
    run.map(({ name }) => `v${name} = v${name} * ${factor}norm${name};`).join(" ");
  const kept = (run: readonly HeldQuad[], factor = ""): string =>
    (keep ? run : [])
      .map(
        ({ name, exists }) =>
          `if (index == 0u && ${exists}) { keep[token * ${quads}u + quad${name}] = v${name}${factor}; }`,
      )
      .join("\n    ");
  const squares = squaresText(own, size, exchange);
  const factor = factorText(norm!, quads, own);
  if (!finish) {
    return `${squares.begin}
  ${inRuns(squares.add)}
  ${squares.end}
  ${factor}
  ${inRuns((run) => `${times(run, "factor * ")} ${kept(run)} ${body(run, false)}`)}`;
  }
  return `${squares.begin}
  ${inRuns((run) => `${squares.add(run)} ${times(run)} ${body(run, true)}`)}
  ${squares.end}
  ${factor}
  ${keep ? inRuns((run) => `${isOnce ? "" : times(run)} ${kept(run, " * factor")}`) : ""}
  ${finish(quads, size)}`;
}

interface SquaresText {
  readonly begin: string;
  add(run: readonly HeldQuad[]): string;
  /** Stores the sum of each part of the row. */
  readonly end: string;
}

/** The parts of a subgroup: several in a smaller workgroup than one of 512 lanes. */
const squaresOfSubgroup = (size: number): number => STAGE_LANES / size;

function squaresText(own: number, size: number, exchange: Exchange): SquaresText {
  const subgroups = size / SUBGROUP;
  const perSubgroup = squaresOfSubgroup(size);
  const each = (text: (part: number) => string): string =>
    Array.from({ length: perSubgroup }, (_, part) => text(part)).join(" ");
  return {
    begin: each((part) => `var square${part} = 0.0;`),
    add: (run) =>
      run
        .map(({ name, exists }) => {
          const square =
            exists === "true" ? `squareOf(v${name})` : `select(0.0, squareOf(v${name}), ${exists})`;
          return `square${Math.floor(name / own) % perSubgroup} += ${square};`;
        })
        .join(" "),
    end: exchange.sums(
      perSubgroup,
      (part) => `square${part}`,
      (part) => `squares[${part} * ${subgroups}u + lane / ${SUBGROUP}u]`,
      size,
    ),
  };
}

/** Sets `factor`, once the squares of all parts are there. */
function factorText({ eps }: NodeOf<"rms_norm">, quads: number, own: number): string {
  const parts = Math.min(SQUARE_PARTS, Math.ceil(quads / (SUBGROUP * own)));
  return `workgroupBarrier();
  let square = ${Array.from({ length: parts }, (_, i) => `squares[${i}]`).join(" + ")};
  let factor = 1.0 / sqrt(square / ${float(quads * 4)} + ${float(eps)});`;
}

interface Stored {
  /**
   * Neighbouring vectors of 4 values that a lane takes at a time. If lanes stored parts of the same vector of `staged`, they would race: on Metal and
   * Direct3D all of it is read and written (https://github.com/gpuweb/gpuweb/issues/2112). So a lane has all of one, or gathers it from its neighbours;
   * these load faster, as neighbouring lanes load neighbouring vectors.
   */
  readonly own: number;
  readonly functions: readonly string[];
  declarations(quads: number): string;
  /** `isExact`: scales are stored exactly, for finish(). */
  body(held: readonly HeldQuad[], isExact: boolean): string;
  /** After a barrier: multiplies exact scales by `factor`, and rounds them; undefined: values are multiplied before they are stored. */
  readonly finish?: (quads: number, size: number) => string;
}

/** The staged form of a row: quants, 16 in a vector, and the scales of blocks. */
export const stagedText = (cols: number, { block }: BlockQuants): string => `
var<workgroup> staged: array<vec4u, ${cols / 16}>;
var<workgroup> scales: array<f32, ${cols / block}>;`;

/** A vector of `staged`: `text` of the words of a lane, and `isOwner`, whether it stores the vector. */
interface Gathered {
  readonly declarations: string;
  text(words: readonly string[]): string;
  readonly isOwner: string;
}

function gathered({ gather }: Exchange, words: number): Gathered {
  if (words === 4) {
    return { declarations: "", text: (all) => `vec4u(${all.join(", ")})`, isOwner: "true" };
  }
  return {
    declarations: gather!("gathered", words),
    text: (all) => `gathered(lane, ${all.join(", ")})`,
    isOwner: `lane % ${4 / words}u == 0u`,
  };
}

/** Eight lanes share a block of 32 values, 32 lanes one of 256; two and 16 of them where they cannot gather. */
function quantText(quants: BlockQuants, exchange: Exchange): Stored {
  const { block } = quants;
  const own = exchange.gather ? Math.max(1, block / 4 / SUBGROUP) : 4;
  const width = block / 4 / own;
  const vector = gathered(exchange, own);
  return {
    own,
    functions: [nearestHalfText, packText],
    declarations: (quads) =>
      `${exchange.reduce("largestOfBlock", width, "max")}${vector.declarations}${stagedText(quads * 4, quants)}`,
    finish: (quads, size) => `
  for (var i = lane; i < ${(quads * 4) / block}u; i += ${size}u) { scales[i] = ${quants.scale("(scales[i] * factor)")}; }`,
    body: (held, isExact) =>
      Array.from({ length: held.length / own }, (_, step) => {
        const mine = held.slice(step * own, (step + 1) * own);
        const largest = mine
          .map(({ name }) => `largestOf(v${name})`)
          .reduce((a, b) => `max(${a}, ${b})`);
        const { name: first, exists } = mine[0]!;
        return `{
    let largest = largestOfBlock(${largest}, lane);
    ${quants.exact}
    let vector = ${vector.text(mine.map(({ name }) => `quantWord(v${name}, inverse)`))};
    if (${exists}) {
      if (${vector.isOwner}) { staged[quad${first} >> 2u] = vector; }
      if (lane % ${width}u == 0u) { scales[quad${first} / ${block / 4}u] = ${isExact ? "exact" : quants.scale("exact")}; }
    }
  }`;
      }).join("\n  "),
  };
}

function halfText(exchange: Exchange): Stored {
  const own = exchange.gather ? 1 : 2;
  const vector = gathered(exchange, own * 2);
  return {
    own,
    functions: [nearestHalfText],
    declarations: (quads) => `${activationHalfText}${vector.declarations}
var<workgroup> staged: array<vec4u, ${quads / 2}>;`,
    body: (held) =>
      Array.from({ length: held.length / own }, (_, step) => {
        const mine = held.slice(step * own, (step + 1) * own);
        const words = mine.flatMap(({ name }) => [
          `packActivations(v${name}.xy)`,
          `packActivations(v${name}.zw)`,
        ]);
        const { name: first, exists } = mine[0]!;
        return `{
    let vector = ${vector.text(words)};
    if (${exists} && ${vector.isOwner}) { staged[quad${first} >> 1u] = vector; }
  }`;
      }).join("\n  "),
  };
}

/** The bits of four floats are a vector. */
const floats: Stored = {
  own: 1,
  functions: [],
  declarations: (quads) => `
var<workgroup> staged: array<vec4u, ${quads}>;`,
  body: (held) =>
    held
      .map(
        ({ name, exists }) => `if (${exists}) { staged[quad${name}] = bitcast<vec4u>(v${name}); }`,
      )
      .join("\n  "),
};
