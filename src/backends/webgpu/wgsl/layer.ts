// A layer kernel: several kernels of one token, one after the other, in one dispatch. ../layers.ts says which; here is the text. Each
// kernel becomes a function; the workgroups share, alternately, the calls for all workgroups that the kernel would have had by itself.
// So sums have the same order, and results the same bits, as in dispatches of their own.
//
// Between two kernels all workgroups wait for each other (a grid barrier). WGSL has no order between a word that says "done" and the
// words of the results, so that each result says itself whether it is there: results are exchanged as atomic words, of which 0 means
// "not yet" (a float is stored inverted, a word of a record (record.ts) xor 0x80808080, and neither as 0). A workgroup that finds a 0
// loads again. The barrier only saves most of these loads.
//
//   exchange: [failed, turn, ...][region 0][region 1]     a region: [arrivals of each kernel][results]
//
// Dispatches alternate between the regions. Each sets the words of the other region to 0, for the dispatch after it; its last workgroup sets
// `turn`, the number of layer kernels so far.
//
// WebGPU does not promise that all workgroups run at the same time. So waiting has a time-out: a workgroup that has waited for too long
// sets `failed`, and no workgroup waits any more, in this dispatch and in all later ones. Results are wrong then: the host sees `failed`
// (../webgpu.ts).

import type { Binding, Grid, Kernel, KernelSpec } from "./kernel.ts";
import { makeKernel } from "./kernel.ts";

/** The replacement of a kernel's own binding in the layer kernel. */
export type Place =
  /** Another binding, of the same type. */
  | { readonly kind: "plain"; readonly name: string }
  /** So many words of a region (whole units), from this one on; `also`: writes go to that binding of words, too. */
  | {
      readonly kind: "exchanged";
      readonly word: number;
      readonly words: number;
      readonly also?: string;
    }
  /** Words of a region, from this one on, which the kernel itself uses as atomic words. */
  | { readonly kind: "words"; readonly word: number }
  /** A binding of words, which several kernels read and write. */
  | { readonly kind: "bound"; readonly name: string };

/** A kernel of a layer kernel. */
export interface LayerPart {
  readonly spec: KernelSpec;
  /** By the name of the binding. */
  readonly places: ReadonlyMap<string, Place>;
  /** Kernels from the first on that must be done before it loads exchanged words. */
  readonly after: number;
}

export interface LayerShape {
  /** Workgroups, which must all run at the same time. */
  readonly groups: number;
  /** The number of polls by which a workgroup waits. */
  readonly polls: number;
  /** Words of a region. */
  readonly regionWords: number;
}

/** The elements of values that pass between kernels: their bits, since a float may not keep those of quants. */
export const WORD = "u32";

/**
 * Words that a lane loads at most from neighbouring addresses (stage.ts). Word i of a result is word i / UNIT of part i % UNIT, so that the
 * loads of lanes at a time are neighbours: an atomic load is not kept for the next one, and each would fetch 32 bytes for every lane.
 */
export const UNIT = 16;

/** Words before the regions; the first says that waiting has failed. */
export const EXCHANGE_HEAD = 64;
/** Words between the arrivals of two kernels: a cache line. */
const LINE = 32;

/** Words of a region before the results of `kernels` kernels. */
export function arrivalWords(kernels: number): number {
  return kernels * LINE;
}

export function layerKernel(
  parts: readonly LayerPart[],
  bindings: readonly Binding[],
  shape: LayerShape,
): Kernel {
  const specs = parts.map(({ spec }) => spec);
  const { size = 0, rows } = specs[0]!;
  const { groups } = shape;
  const texts = parts.map((part, i) => partText(part, i));
  return makeKernel({
    name: `layer of ${specs.length}: ${specs.map(({ name }) => name).join(", ")}`,
    bindings,
    enables: [...new Set(specs.flatMap(({ enables = [] }) => enables))],
    quiet: [...new Set(specs.flatMap(({ quiet = [] }) => quiet))],
    size,
    declarations: `${exchangeText}
${[...workgroupVariables(specs)].map(([name, { type, length }]) => `var<workgroup> ${name}: array<${type}, ${length}>;`).join("\n")}
${texts.join("\n")}`,
    rows,
    maxRows: 1,
    sameBits: true,
    grid: () => [groups, 1, 1],
    body: `
  count = groups.x;
  turn = atomicLoad(&exchange[1]);
  base = ${EXCHANGE_HEAD}u + (turn & 1u) * ${shape.regionWords}u;
  patience = select(${shape.polls}u, 0u, atomicLoad(&exchange[0]) != 0u);
  ${callText(parts[0]!, 0)}
  ${arriveText(0, parts)}
  // While the others are still busy.
  let other = ${EXCHANGE_HEAD}u + (1u - (turn & 1u)) * ${shape.regionWords}u;
  for (var i = group.x * ${size}u + lane; i < ${shape.regionWords}u; i += groups.x * ${size}u) {
    atomicStore(&exchange[other + i], 0u);
  }
  ${parts
    .slice(1)
    .map((part, i) => {
      return `${prefetchingText(parts, i + 1, groups)}${callText(part, i + 1)}\n  ${arriveText(i + 1, parts)}`;
    })
    .join("\n  ")}
  if (all(prefetched == vec4u(0x9e3779b9u))) { atomicMax(&exchange[2], 1u); } // which nobody reads`,
  });
}

const exchangeText = `
var<private> count: u32; // of workgroups
var<private> turn: u32;
var<private> base: u32; // of the region of this turn
var<private> before: u32; // where those arrive that waitForOthers() waits for; 0: nobody
var<private> patience: u32;
var<private> missing: bool;
var<private> prefetched: vec4u; // prefetch.ts
fn word(at: u32) -> u32 {
  let bits = atomicLoad(&exchange[base + at]);
  if (bits == 0u) { missing = true; }
  return bits;
}
fn floatWord(at: u32) -> f32 { return bitcast<f32>(~word(at)); }
fn setFloatWord(at: u32, value: f32) { atomicStore(&exchange[base + at], max(~bitcast<u32>(value), 1u)); }
fn recordWord(at: u32) -> u32 { return word(at) ^ 0x80808080u; }
fn setRecordWord(at: u32, value: u32) { atomicStore(&exchange[base + at], max(value ^ 0x80808080u, 1u)); }
fn giveUp() {
  patience = 0u;
  atomicStore(&exchange[0], 1u);
}
fn arrived() -> bool {
  if (!missing) { return true; }
  missing = false;
  if (patience == 0u) { return true; }
  patience -= 1u;
  if (patience == 0u || atomicLoad(&exchange[0]) != 0u) { giveUp(); }
  return false;
}
fn waitForOthers(lane: u32) {
  if (lane == 0u && before != 0u) {
    while (patience > 0u && atomicLoad(&exchange[before]) < count) {
      patience -= 1u;
      if (patience == 0u || ((patience & 1023u) == 0u && atomicLoad(&exchange[0]) != 0u)) { giveUp(); }
    }
  }
  workgroupBarrier();
}`;

/** Says that this workgroup is done with a kernel. The last to be done with all of them ends the turn. */
function arriveText(i: number, parts: readonly LayerPart[]): string {
  const arrive = `atomicAdd(&exchange[base + ${i * LINE}u], 1u)`;
  if (i < parts.length - 1) return `if (lane == 0u) { ${arrive}; }`;
  return `if (lane == 0u && ${arrive} == groups.x - 1u) { atomicStore(&exchange[1], turn + 1u); }`;
}

/** Calls a kernel for the workgroups that it would have. */
function callText({ spec, after }: LayerPart, i: number): string {
  const [x, y, z] = spec.grid(1);
  const before = after > 0 ? `base + ${(after - 1) * LINE}u` : "0u";
  const text = spec.rounds
    ? `if (group.x < ${spec.rounds}u) { kernel_k${i}(group, groups, lane); }`
    : `for (var index = group.x; index < ${x * y * z}u; index += groups.x) {
    kernel_k${i}(${gridText([x, y, z])}, vec3u(${x}u, ${y}u, ${z}u), lane);
    workgroupBarrier();
  }`;
  return `before = ${before};
  ${text}`;
}

/** Before kernel `i`: workgroups that had nothing to do in the one before it, which is attention, prefetch keys and values, and weights of the one after it. */
function prefetchingText(parts: readonly LayerPart[], i: number, groups: number): string {
  const [{ busy }, after] = [parts[i - 1]!.spec, parts[i + 1]?.spec];
  if (busy === undefined || !after?.rounds || after.rounds <= groups) return "";
  return `if (group.x >= ${busy}u) {
    prefetched = prefetchCache_k${i - 1}(${busy}u, group, lane) + prefetch_k${i + 1}(group, groups, lane);
  }
  `;
}

function gridText([x, y]: Grid): string {
  return `vec3u(index % ${x}u, (index / ${x}u) % ${y}u, index / ${x * y}u)`;
}

interface WorkgroupVariable {
  readonly type: string;
  readonly length: number;
}

const workgroupPattern = /var<workgroup>\s+(\w+)\s*:\s*array<(\w+),\s*(\d+)>\s*;/g;
const elementBytes: Readonly<Record<string, number>> = {
  ...{ f32: 4, u32: 4, i32: 4, vec2f: 8, vec4f: 16, vec4u: 16 },
};

/** Kernels that call a variable alike share it. */
function workgroupVariables(specs: readonly KernelSpec[]): Map<string, WorkgroupVariable> {
  const found = new Map<string, WorkgroupVariable>();
  for (const { declarations = "" } of specs) {
    for (const [, name, type, length] of declarations.matchAll(workgroupPattern)) {
      const shared = sharedName(name!, type!);
      const most = Math.max(found.get(shared)?.length ?? 0, Number(length));
      found.set(shared, { type: type!, length: most });
    }
  }
  return found;
}

/** Bytes of workgroup memory that these kernels need as one; no end of them where a variable has another type. */
export function workgroupBytes(specs: readonly KernelSpec[]): number {
  const variables = [...workgroupVariables(specs).values()];
  return variables.reduce(
    (sum, { type, length }) => sum + (elementBytes[type] ?? Infinity) * length,
    0,
  );
}

const sharedName = (name: string, type: string): string => `${name}_${type}`;

/** The functions of a kernel, its body as one of them, with names that no other kernel has. */
function partText({ spec, places }: LayerPart, i: number): string {
  const { declarations = "", body, bindings } = spec;
  const renamed = new Map<string, string>();
  const code = withoutComments(
    `${declarations}
fn kernel(group: vec3u, groups: vec3u, lane: u32) {${body}
}`,
  );
  for (const [, name] of code.matchAll(/\b(?:fn|const|struct)\s+(\w+)/g))
    renamed.set(name!, `${name}_k${i}`);
  for (const [, name, type] of code.matchAll(workgroupPattern)) {
    renamed.set(name!, sharedName(name!, type!));
  }
  const accesses: string[] = [];
  const accessed = new Set<string>();
  const words = new Map<string, number>();
  for (const { name, type, writes } of bindings) {
    const place = places.get(name)!;
    if (place.kind === "plain") renamed.set(name, place.name);
    else if (place.kind === "words") words.set(name, place.word);
    else {
      accessed.add(name);
      const text = writes ? setText : getText;
      accesses.push(text(`${name}_k${i}`, type, place));
    }
  }
  const own = withWords(withAccesses(code.replaceAll(workgroupPattern, ""), accessed, i), words);
  const text = own.replaceAll(/(?<![.\w])[A-Za-z_]\w*/g, (word) => renamed.get(word) ?? word);
  return `${accesses.join("")}${text}`;
}

const withoutComments = (code: string): string => code.replaceAll(/\/\/.*$/gm, "");

type SharedPlace = Exclude<Place, { kind: "plain" | "words" }>;

/** A type of elements that pass between kernels. */
interface Exchangeable {
  /** Words of an element. */
  readonly count: number;
  /** Functions that load and store a word of a region. */
  readonly load: string;
  readonly store: string;
  /** WGSL of a word as part of the element, and the reverse. */
  fromBits(bits: string): string;
  toBits(value: string): string;
}

const floats = (count: number): Exchangeable => ({
  count,
  load: "floatWord",
  store: "setFloatWord",
  fromBits: (bits) => `bitcast<f32>(${bits})`,
  toBits: (value) => `bitcast<u32>(${value})`,
});

/** Of records (record.ts): quants are -127 to 127 and scales are not negative, so that no word is 0x80808080. */
const words = (count: number): Exchangeable => ({
  count,
  load: "recordWord",
  store: "setRecordWord",
  fromBits: (bits) => bits,
  toBits: (value) => value,
});

const exchangeables: Readonly<Record<string, Exchangeable>> = {
  ...{ f32: floats(1), vec2f: floats(2), vec4f: floats(4), u32: words(1), vec4u: words(4) },
};

function exchangeableOf(type: string): Exchangeable {
  const found = exchangeables[type];
  if (!found) throw new Error(`layer: values of type ${type} cannot be exchanged`);
  return found;
}

/** WGSL of the words of element `i`. */
function wordsText({ count }: Exchangeable): string[] {
  return Array.from({ length: count }, (_, j) => `i * ${count}u + ${j}u`);
}

/** WGSL of where word `at` of a result is in its region. */
function exchangedAt(at: string, place: Extract<Place, { kind: "exchanged" }>): string {
  return `((${at}) % ${UNIT}u) * ${place.words / UNIT}u + (${at}) / ${UNIT}u + ${place.word}u`;
}

/** `fn get_NAME(i)`: element i of the former array of `type`. */
function getText(name: string, type: string, place: SharedPlace): string {
  const as = exchangeableOf(type);
  const values = wordsText(as).map((at) =>
    place.kind === "exchanged"
      ? `${as.load}(${exchangedAt(at, place)})`
      : as.fromBits(`${place.name}[${at}]`),
  );
  return `
fn get_${name}(i: u32) -> ${type} { return ${type}(${values.join(", ")}); }`;
}

/** `fn set_NAME(i, value)` */
function setText(name: string, type: string, place: SharedPlace): string {
  const as = exchangeableOf(type);
  const bound = place.kind === "bound" ? place.name : place.also;
  const stores = wordsText(as).flatMap((at, j) => {
    const value = as.count === 1 ? "value" : `value[${j}]`;
    return [
      ...(place.kind === "exchanged" ? [`${as.store}(${exchangedAt(at, place)}, ${value});`] : []),
      ...(bound ? [`${bound}[${at}] = ${as.toBits(value)};`] : []),
    ];
  });
  return `
fn set_${name}(i: u32, value: ${type}) { ${stores.join(" ")} }`;
}

/** `NAME[i]` becomes a call of its get function, `NAME[i] = value;` of its set function, for these names. */
function withAccesses(code: string, names: ReadonlySet<string>, kernel: number): string {
  if (names.size === 0) return code;
  const pattern = new RegExp(`(?<![.\\w])(${[...names].join("|")})\\[`);
  const found = pattern.exec(code);
  if (!found) return code;
  const name = `${found[1]}_k${kernel}`;
  const open = found.index + found[0].length;
  const close = closing(code, open);
  const index = withAccesses(code.slice(open, close), names, kernel);
  const before = code.slice(0, found.index);
  const assigned = /^\s*=(?!=)/.exec(code.slice(close + 1));
  if (!assigned) {
    return `${before}get_${name}(${index})${withAccesses(code.slice(close + 1), names, kernel)}`;
  }
  const from = close + 1 + assigned[0].length;
  const end = code.indexOf(";", from);
  const value = withAccesses(code.slice(from, end), names, kernel);
  return `${before}set_${name}(${index},${value})${withAccesses(code.slice(end), names, kernel)}`;
}

/** `NAME[i]` becomes a word of the region, for these names. */
function withWords(code: string, words: ReadonlyMap<string, number>): string {
  return [...words].reduce(
    (text, [name, word]) =>
      text.replaceAll(new RegExp(`(?<![.\\w])${name}\\[`, "g"), `exchange[base + ${word}u + `),
    code,
  );
}

/** The position of the closing bracket whose partner is just before `from`. */
function closing(code: string, from: number): number {
  let depth = 1;
  for (let at = from; at < code.length; at++) {
    if (code[at] === "[") depth++;
    else if (code[at] === "]" && --depth === 0) return at;
  }
  throw new Error("layer: a kernel has an index without an end");
}
