// The formats of a GPU's KV cache whose blocks hold 32 values in four words of nibbles: q4_0, q4_1, q5_0, q5_1, iq4_nl, with the
// nibbles where ggml has them. The scale has a word of its own as a float, or shares one with the min, as two half floats; a
// word of fifth bits follows.

import { nonlinearValues } from "../../../dtypes/nonlinear-codebook.ts";
import { BEYOND_HALF } from "./halves.ts";
import type { KvFormat } from "./kv-format.ts";
import { scaledRows } from "./kv-rows.ts";

/** The WGSL by which a kernel divides, and rounds a product before a sum. */
export interface StoreArithmetic {
  divide(a: string, b: string): string;
  rounded(product: string): string;
}

export interface EvenNibbles {
  /** The quant that stands for zero; undefined: there is a min. */
  readonly middle?: number;
  readonly hasFifthBits?: boolean;
  /** The largest quant. */
  readonly most: number;
}

export const evenNibbles: Readonly<Record<string, EvenNibbles>> = {
  q4_0: { middle: 8, most: 15 },
  q4_1: { most: 15 },
  q5_0: { middle: 16, hasFifthBits: true, most: 31 },
  q5_1: { hasFifthBits: true, most: 31 },
};

const ofDevice: StoreArithmetic = {
  divide: (a, b) => `${a} / ${b}`,
  rounded: (product) => product,
};

/** Words before the nibbles. */
const headWords = ({ hasFifthBits }: EvenNibbles): number => (hasFifthBits ? 2 : 1);

function evenFormat(type: EvenNibbles): KvFormat {
  const unitWords = headWords(type) + 4;
  const rows = type.middle === undefined ? undefined : scaledRows(4 * (unitWords - 1));
  return {
    unit: 32,
    unitWords,
    beyond: (type.middle ?? 1) * BEYOND_HALF,
    store: evenStore(type, ofDevice),
    load4: evenLoad4(type, {
      scale: (word) => `bitcast<f32>(${word})`,
      both: (word) => `unpack2x16float(${word})`,
    }),
    ...(rows && { rows }),
  };
}

/** WGSL of the scale in a word, and of scale and min as a vec2f. */
interface HeadText {
  scale(word: string): string;
  both(word: string): string;
}

/** KvFormat.load4: quants times the scale, which is exact, and then the min. */
export function evenLoad4(type: EvenNibbles, head: HeadText): KvFormat["load4"] {
  const { middle, hasFifthBits } = type;
  const words = headWords(type) + 4;
  return (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let block = at + (i / 32u) * ${words}u;
  ${nibblesText(name, headWords(type))}${
    hasFifthBits
      ? `
  let fifths = (vec4u(${name}[block + 1u]) >> (vec4u(i % 32u) + vec4u(0u, 1u, 2u, 3u))) & vec4u(1u);`
      : ""
  }
  let quants = vec4f(${hasFifthBits ? "nibbles | (fifths << vec4u(4u))" : "nibbles"});
  ${
    middle === undefined
      ? `let affine = ${head.both(`${name}[block]`)};
  return affine.x * quants + vec4f(affine.y);`
      : `return ${head.scale(`${name}[block]`)} * (quants - vec4f(${middle}.0));`
  }
}`;
}

/** Sets `nibbles: vec4u` of values i ... i + 3 of a block. */
function nibblesText(name: string, head: number): string {
  return `let word = ${name}[block + ${head}u + (i % 16u) / 4u];
  let nibbles = (vec4u(word) >> (vec4u(0u, 8u, 16u, 24u) + vec4u((i & 16u) / 4u))) & vec4u(15u);`;
}

/** KvFormat.store: ggml's quantize_row of the type. */
export function evenStore(type: EvenNibbles, arithmetic: StoreArithmetic): KvFormat["store"] {
  const { middle, hasFifthBits, most } = type;
  const { divide, rounded } = arithmetic;
  const quant = (value: string): string =>
    middle === undefined
      ? `min(${most}u, u32(${rounded(`(${value} - least) * inverse`)} + 0.5))`
      : `min(${most}u, u32(${rounded(`${value} * inverse`)} + ${middle}.5))`;
  return (from, to) => `{
    let at = first + unit * ${headWords(type) + 4}u;
    ${middle === undefined ? rangeText(from) : largestText(from)}
    let scale = ${middle === undefined ? divide("(most - least)", `${most}.0`) : `largest * ${-1 / middle}`};
    var inverse = 0.0;
    if (scale != 0.0) { inverse = ${divide("1.0", "scale")}; }
    ${to}[at] = ${middle === undefined ? "packHalves(vec2f(scale, least))" : "bitcast<u32>(nearestHalf(scale))"};
    ${hasFifthBits ? "var fifths = 0u;" : ""}
    for (var i = 0u; i < 16u; i += 4u) {
      var bytes = 0u;
      for (var j = 0u; j < 4u; j++) {
        let low = ${quant(`${from}[source + i + j]`)};
        let high = ${quant(`${from}[source + i + j + 16u]`)};
        bytes |= ((low & 15u) | ((high & 15u) << 4u)) << (8u * j);${
          hasFifthBits
            ? `
        fifths |= ((low >> 4u) | ((high >> 4u) << 16u)) << (i + j);`
            : ""
        }
      }
      ${to}[at + ${headWords(type)}u + i / 4u] = bytes;
    }
    ${hasFifthBits ? `${to}[at + 1u] = fifths;` : ""}
  }`;
}

/** Sets `largest`: the first value with the largest magnitude, with its sign. */
function largestText(from: string): string {
  return `var largest = 0.0;
    for (var j = 0u; j < 32u; j++) {
      let value = ${from}[source + j];
      if (abs(value) > abs(largest)) { largest = value; }
    }`;
}

/** Sets `least` and `most`. */
function rangeText(from: string): string {
  return `var least = ${from}[source];
    var most = least;
    for (var j = 1u; j < 32u; j++) {
      let value = ${from}[source + j];
      if (value < least) { least = value; }
      if (value > most) { most = value; }
    }`;
}

const codebookWords = [...new Uint32Array(new Uint8Array(nonlinearValues.buffer).slice().buffer)];
/** Halfway between neighbours of the codebook. */
const middles = Array.from(nonlinearValues.subarray(1), (value, i) => {
  return (value + nonlinearValues[i]!) / 2;
});

const codebookText = `vec4u(${codebookWords.map((word) => `${word}u`).join(", ")})`;

const iq4_nl: KvFormat = {
  unit: 32,
  unitWords: 5,
  beyond: 100 * BEYOND_HALF,
  rows: scaledRows(16),
  functions: [
    `
fn nearestNonlinear(value: f32) -> u32 {
  return ${middles.map((middle) => `u32(value >= ${middle.toFixed(1)})`).join(" + ")};
}
fn nonlinear(quant: u32) -> f32 {
  return f32(bitcast<i32>(${codebookText}[quant / 4u] << (24u - 8u * (quant % 4u))) >> 24u);
}`,
  ],
  store: (from, to) => `{
    let at = first + unit * 5u;
    ${largestText(from)}
    var inverse = 0.0;
    if (abs(largest) >= 1e-15) { inverse = 1.0 / (largest / -127.0); }
    var sumQX = 0.0;
    var sumQQ = 0.0;
    var words = vec4u();
    for (var i = 0u; i < 32u; i++) {
      let value = ${from}[source + i];
      let quant = nearestNonlinear(value * inverse);
      let weighted = value * value * nonlinear(quant);
      sumQX += weighted * value;
      sumQQ += weighted * nonlinear(quant);
      words[(i % 16u) / 4u] |= quant << (8u * (i % 4u) + 4u * (i / 16u));
    }
    for (var word = 0u; word < 4u; word++) { ${to}[at + 1u + word] = words[word]; }
    var scale = 0.0;
    if (inverse != 0.0 && sumQQ > 0.0) { scale = sumQX / sumQQ; }
    ${to}[at] = bitcast<u32>(nearestHalf(scale));
  }`,
  load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let block = at + (i / 32u) * 5u;
  ${nibblesText(name, 1)}
  let codebook = ${codebookText};
  let words = vec4u(codebook[nibbles.x / 4u], codebook[nibbles.y / 4u], codebook[nibbles.z / 4u], codebook[nibbles.w / 4u]);
  let bytes = bitcast<vec4i>(words << (vec4u(24u) - vec4u(8u) * (nibbles % vec4u(4u)))) >> vec4u(24u);
  return bitcast<f32>(${name}[block]) * vec4f(bytes);
}`,
};

export const nibbleFormats: Readonly<Record<string, KvFormat>> = {
  ...Object.fromEntries(
    Object.entries(evenNibbles).map(([name, type]) => [name, evenFormat(type)]),
  ),
  iq4_nl,
};
