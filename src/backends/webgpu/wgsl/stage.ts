// Stages the activations of a matmul (matmul-few.ts) in workgroup memory: normalised, where a norm is fused with it, and
// rounded to DType.activation: 8-bit quants with a scale for each block, or half floats.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Arrival, noArrival } from "./arrival.ts";
import { activationHalfText, nearestHalfText } from "./halves.ts";
import { type Binding, float } from "./kernel.ts";
import { type BlockQuants, blockQuantsOf, packText } from "./round-activations.ts";
import { type Exchange, TEAM } from "./teams.ts";

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
  /** Fills `staged` (vec4u) and `scales`; ends with a barrier. Reads `token` and `index`, the number of the workgroup. */
  readonly body: string;
}

/** Bytes of workgroup memory that staging needs. */
export function stageBytes({ dtype, shape }: Weight): number {
  const cols = shape[1]!;
  const quants = blockQuantsOf(dtype.activation);
  return (quants ? cols + (cols / quants.block) * 4 : cols * 2) + 1024;
}

export function stageText(
  source: StageSource,
  weight: Weight,
  size: number,
  exchange: Exchange,
  batch: BatchLayout,
  arrival: Arrival = noArrival,
): StageText {
  const { x, select, norm, keep } = source;
  const quads = x.cols / 4;
  const quants = blockQuantsOf(weight.dtype.activation);
  const stored = quants ? quantText(quants, exchange) : halfText(exchange);
  const runs = runsOf(heldQuads(quads, size, stored.own));
  const load = (held: readonly HeldQuad[]): string => loadsText(source, held, arrival);
  const isOnce = runs.length === 1;
  return {
    bindings: stageBindings(source),
    functions: stored.functions,
    declarations: `${norm ? normDeclarations(size, exchange) : ""}${stored.declarations(quads)}`,
    body: `
  let row = ${select ? `batch[${batch.outputRows}u + token]` : "token"} * ${quads}u;
  ${isOnce ? load(runs[0]!) : ""}
  ${norm ? factorText(norm, runs, isOnce ? () => "" : load, quads, size) : ""}
  ${runs
    .map(
      (held) => `{
    ${isOnce ? "" : load(held)}
    ${norm ? held.map(({ name }) => `v${name} = v${name} * factor * norm${name};`).join(" ") : ""}
    ${keep ? held.map(({ name, exists }) => `if (index == 0u && ${exists}) { keep[token * ${quads}u + quad${name}] = v${name}; }`).join("\n    ") : ""}
    ${stored.body(held)}
  }`,
    )
    .join("\n  ")}
  workgroupBarrier();`,
  };
}

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

/** What is loaded at once. */
function runsOf(held: readonly HeldQuad[]): (readonly HeldQuad[])[] {
  return Array.from({ length: Math.ceil(held.length / MOST_HELD) }, (_, i) =>
    held.slice(i * MOST_HELD, (i + 1) * MOST_HELD),
  );
}

/** Sets v0, v1, ... */
function loadsText(
  { x, norm }: StageSource,
  held: readonly HeldQuad[],
  { declare, loads }: Arrival,
): string {
  const last = x.cols / 4 - 1;
  const each = (text: (quad: HeldQuad, from: string) => string): string =>
    held
      .map((quad) => {
        const from =
          quad.exists === "true" ? `quad${quad.name}` : `min(quad${quad.name}, ${last}u)`;
        return text(quad, from);
      })
      .join(" ");
  const places = each(({ name, at }) => `let quad${name} = ${at};`);
  const values = each(({ name }, from) => `${declare ? "" : "var "}v${name} = x[row + ${from}];`);
  return `${places}
  ${declare ? each(({ name }) => declare(`v${name}`, "vec4f")) : ""}${loads(values)}
  ${norm ? each(({ name }, from) => `let norm${name} = norm[${from}];`) : ""}`;
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

const normDeclarations = (size: number, exchange: Exchange): string => `
var<workgroup> squares: array<f32, ${size / TEAM}>;${exchange.reduce("sumOfTeam", TEAM, "sum")}`;

/** Sets `factor`, by which a row is normalised; every workgroup computes it again. */
function factorText(
  { eps }: NodeOf<"rms_norm">,
  runs: readonly (readonly HeldQuad[])[],
  load: (held: readonly HeldQuad[]) => string,
  quads: number,
  size: number,
): string {
  const teams = size / TEAM;
  const square = ({ name, exists }: HeldQuad): string =>
    exists === "true"
      ? `dot(v${name}, v${name})`
      : `select(0.0, dot(v${name}, v${name}), ${exists})`;
  return `
  var square = 0.0;
  ${runs
    .map(
      (held) => `{
    ${load(held)}
    ${held.map((quad) => `square += ${square(quad)};`).join(" ")}
  }`,
    )
    .join("\n  ")}
  square = sumOfTeam(square, lane);
  if (lane % ${TEAM}u == 0u) { squares[lane / ${TEAM}u] = square; }
  workgroupBarrier();
  square = ${Array.from({ length: teams }, (_, i) => `squares[${i}]`).join(" + ")};
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
  body(held: readonly HeldQuad[]): string;
}

/** What a row is staged as: quants, 16 in a vector, and the scales of blocks. */
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
  const own = exchange.gather ? Math.max(1, block / 4 / TEAM) : 4;
  const width = block / 4 / own;
  const vector = gathered(exchange, own);
  return {
    own,
    functions: [nearestHalfText, packText],
    declarations: (
      quads,
    ) => `${exchange.reduce("largestOfBlock", width, "max")}${vector.declarations}${stagedText(quads * 4, quants)}
fn quantsOf(values: vec4f, inverse: f32) -> vec4f { ${quants.round} }`,
    body: (held) =>
      Array.from({ length: held.length / own }, (_, step) => {
        const mine = held.slice(step * own, (step + 1) * own);
        const largest = mine
          .map(({ name }) => `largestOf(v${name})`)
          .reduce((a, b) => `max(${a}, ${b})`);
        const { name: first, exists } = mine[0]!;
        return `{
    let largest = largestOfBlock(${largest}, lane);
    ${quants.scale}
    let vector = ${vector.text(mine.map(({ name }) => `packed(quantsOf(v${name}, inverse))`))};
    if (${exists}) {
      if (${vector.isOwner}) { staged[quad${first} >> 2u] = vector; }
      if (lane % ${width}u == 0u) { scales[quad${first} / ${block / 4}u] = scale; }
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
