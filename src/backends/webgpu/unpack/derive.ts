// WGSL unpacks derived from the description of a type's blocks (src/dtypes/block.ts), for types without hand-written ones. Each
// value's bits are read by their addresses, which is slower than the code of the types in table.ts, and gives the same values.

import type {
  Block,
  BlockCodebook,
  BlockFloat,
  FloatBlock,
  Numbers,
  PartNumbers,
  Piece,
  QuantBlock,
  Strides,
} from "../../../dtypes/block.ts";
import type { BlockUnpack, ElementUnpack, Unpack } from "./unpack.ts";

const elements: Readonly<Record<FloatBlock["format"], ElementUnpack>> = {
  f32: { kind: "element", body: "return bitcast<f32>(weights[i]);" },
  f16: { kind: "element", body: "return halfAt(i * 2u);" },
  bf16: { kind: "element", body: "return bitcast<f32>(u16At(i * 2u) << 16u);" },
};

/** The same object for the same block, so that its codebook is uploaded once. */
const derived = new WeakMap<Block, Unpack>();

export function deriveUnpack(block: Block): Unpack {
  const known = derived.get(block);
  if (known) return known;
  const made = block.kind === "floats" ? elements[block.format] : blockUnpack(block);
  derived.set(block, made);
  return made;
}

function blockUnpack(block: QuantBlock): BlockUnpack {
  return {
    kind: "block",
    body: `
  return vec4f(blockValue(b, i), blockValue(b, i + 1u), blockValue(b, i + 2u), blockValue(b, i + 3u));`,
    tables: functionsOf(block),
    ...(block.codebook && { book: packedBook(block.codebook) }),
  };
}

/** Four integers of a codebook in a word, as signed bytes. */
function packedBook({ points }: BlockCodebook): () => Uint32Array {
  let words: Uint32Array | undefined;
  return () => {
    if (words) return words;
    const all = points();
    const bytes = new Int8Array(Math.ceil(all.length / 4) * 4);
    bytes.set(Array.from(all));
    words = new Uint32Array(bytes.buffer);
    return words;
  };
}

const fieldText = `
fn fieldAt(b: u32, bit: u32, mask: u32) -> u32 {
  return (wordAt(b + (bit >> 3u)) >> (bit & 7u)) & mask;
}`;

function functionsOf(block: QuantBlock): string {
  const { scales, mins, quants, signs, shift, scale, min } = block;
  const numbers = { quant: quants, smallScale: scales, smallMin: mins, sign: signs, shift };
  const parts = Object.entries(numbers).flatMap(([name, each]) =>
    each ? [numberFunction(`${name}Number`, each.pieces)] : [],
  );
  const floats = { scale, min };
  const headers = Object.entries(floats).flatMap(([name, each]) =>
    each ? [floatFunction(name, each)] : [],
  );
  return `${fieldText}${parts.join("")}${headers.join("")}${valueFunction(block)}`;
}

/** A function for number j of a field, put together from its pieces. */
function numberFunction(name: string, pieces: readonly Piece[]): string {
  return `
fn ${name}(b: u32, j: u32) -> u32 {
  var number = 0u;${pieces.map(pieceText).join("")}
  return number;
}`;
}

function pieceText({ bits, at, strides = [], to = 0, only, digit }: Piece): string {
  const index = only ? `(j - ${only[0]}u)` : "j";
  const field =
    bits === 32
      ? `wordAt(b + ${at / 8}u)`
      : `fieldAt(b, ${at}u${stridesText(strides, index)}, ${2 ** bits - 1}u)`;
  const number = digit ? digitText(field, `0u${stridesText(digit, index)}`) : field;
  const text = `number |= ${to === 0 ? number : `${number} << ${to}u`};`;
  return `
  ${only ? `if (j >= ${only[0]}u && j < ${only[1]}u) { ${text} }` : text}`;
}

/** The offset of an index: each of its digits times a stride. */
function stridesText(strides: Strides, index: string): string {
  let below = 1;
  return strides
    .map(([count, bits]) => {
      const digit = `((${index} / ${below}u) % ${count}u)`;
      below *= count;
      return bits === 0 ? "" : ` + ${digit} * ${bits}u`;
    })
    .join("");
}

/** Digit n of a byte of base-3 digits. */
function digitText(byte: string, n: string): string {
  return `((((${byte} * array<u32, 5>(1u, 3u, 9u, 27u, 81u)[${n}]) & 255u) * 3u) >> 8u)`;
}

const floatBodies: Readonly<Record<BlockFloat["format"], string>> = {
  f16: "return half(number);",
  f32: "return bitcast<f32>(number);",
  // Subnormal for 0 and 1.
  e8m0_half:
    "return bitcast<f32>(select((number - 1u) << 23u, 0x200000u << (number & 1u), number < 2u));",
};

function floatFunction(name: string, { format, pieces }: BlockFloat): string {
  return `${numberFunction(`${name}Bits`, pieces)}
fn ${name}Of(b: u32) -> f32 {
  let number = ${name}Bits(b, 0u);
  ${floatBodies[format]}
}`;
}

function indexText({ per }: Numbers): string {
  return per === 1 ? "i" : `i / ${per}u`;
}

/** "" where the type has none. */
function partText(name: string, part: PartNumbers | undefined): string {
  if (!part) return "";
  const { times = 1, plus = 0, isSigned } = part;
  const number = numberText(`${name}(b, ${indexText(part)})`, isSigned);
  return ` * (${number} * ${floatText(times)} + ${floatText(plus)})`;
}

function numberText(number: string, isSigned = false): string {
  return isSigned ? `f32(bitcast<i32>(${number} << 24u) >> 24u)` : `f32(${number})`;
}

function floatText(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

function valueFunction(block: QuantBlock): string {
  const { scales, min, mins } = block;
  const value = `scaleOf(b)${partText("smallScaleNumber", scales)} * q`;
  const added = min && `minOf(b)${partText("smallMinNumber", mins)}`;
  const sum = added ? `${value} ${min.isNegative ? "-" : "+"} ${added}` : value;
  return `
fn blockValue(b: u32, i: u32) -> f32 {
  ${quantLines(block).join("\n  ")}
  return ${sum};
}`;
}

/** Lines that compute `q`, which is multiplied by the scale. */
function quantLines({ quants, offset = 0, codebook, signs, shift }: QuantBlock): string[] {
  const number = `quantNumber(b, ${indexText(quants)})`;
  const lines = codebook
    ? [
        `let at = ${number} * ${codebook.size}u + i % ${codebook.size}u;`,
        `var q = ${numberText("(book[at >> 2u] >> ((at & 3u) * 8u))", true)};`,
      ]
    : [`var q = ${numberText(number, quants.isSigned)} + ${floatText(offset)};`];
  if (signs) {
    const parity = signs.isEven ? " | ((countOneBits(bits) & 1u) << 7u)" : "";
    lines.push(`let bits = signNumber(b, ${indexText(signs)});`);
    lines.push(`if ((((bits${parity}) >> (i % 8u)) & 1u) != 0u) { q = -q; }`);
  }
  if (shift) {
    const by = floatText(shift.by);
    lines.push(`q += select(${by}, -${by}, shiftNumber(b, ${indexText(shift)}) != 0u);`);
  }
  return lines;
}
