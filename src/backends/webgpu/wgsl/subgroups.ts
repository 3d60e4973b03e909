// WGSL by which neighbouring lanes of a workgroup exchange values: through subgroups where they are 32 lanes wide, through
// workgroup memory otherwise. Whole workgroups must execute it, in uniform control flow. Workgroups have one dimension, and
// subgroups are consecutive lanes.

/** The WGSL by which lanes exchange values. */
export interface Exchange {
  /** Extensions that a kernel must enable for it. */
  readonly enables: readonly string[];
  /** Other subgroups of the workgroup need not take part: there is no barrier. */
  readonly bySubgroup: boolean;
  /** Workgroup memory, for `size` lanes. */
  declarations(size: number): string;
  /** `fn NAME(value: f32, lane: u32) -> f32` for subgroups of `width` lanes (a power of two, at most 32). */
  reduce(name: string, width: number, combine: Combine): string;
  /** `fn NAME(values: vec4f, lane: u32) -> vec4f`: four sums at once, each in the order of reduce(); with its workgroup memory. */
  sumFour(name: string, width: number, size: number): string;
  /** `fn NAME(value: f32, lane: u32) -> vec4f`: the values of every second lane of the eight that the lane is one of. */
  collect(name: string): string;
  /**
   * `fn NAME(lane: u32, w0: u32, ...) -> vec4u` for `words` words of each lane, 1 or 2: those of neighbouring lanes as one vector, in order.
   * undefined: a lane has to have all four.
   */
  readonly gather?: (name: string, words: number) => string;
  /** Workgroup memory that sums() needs, besides. */
  sumsDeclarations(size: number, count: number): string;
  /**
   * WGSL that adds up `count` values (a power of two) of each lane over its subgroup, in the order of reduce(), and stores the
   * totals: value(i) is the name of a variable, to(index) where total `index` (WGSL) of the subgroup goes. `width`: lanes of a subgroup, 8 to
   * 32; default: 32.
   */
  sums(
    count: number,
    value: (i: number) => string,
    to: (index: string) => string,
    size: number,
    width?: number,
  ): string;
}

export type Combine = "sum" | "max";

const combined: Readonly<Record<Combine, (a: string, b: string) => string>> = {
  sum: (a, b) => `${a} + ${b}`,
  max: (a, b) => `max(${a}, ${b})`,
};

const bySubgroups: Exchange = {
  enables: ["subgroups"],
  bySubgroup: true,
  declarations: () => "",
  reduce: (name, width, combine) => {
    const steps: string[] = [];
    for (let mask = 1; mask < width; mask *= 2) {
      steps.push(`all = ${combined[combine]("all", `subgroupShuffleXor(all, ${mask}u)`)};`);
    }
    return `
fn ${name}(value: f32, lane: u32) -> f32 {
  var all = value;
  ${steps.join("\n  ")}
  return all;
}`;
  },
  sumFour: (name, width) => {
    const steps: string[] = [];
    for (let mask = 1; mask < width; mask *= 2) {
      steps.push(`sums += subgroupShuffleXor(sums, ${mask}u);`);
    }
    return `
fn ${name}(values: vec4f, lane: u32) -> vec4f {
  var sums = values;
  ${steps.join("\n  ")}
  return sums;
}`;
  },
  collect: (name) => `
fn ${name}(value: f32, lane: u32) -> vec4f {
  let low = select(value, subgroupShuffleXor(value, 2u), (lane & 2u) != 0u);
  let high = select(subgroupShuffleXor(value, 2u), value, (lane & 2u) != 0u);
  let pair = vec2f(low, high);
  let other = vec2f(subgroupShuffleXor(low, 4u), subgroupShuffleXor(high, 4u));
  return select(vec4f(pair, other), vec4f(other, pair), (lane & 4u) != 0u);
}`,
  gather: (name, words) => {
    const steps: string[] = [];
    for (let count = words; count < 4; count *= 2) {
      const mask = count / words;
      const own = Array.from({ length: count }, (_, i) => i);
      steps.push(
        `let isUpper${count} = (lane & ${mask}u) != 0u;`,
        ...own.map((i) => `let other${count}_${i} = subgroupShuffleXor(w${i}, ${mask}u);`),
        ...own.map((i) => `w${i + count} = select(other${count}_${i}, w${i}, isUpper${count});`),
        ...own.map((i) => `w${i} = select(w${i}, other${count}_${i}, isUpper${count});`),
      );
    }
    const own = Array.from({ length: words }, (_, i) => `own${i}`);
    const rest = [0, 1, 2, 3].map((i) => `var w${i} = ${own[i] ?? "0u"};`);
    return `
fn ${name}(lane: u32, ${own.map((word) => `${word}: u32`).join(", ")}) -> vec4u {
  ${rest.join(" ")}
  ${steps.join("\n  ")}
  return vec4u(w0, w1, w2, w3);
}`;
  },
  sumsDeclarations: () => "",
  // Each step halves the values of a lane: it keeps one half, and its neighbour the other.
  sums: (count, value, to, _size, width = SUBGROUP) => {
    const steps: string[] = [];
    let left = count;
    let index = "0u";
    let isOwn = "true";
    for (let mask = 1; mask < width; mask *= 2) {
      if (left === 1) {
        steps.push(`${value(0)} += subgroupShuffleXor(${value(0)}, ${mask}u);`);
        isOwn += ` && (lane & ${mask}u) == 0u`;
        continue;
      }
      left /= 2;
      for (let i = 0; i < left; i++) {
        const [low, high] = [value(i), value(i + left)];
        const isUpper = `(lane & ${mask}u) != 0u`;
        steps.push(
          `{ let sent = select(${high}, ${low}, ${isUpper}); ${low} = select(${low}, ${high}, ${isUpper}) + subgroupShuffleXor(sent, ${mask}u); }`,
        );
      }
      index += ` + select(0u, ${left}u, (lane & ${mask}u) != 0u)`;
    }
    const stores = Array.from(
      { length: left },
      (_, i) => `${to(`(${index} + ${i}u)`)} = ${value(i)};`,
    );
    return `${steps.join("\n  ")}
  if (${isOwn}) { ${stores.join(" ")} }`;
  },
};

/** Every lane of a subgroup adds in the same order, so that all of them get the same number. */
const byMemory: Exchange = {
  enables: [],
  bySubgroup: false,
  declarations: (size) => `
var<workgroup> exchanged: array<f32, ${size}>;`,
  reduce: (name, width, combine) => `
fn ${name}(value: f32, lane: u32) -> f32 {
  workgroupBarrier();
  exchanged[lane] = value;
  workgroupBarrier();
  let first = lane - lane % ${width}u;
  var all = exchanged[first];
  for (var i = 1u; i < ${width}u; i++) { all = ${combined[combine]("all", "exchanged[first + i]")}; }
  return all;
}`,
  sumFour: (name, width, size) => `
var<workgroup> exchangedFour: array<vec4f, ${size}>;
fn ${name}(values: vec4f, lane: u32) -> vec4f {
  workgroupBarrier();
  exchangedFour[lane] = values;
  workgroupBarrier();
  let first = lane - lane % ${width}u;
  var sums = exchangedFour[first];
  for (var i = 1u; i < ${width}u; i++) { sums += exchangedFour[first + i]; }
  return sums;
}`,
  collect: (name) => `
fn ${name}(value: f32, lane: u32) -> vec4f {
  workgroupBarrier();
  exchanged[lane] = value;
  workgroupBarrier();
  let first = lane - lane % 8u;
  return vec4f(exchanged[first], exchanged[first + 2u], exchanged[first + 4u], exchanged[first + 6u]);
}`,
  sumsDeclarations: (size, count) => `
var<workgroup> spread: array<f32, ${size * Math.min(count, SPREAD)}>; // [value][lane]`,
  sums: (count, value, to, size, width = SUBGROUP) =>
    Array.from({ length: Math.ceil(count / SPREAD) }, (_, piece) => {
      const from = piece * SPREAD;
      const many = Math.min(SPREAD, count - from);
      return `
  ${Array.from({ length: many }, (_, i) => `spread[${i * size}u + lane] = ${value(from + i)};`).join("\n  ")}
  workgroupBarrier();
  if (lane % ${width}u < ${many}u) {
    let own = (lane % ${width}u) * ${size}u + lane - lane % ${width}u;
    var all = spread[own];
    for (var other = 1u; other < ${width}u; other++) { all += spread[own + other]; }
    ${to(`(lane % ${width}u + ${from}u)`)} = all;
  }
  workgroupBarrier();`;
    }).join("\n"),
};

/** Values of a lane that sums() has in workgroup memory at a time: 8 KiB of 256 lanes. */
const SPREAD = 8;

/** Lanes of a subgroup, at most. */
export const SUBGROUP = 32;

/**
 * Through subgroups only where none is smaller than a subgroup, as the device says. A device that says so is tried when it is opened, and has
 * no subgroups if its shuffles are wrong (../subgroup-probe.ts). Known facts about others:
 * - Intel's sizes vary from shader to shader, from 8 to 32, so they go through workgroup memory. One driver says 32 and fills 8 lanes
 *   (https://github.com/ggml-org/llama.cpp/issues/17389). The probe finds that only if the driver treats its kernel as it treats the others.
 * - WebKit says 32 of every GPU with Metal 3, and those of some Intel and AMD Macs have 16 or 64 (https://github.com/WebKit/WebKit/pull/68713).
 * - AMD has 32 or 64, some phones 128 (https://github.com/ggml-org/llama.cpp/pull/23040): a subgroup is then a part of a subgroup, and shuffles stay within it.
 */
export function exchangeFor(subgroups: { min: number; max: number } | undefined): Exchange {
  return subgroups && subgroups.min >= SUBGROUP ? bySubgroups : byMemory;
}
