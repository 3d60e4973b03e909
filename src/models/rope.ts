// Rotary position embeddings: from metadata to one frequency per pair.
//
// All scaling methods change only the frequencies (and, for YaRN, a factor on the result). They are computed once, here, and
// backends see plain numbers. Methods: none, linear, longrope, llama3 (by frequency band), yarn.

import { byName } from "../base/by-name.ts";
import { show } from "../base/show.ts";
import type { Rope, RopeLayout } from "../graph/graph.ts";
import type { ConfigReader } from "./config-reader.ts";

/** Whether files must have a key. */
type Presence = "required" | "optional";

interface Scaling {
  frequencies: Float64Array;
  magnitude: number;
}

type ScalingMethod = (base: Float64Array, read: ConfigReader, freqBase: number) => Scaling;

const methods: Readonly<Record<string, ScalingMethod>> = byName({
  none: (base) => ({ frequencies: base, magnitude: 1 }),
  linear: scaleLinear,
  // Its factors are tensors of the file (rope_factors_long, rope_factors_short).
  longrope: scaleLinear,
  llama3: scaleLlama3,
  yarn: scaleYarn,
});

/**
 * `freqBase`: the base of the pairs' frequencies, if it is not the key rope.freq_base alone. `dims`: the rotated values, if they
 * are not the key's.
 */
export function ropeFromMetadata(
  read: ConfigReader,
  headDim: number,
  defaultLayout: RopeLayout,
  freqBase: number = baseOf(read, "rope.freq_base", 10000),
  dims: number = read.integerOr("rope.dimension_count", headDim, headDim),
): Rope {
  if (dims % 2 !== 0) read.fail("rope.dimension_count", dims, "an even number");
  const base = baseFrequencies(dims, freqBase);
  // A factor without a type means linear, and no factor means 1: llama.cpp reads its older files in this way.
  const type = read.string("rope.scaling.type") ?? "linear";
  const method = methods[type];
  if (!method) {
    read.fail("rope.scaling.type", show(type), `one of ${Object.keys(methods).join(", ")}`);
  }
  const { frequencies, magnitude } = method(base, read, freqBase);
  return {
    layout: layoutOf(read, defaultLayout),
    dims,
    frequencies: Float32Array.from(frequencies),
    magnitude: magnitude * (read.between(ATTENTION_FACTOR, 1e-3, 1e3) ?? 1),
  };
}

const ATTENTION_FACTOR = "rope.scaling.attn_factor";

/** The base of the pairs' frequencies: with 1 and less, no pair would turn slower than the one before. */
export function baseOf(read: ConfigReader, key: string, fallback: number): number {
  const base = read.positiveOr(key, fallback);
  if (base <= 1) read.fail(key, base, "a number above 1");
  return base;
}

/** The rotation of layers with a window, which in many models has a base of its own and no scaling. */
export function windowRope(read: ConfigReader, full: Rope, freqBase: number): Rope {
  return ropeOfBase(full.dims, baseOf(read, "rope.freq_base_swa", freqBase), full.layout);
}

/** Without scaling. */
export function ropeOfBase(dims: number, freqBase: number, layout: RopeLayout): Rope {
  const frequencies = Float32Array.from(baseFrequencies(dims, freqBase));
  return { layout, dims, frequencies, magnitude: 1 };
}

/**
 * Positions in several dimensions (M-RoPE), for text: rope.dimension_sections has the pairs of time, height, width and one more
 * dimension, over and over. A text's positions are the same in the first three and 0 in the last, whose pairs do not turn.
 */
export function textSections(
  read: ConfigReader,
  rope: Rope,
  presence: Presence = "optional",
): Rope {
  const sections = readSections(read, rope, presence);
  if (!sections) return rope;
  const pairs = sections.reduce((sum, count) => sum + count, 0);
  if (pairs === 0) read.fail("rope.dimension_sections", "0,0,0,0", "the pairs of each dimension");
  const turned = pairs - sections[3]!;
  const frequencies = rope.frequencies.map((f, pair) => (pair % pairs < turned ? f : 0));
  return { ...rope, frequencies };
}

/**
 * The same for interleaved pairs of time, height and width (Qwen 3.5): pair 3i belongs to time, 3i + 1 to height, 3i + 2 to width,
 * while the dimension has pairs left. Pairs without a dimension do not rotate.
 */
export function interleavedSections(
  read: ConfigReader,
  rope: Rope,
  presence: Presence = "optional",
): Rope {
  const sections = readSections(read, rope, presence);
  if (!sections) return rope;
  const pairs = sections.reduce((sum, count) => sum + count, 0);
  if (pairs === 0) read.fail("rope.dimension_sections", "0,0,0,0", "the pairs of each dimension");
  const frequencies = rope.frequencies.map((f, pair) => {
    const place = pair % pairs;
    return place < 3 * sections[place % 3]! ? f : 0;
  });
  return { ...rope, frequencies };
}

/** undefined: the file has none. */
function readSections(read: ConfigReader, rope: Rope, presence: Presence): number[] | undefined {
  const key = "rope.dimension_sections";
  const sections = read.integers(key, 4, rope.dims);
  if (!sections && presence === "required") read.fail(key, undefined, "4 integers");
  return sections;
}

/** Each pair turns slower than the one before by the same factor, multiplied up in float32 as in ggml. */
function baseFrequencies(dims: number, freqBase: number): Float64Array {
  const base = new Float64Array(dims / 2);
  const slower = Math.fround(freqBase ** (-2 / dims));
  for (let pair = 0, f = 1; pair < base.length; pair++, f = Math.fround(f * slower)) base[pair] = f;
  return base;
}

/** The architecture's layout, unless the file says that it stores q and k in another one. */
function layoutOf(read: ConfigReader, defaultLayout: RopeLayout): RopeLayout {
  const layout = read.metadata.string("lantern.rope.layout") ?? defaultLayout;
  if (layout !== "interleaved" && layout !== "half") {
    read.fail("rope layout", show(layout), "interleaved or half");
  }
  return layout;
}

/** The factor by which the pairs rotate slower; 0 in the file means 1. rope.scale_linear is the key's old name. */
function factorOf(read: ConfigReader): number {
  const key =
    read.number("rope.scaling.factor") === undefined ? "rope.scale_linear" : "rope.scaling.factor";
  return read.number(key) ? read.between(key, 1e-3, 1e6)! : 1;
}

function scaleLinear(base: Float64Array, read: ConfigReader): Scaling {
  return { frequencies: base.map((f) => f / factorOf(read)), magnitude: 1 };
}

/** Llama 3.1: low frequencies are divided by the factor, high ones kept, frequencies in between blended. */
function scaleLlama3(base: Float64Array, read: ConfigReader): Scaling {
  const factor = factorOf(read);
  const low = read.positiveOr("rope.scaling.low_freq_factor", 1);
  const high = read.positiveOr("rope.scaling.high_freq_factor", 4);
  if (high <= low) {
    read.fail("rope.scaling.high_freq_factor", high, `more than low_freq_factor, ${low}`);
  }
  const trained = read.positiveOr("rope.scaling.original_context_length", 8192);
  const frequencies = base.map((frequency) => {
    const turns = (trained * frequency) / (2 * Math.PI); // full turns within the trained context
    if (turns > high) return frequency;
    if (turns < low) return frequency / factor;
    const blend = (turns - low) / (high - low);
    return ((1 - blend) * frequency) / factor + blend * frequency;
  });
  return { frequencies, magnitude: 1 };
}

/** YaRN: low frequencies are divided by the factor, high ones kept, frequencies between two pairs blended; magnitudes grow. */
function scaleYarn(base: Float64Array, read: ConfigReader, freqBase: number): Scaling {
  const factor = factorOf(read);
  // Below 0 is the default, as in llama.cpp.
  const found = read.between("rope.scaling.yarn_ext_factor", -1, 1e3) ?? -1;
  const extrapolation = found < 0 ? 1 : found;
  const betaFast = read.positiveOr("rope.scaling.yarn_beta_fast", 32);
  const betaSlow = read.positiveOr("rope.scaling.yarn_beta_slow", 1);
  const trained = read.positiveOr(
    "rope.scaling.original_context_length",
    read.positiveOr("context_length", 2048),
  );
  const dims = 2 * base.length;
  // The pair that makes `turns` full turns within the trained context.
  const pairFor = (turns: number) =>
    (dims * Math.log(trained / (turns * 2 * Math.PI))) / (2 * Math.log(freqBase));
  const first = Math.max(0, Math.floor(pairFor(betaFast)));
  const last = Math.min(dims - 1, Math.ceil(pairFor(betaSlow)));
  const frequencies = base.map((frequency, pair) => {
    const ramp = clamp01((pair - first) / Math.max(0.001, last - first));
    const kept = (1 - ramp) * extrapolation;
    return (frequency / factor) * (1 - kept) + frequency * kept;
  });
  const sharpen = (by: number) => (factor > 1 ? 1 + 0.1 * by * Math.log(factor) : 1);
  const undone = read.between("rope.scaling.yarn_log_multiplier", 0, 1e3) ?? 0;
  return { frequencies, magnitude: extrapolation === 0 ? 1 : sharpen(1) / sharpen(undone) };
}

function clamp01(x: number): number {
  return Math.min(1, Math.max(0, x));
}
