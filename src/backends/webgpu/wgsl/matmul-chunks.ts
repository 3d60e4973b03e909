// A lane's walk over the chunks of its rows in a matmul of one token (matmul-gemv.ts): its loads, and their times. A chunk's loads wait
// in a slot, several variables for each row, until they are multiplied; then the slot's next chunk is loaded.
//
// Sums are written with fma(): a compiler may round a product and a sum once or twice, and it did so differently in kernels of the same
// text. The bits of a token must not depend on which kernel computed it.

import type { Weight } from "../../../graph/graph.ts";
import type { LaneDot } from "../unpack/unpack.ts";
import type { RecordLoads } from "./record.ts";
import { SUBGROUP } from "./subgroups.ts";

/** The division of rows among subgroups, and the chunks of a row that a lane loads before it uses the first. */
interface ChunkShape {
  readonly rows: number;
  readonly split: number;
  readonly ahead: number;
  /** Lanes of a subgroup. Default: SUBGROUP. */
  readonly width?: number;
}

/** `fn dots`: the dot product of sixteen 8-bit numbers and sixteen others. */
export const dotsText = (packed: boolean): string => `
${packed ? "" : dot4Text}
fn dots(a: vec4u, b: vec4u) -> i32 {
  return ${["x", "y", "z", "w"].map((part) => `${packed ? "dot4I8Packed" : "dot4"}(a.${part}, b.${part})`).join(" + ")};
}`;

const dot4Text = `
fn signed4(word: u32) -> vec4i { return bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u); }
fn dot4(a: u32, b: u32) -> i32 {
  let products = signed4(a) * signed4(b);
  return products.x + products.y + products.z + products.w;
}`;

/** Other names than usual in rowsText(). */
interface RowNames {
  readonly declare?: string;
  readonly name?: string;
  readonly first?: string;
}

/** r0, r1, ...: the first unit of each row of the subgroup; rows beyond the last repeat it. */
export function rowsText(
  rows: number,
  gated: boolean,
  outputs: number,
  units: number,
  { declare = "let ", name = "r", first = "first" }: RowNames = {},
): string {
  return each(rows, (j) => {
    const own = gated ? rows / 2 : rows;
    const output = `min(${first} + ${j % own}u, ${outputs - 1}u)`;
    return `${declare}${name}${j} = (${output}${j >= own ? ` + ${outputs}u` : ""}) * ${units}u;`;
  });
}

/** Loads the first chunks, stages activations, then multiplies chunk by chunk; a later chunk replaces each. */
export function loopText(
  lane: LaneDot,
  weight: Weight,
  { rows, split, ahead, width = SUBGROUP }: ChunkShape,
  staging: string,
  direct: Pick<RecordLoads, "quants" | "scale"> | undefined,
): string {
  const chunks = weight.shape[1]! / lane.columns;
  const stride = width * split;
  const slots = Math.min(ahead, Math.ceil(chunks / stride));
  const names = Object.keys(lane.loads);
  const perLoad = (text: (j: number, name: string) => string): string =>
    each(rows, (j) => names.map((name) => text(j, name)).join(" "));
  const load = (slot: number, j: number, name: string): string =>
    lane.loads[name]!.at(`r${j}`, `at${slot}`);
  const last = `${chunks - 1}u`;
  const multiply = (slot: number): string =>
    chunkText(lane, weight, rows, slot, `c + ${slot * stride}u < ${chunks}u`, direct !== undefined);
  const loadDirect = (slot: number): string => (direct ? directText(lane, slot, direct) : "");
  const sums = each(rows, (j) => `var sum${j} = 0.0;`);
  const first = `
  var c = member${split > 1 ? ` + share * ${width}u` : ""};
  ${each(slots, (slot) => `var at${slot} = min(c + ${slot * stride}u, ${last});`)}
  ${each(slots, (slot) => perLoad((j, name) => `var ${name}${j}_${slot} = ${load(slot, j, name)};`))}
  ${direct ? each(slots, (slot) => `var low_${slot} = vec4u(); var high_${slot} = vec4u(); var scale_${slot} = 0.0; ${loadDirect(slot)}`) : ""}
  ${staging}
  ${sums}`;
  if (slots * stride >= chunks) return `${first}\n  ${each(slots, multiply)}`;
  return `${first}
  for (var start = 0u; start < ${chunks}u; start += ${stride * slots}u) {
    ${each(slots, (slot) => {
      const next = perLoad((j, name) => `${name}${j}_${slot} = ${load(slot, j, name)};`);
      return `${multiply(slot)}
    at${slot} = min(c + ${(slots + slot) * stride}u, ${last});
    ${next}
    ${loadDirect(slot)}`;
    })}
    c += ${stride * slots}u;
  }`;
}

/** Loads the activations beside the chunk in a slot from a record. */
function directText(
  { lowAt, highAt, scaleAt }: LaneDot,
  slot: number,
  { quants, scale }: Pick<RecordLoads, "quants" | "scale">,
): string {
  return `{
      let c = at${slot};
      let lowAt = ${lowAt};
      low_${slot} = ${quants("lowAt")};
      high_${slot} = ${quants(highAt)};
      scale_${slot} = ${scale(`(${scaleAt})`)};
    }`;
}

/** Multiplies the chunk in a slot, number atSLOT of the row, if it exists. */
function chunkText(
  lane: LaneDot,
  weight: Weight,
  rows: number,
  slot: number,
  exists: string,
  isDirect: boolean,
): string {
  const hasLevels = weight.dtype.blockElems > 1;
  const sums = hasLevels
    ? `let sumLow = dots(low, vec4u(0x01010101u));
      let sumHigh = dots(high, vec4u(0x01010101u));
      let scale = ${isDirect ? `scale_${slot}` : `scales[${lane.scaleAt}]`};`
    : "";
  return `if (${exists}) {
      let c = at${slot};
      let lowAt = ${lane.lowAt};
      let low = ${isDirect ? `low_${slot}` : "staged[lowAt]"};
      ${lane.highAt === lane.lowAt ? "" : `let high = ${isDirect ? `high_${slot}` : `staged[${lane.highAt}]`};`}
      ${sums}
      ${each(rows, (j) => {
        const loaded = (name: string) => `${name}${j}_${slot}`;
        const factor = lane.factor?.(loaded, `r${j}`, "c");
        return addText(`sum${j}`, hasLevels, factor, lane.dot(loaded, `r${j}`, "c"));
      })}
    }`;
}

/** Adds a chunk's dot product to a sum: times the `scale` of its activations and the factor of its weights, where there are any. */
export function addText(
  sum: string,
  hasScale: boolean,
  factor: string | undefined,
  dot: string,
): string {
  if (!hasScale) return `${sum} += ${dot};`;
  return `${sum} = fma(scale${factor ? ` * ${factor}` : ""}, ${dot}, ${sum});`;
}

/** The WGSL of a workgroup in each of its rounds, besides going through chunks. */
interface Rounds {
  /** Rounds of all workgroups together. */
  readonly count: number;
  /** WGSL that sets n0, n1, ... to the rows of round `next`. */
  readonly nextRows: string;
  /** WGSL before the first round, after its first loads. */
  readonly before: string;
  /** WGSL that uses the sums of round `index`. */
  readonly finish: string;
  /** WGSL after that, where another round follows: its number is `index`. */
  readonly again: string;
}

/** Chunks of a lane in a row up to which they are no loop, so that no load is wasted. */
const MOST_UNROLLED = 8;

/**
 * A workgroup of a layer kernel (layer.ts) does the work of several, in rounds: number `index`, which is a variable, then each `groups.x` further. The first
 * chunks of the next round are loaded while the last ones of this are multiplied, so that it does not begin by waiting for the memory.
 */
export function roundsText(
  lane: LaneDot,
  weight: Weight,
  { rows, split, ahead }: ChunkShape,
  { count, nextRows, before, finish, again }: Rounds,
): string {
  const chunks = weight.shape[1]! / lane.columns;
  const stride = SUBGROUP * split;
  const most = Math.ceil(chunks / stride);
  const slots = Math.min(ahead, most);
  const isUnrolled = most <= MOST_UNROLLED;
  // In a loop all slots are used equally often; its last steps may have no chunk.
  const steps = isUnrolled ? most : Math.ceil(most / slots) * slots;
  const isWhole = steps * stride === chunks;
  const at = (step: string): string => {
    const chunk = `c + (${step}) * ${stride}u`;
    return isWhole ? `(${chunk})` : `min(${chunk}, ${chunks - 1}u)`;
  };
  const load = (slot: number, row: string, step: string, declare = ""): string =>
    each(rows, (j) =>
      Object.entries(lane.loads)
        .map(
          ([name, { at: from }]) =>
            `${declare}${name}${j}_${slot} = ${from(`${row}${j}`, at(step))};`,
        )
        .join(" "),
    );
  const multiply = (slot: number, step: string, isLast: boolean): string => {
    const exists = isLast && !isWhole ? `c + (${step}) * ${stride}u < ${chunks}u` : "true";
    return `{ let at${slot} = ${at(step)};
      ${chunkText(lane, weight, rows, slot, exists, false)} }`;
  };
  const loadNext = (slot: number): string => `if (hasNext) { ${load(slot, "n", `${slot}u`)} }`;
  const whole = `let next = index + groups.x;
    let hasNext = next < ${count}u;
    ${nextRows}`;
  const round = isUnrolled
    ? `${whole}
    ${each(most, (step) => {
      const slot = step % slots;
      const later = step + slots;
      return `${multiply(slot, `${step}u`, step === most - 1)}
    ${later < most ? load(slot, "r", `${later}u`) : loadNext(slot)}`;
    })}`
    : `for (var step = 0u; step < ${steps - slots}u; step += ${slots}u) {
      ${each(slots, (slot) => `${multiply(slot, `step + ${slot}u`, false)}\n      ${load(slot, "r", `step + ${slots + slot}u`)}`)}
    }
    ${whole}
    ${each(slots, (slot) => `${multiply(slot, `${steps - slots + slot}u`, true)}\n    ${loadNext(slot)}`)}`;
  return `
  let c = member + share * ${SUBGROUP}u;
  ${each(slots, (slot) => load(slot, "r", `${slot}u`, "var "))}
  ${before}
  loop {
    ${each(rows, (j) => `var sum${j} = 0.0;`)}
    ${round}
    ${finish}
    workgroupBarrier();
    if (!hasNext) { break; }
    index = next;
    ${each(rows, (j) => `r${j} = n${j};`)}
    ${again}
  }`;
}

/** The same text for 0, 1, 2, ...: arrays indexed by a variable are slow. */
export function each(count: number, text: (j: number) => string): string {
  return Array.from({ length: count }, (_, j) => text(j)).join("\n  ");
}
