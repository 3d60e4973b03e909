// A tiny random-weight model straight in memory: no file, no tokenizer worth the name. For tests of the engine, the
// cache and the graph, where what matters is that two ways of computing the same thing agree.

import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import type { Metadata } from "../../src/base/metadata.ts";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine, type EngineOptions } from "../../src/engine/engine.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import type { Weight } from "../../src/graph/graph.ts";
import type { ModelHeader, WeightSpec } from "../../src/models/arch.ts";
import { archNamed } from "../../src/models/table.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { kvOf } from "./kv.ts";
import { Random } from "./random.ts";

export const tinyShape = { embed: 32, heads: 4, kvHeads: 2, layers: 2, feedForward: 64, vocab: 48 };

export interface TinyOptions {
  architecture?: string;
  /** Instead of one that is made here. */
  model?: TinyModel;
  seed?: number;
  weightType?: string;
  /** The type of matrices of experts. Default: f32. */
  expertType?: string;
  kvType?: string;
  contextSize?: number;
  vocab?: number;
  feedForward?: number;
  layers?: number;
  /** The weights of a layer, in the order in which they get random values. Default: all that the architecture knows. */
  layerWeights?: readonly string[];
  /** Default: the reference. */
  backend?: Backend;
  cacheTokens?: number;
  parallel?: number;
  promptChunk?: number;
  /** Copies of state outside of the backend. */
  tiers?: EngineOptions["tiers"];
  availableBytes?: number;
  /** Default: false. Whether drafts pay depends on the time, and so would the batches that tests look at. */
  speculate?: EngineOptions["speculate"];
  /** Default: true, where the backend has a warm-up. */
  warmup?: boolean;
}

export interface TinyModel extends ModelHeader {
  bytes: ReadonlyMap<string, Uint8Array>;
}

/** Weights and metadata of a small model of any architecture in the table. */
export function tinyModel(options: TinyOptions = {}): TinyModel {
  const { architecture = "llama", seed = 1, vocab = tinyShape.vocab } = options;
  const { weightType = "f32", expertType = "f32" } = options;
  const metadata = plainMetadata(tinyMetadata(architecture, options.feedForward, options.layers));
  const table = {
    name: "token_embd.weight",
    shape: [vocab, tinyShape.embed],
    dtype: dtypeByName("f32")!,
  };
  const arch = archNamed(architecture);
  const config = arch.config({ metadata, tensors: new Map([[table.name, table]]) });
  const random = new Random(seed);
  const tensors = new Map<string, Weight>();
  const bytes = new Map<string, Uint8Array>();
  const specs = chosen(arch.weights(config), options.layerWeights);
  const alternatives = new Set(specs.map(({ unless }) => unless));
  for (const { name, shape, optional } of specs) {
    if (optional && /^output\.weight$|^rope_f/.test(name)) continue;
    if (alternatives.has(name)) continue;
    if (architecture.startsWith("qwen3") && name.startsWith("cls.")) continue; // most files have no classifier
    const types = [undefined, "f32", weightType, expertType];
    const dtype = dtypeByName(types[shape.length] ?? "f32")!;
    tensors.set(name, { name, shape, dtype });
    bytes.set(name, randomBytes(random, shape, dtype, /norm|factors|scale/.test(name) ? 1 : 0));
  }
  return { metadata, tensors, bytes };
}

function chosen(
  specs: readonly WeightSpec[],
  layerWeights: readonly string[] | undefined,
): readonly WeightSpec[] {
  if (!layerWeights) return specs;
  const byName = new Map(specs.map((spec) => [spec.name, spec]));
  const ends = specs.filter(({ name }) => !name.startsWith("blk."));
  const layers = Array.from({ length: tinyShape.layers }, (_, layer) =>
    layerWeights.map((name) => byName.get(`blk.${layer}.${name}`)!),
  );
  return [...ends, ...layers.flat()];
}

/** The bytes of a weight, of which `bytes` has the tensors. */
export function bytesOfWeight(weight: Weight, bytes: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const { source, dtype, shape } = weight;
  if (source === undefined) return bytes.get(weight.name)!;
  if ("values" in source) return new Uint8Array(source.values.buffer);
  if ("times" in source) {
    const values = new Float32Array(bytes.get(source.tensor)!.slice().buffer);
    const many = Array.from(values, (value) => new Array<number>(source.times).fill(value));
    return new Uint8Array(Float32Array.from(many.flat()).buffer);
  }
  const row = shape.slice(1).reduce((a, b) => a * b, 1);
  return bytes.get(source.tensor)!.subarray(bytesFor(dtype, source.row * row));
}

export async function tinyEngine(options: TinyOptions = {}): Promise<Engine> {
  const model = options.model ?? tinyModel(options);
  return await Engine.load(
    {
      name: "tiny",
      format: "memory",
      metadata: model.metadata,
      tensors: model.tensors,
      readTensor: async (name, target, offset) => {
        target.set(model.bytes.get(name)!.subarray(offset, offset + target.length));
      },
      tokenizer: letterTokenizer,
      template: undefined,
      backend: options.backend ?? new ReferenceBackend(),
    },
    {
      contextSize: options.contextSize ?? 256,
      kvType: kvOf(options.kvType ?? "f32"),
      cacheTokens: options.cacheTokens,
      parallel: options.parallel,
      promptChunk: () => options.promptChunk,
      tiers: options.tiers,
      availableBytes: options.availableBytes,
      speculate: options.speculate ?? false,
      warmup: options.warmup,
    },
    { progress: () => {}, check: () => {} },
  );
}

function randomBytes(
  random: Random,
  shape: readonly number[],
  dtype: DType,
  center: number,
): Uint8Array {
  const elements = shape.reduce((a, b) => a * b, 1);
  const values = Float32Array.from({ length: elements }, () => center + random.normal() * 0.2);
  const bytes = new Uint8Array(bytesFor(dtype, elements));
  dtype.quantize!(values, 0, bytes, 0, elements / dtype.blockElems);
  return bytes;
}

export function tinyMetadata(
  architecture: string,
  feedForward: number = tinyShape.feedForward,
  layers: number = tinyShape.layers,
): Record<string, MetadataValue> {
  const { embed, heads, kvHeads } = tinyShape;
  return {
    "general.architecture": architecture,
    [`${architecture}.embedding_length`]: embed,
    [`${architecture}.attention.head_count`]: heads,
    [`${architecture}.attention.head_count_kv`]: kvHeads,
    [`${architecture}.attention.layer_norm_rms_epsilon`]: 1e-5,
    [`${architecture}.attention.layer_norm_epsilon`]: 1e-5,
    [`${architecture}.attention.key_length`]: 16,
    [`${architecture}.attention.value_length`]: 16,
    [`${architecture}.block_count`]: layers,
    [`${architecture}.feed_forward_length`]: feedForward,
    [`${architecture}.context_length`]: 512,
    ...Object.fromEntries(
      Object.entries(ownKeys[architecture] ?? {}).map(([key, value]) => [
        key.startsWith("+") ? key.slice(1) : `${architecture}.${key}`,
        value,
      ]),
    ),
  };
}

const mixture = { expert_count: 4, expert_used_count: 2 };
const scan = {
  "ssm.conv_kernel": 4,
  "ssm.inner_size": 64,
  "ssm.state_size": 8,
  "ssm.time_step_rank": 8,
  "ssm.group_count": 2,
};
/** The first of two layers is recurrent, the second attends. */
const hybrid = { ...scan, "attention.head_count_kv": [0, 2] };
const ranks = ["decay", "iclr", "value_residual_mix", "gate"].map((name) => {
  return [`attention.${name}_lora_rank`, 8] as const;
});

const latent = {
  "attention.q_lora_rank": 12,
  "attention.kv_lora_rank": 16,
  "attention.key_length_mla": 12,
  "attention.value_length_mla": 8,
  "rope.dimension_count": 4,
  ...mixture,
};
/** Chooses fewer positions than a context has. */
const indexer = {
  "attention.indexer.head_count": 2,
  "attention.indexer.key_length": 8,
  "attention.indexer.top_k": 6,
};
const kimi = {
  ...mixture,
  "attention.head_count_kv": [0, 1],
  "attention.key_length_mla": 12,
  "attention.value_length_mla": 8,
  "attention.kv_lora_rank": 8,
  "rope.dimension_count": 4,
  "kda.head_dim": 8,
  "ssm.conv_kernel": 4,
  expert_shared_count: 1,
  expert_gating_func: 2,
};

/** Keys that an architecture requires besides those that all have; "+": not under its name. */
const ownKeys: Readonly<Record<string, Readonly<Record<string, MetadataValue>>>> = {
  apertus: {
    "+xielu.alpha_n": 0.8,
    "+xielu.alpha_p": 0.6,
    "+xielu.beta": 0.5,
    "+xielu.eps": -1e-6,
  },
  bert: { "+tokenizer.ggml.token_type_count": 2 },
  "falcon-h1": scan,
  granitehybrid: hybrid,
  jamba: hybrid,
  "kimi-linear": kimi,
  "kimi-k3": {
    ...kimi,
    "attention.q_lora_rank": 12,
    "kda.gate_lower_bound": -5,
    "attn_res.block_size": 2,
    "activation.situ_beta": 4,
    "activation.situ_linear_beta": 25,
  },
  bailingmoe3: { ...kimi, "kda.gate_lower_bound": -5 },
  graniteswitch: {
    logit_scale: 2,
    "adapters.count": 2,
    "adapters.lora_rank": 8,
    "adapters.token_ids_activate": [3, 5],
    "adapters.token_ids_substitute": [4, 6],
  },
  deepseek32: { ...latent, ...indexer },
  "glm-dsa": { ...latent, ...indexer },
  dots3note: {
    ...latent,
    ...indexer,
    "attention.key_length_mla_swa": 12,
    "attention.value_length_mla_swa": 8,
    "attention.kv_lora_rank_swa": 12,
    "attention.sliding_window": 8,
    "attention.sliding_window_pattern": [0, 1],
    "attention.indexer.types": [1, 0],
    "rope.freq_base_swa": 5000,
  },
  "minimax-m3": {
    ...mixture,
    ...indexer,
    "attention.indexer.block_size": 4,
    "attention.indexer.local_blocks": 1,
    leading_dense_block_count: 1,
    expert_shared_count: 1,
  },
  grovemoe: { ...mixture, experts_per_group: 2, expert_group_scale: 0.4 },
  "minimax-01": { ...mixture, full_attention_interval: 2, residual_scale: 1.5 },
  lfm2: { "attention.head_count_kv": [0, 2], "shortconv.l_cache": 3 },
  lfm2moe: {
    ...mixture,
    "attention.head_count_kv": [0, 2],
    "shortconv.l_cache": 3,
    expert_gating_func: 2,
  },
  mamba: scan,
  mamba2: scan,
  "modern-bert": { "attention.sliding_window": 8, "attention.sliding_window_pattern": 2 },
  ...{ "llada-moe": mixture, rnd1: mixture },
  t5encoder: { "attention.relative_buckets_count": 8 },
  "nomic-bert-moe": { ...mixture, moe_every_n_layers: 2 },
  nemotron_h: { ...scan, "attention.head_count_kv": [0, 0], feed_forward_length: [0, 64] },
  nemotron_h_moe: { ...hybrid, feed_forward_length: [64, 0] },
  plamo2: { ...hybrid, "ssm.group_count": 0 },
  qwen35: { ...scan, full_attention_interval: 2 },
  qwen35moe: { ...scan, ...mixture, full_attention_interval: 2 },
  qwen3next: { ...scan, ...mixture, full_attention_interval: 2 },
  rwkv6: { "wkv.head_size": 8, time_mix_extra_dim: 8, time_decay_extra_dim: 8 },
  rwkv7: { "wkv.head_size": 8, ...Object.fromEntries(ranks) },
  cohere2: { "attention.sliding_window": 8, logit_scale: 0.5 },
  gemma3n: { "attention.sliding_window": 8 },
  gemma4: {
    "attention.sliding_window": 8,
    "attention.key_length_swa": 8,
    "attention.value_length_swa": 8,
    embedding_length_per_layer_input: 8,
  },
  gptneox: { use_parallel_residual: true },
  granite: { logit_scale: 2 },
  granitemoe: { logit_scale: 2, ...mixture },
  granite_swa: { logit_scale: 2, "attention.sliding_window": 8 },
  afmoe: mixture,
  arctic: mixture,
  arwkv7: { "wkv.head_size": 8, token_shift_count: 1, ...Object.fromEntries(ranks) },
  cohere2moe: { ...mixture, "attention.sliding_window": 8 },
  "muse-glimmer": { "attention.sliding_window": 8, logit_scale: 0.5 },
  paddleocr: { "rope.dimension_sections": [2, 1, 1, 0] },
  cogvlm: { "attention.head_count_kv": 4 },
  "exaone-moe": { ...mixture, "attention.sliding_window": 8 },
  hy_v3: mixture,
  laguna: mixture,
  mellum: mixture,
  mimo2: { ...mixture, "attention.sliding_window": 8 },
  minicpm3: {
    "attention.q_lora_rank": 12,
    "attention.kv_lora_rank": 16,
    "attention.key_length": 12,
    "attention.value_length": 8,
    "rope.dimension_count": 4,
  },
  mistral4: latent,
  nanbeige: { num_loops: 2 },
  plm: {
    "attention.kv_lora_rank": 16,
    "attention.key_length": 12,
    "attention.value_length": 8,
    "rope.dimension_count": 4,
  },
  qwen2vl: { "rope.dimension_sections": [2, 1, 1, 0] },
  qwen3vl: { "rope.dimension_sections": [2, 1, 1, 0] },
  qwen3vlmoe: { ...mixture, "rope.dimension_sections": [2, 1, 1, 0] },
  rwkv6qwen2: {
    "wkv.head_size": 8,
    time_mix_extra_dim: 8,
    time_decay_extra_dim: 8,
    token_shift_count: 1,
  },
  step35: {
    ...mixture,
    "attention.sliding_window": 8,
    "rope.dimension_count": 8,
    expert_shared_feed_forward_length: 32,
  },
  talkie: { logit_scale: 0.5 },
  bailingmoe: mixture,
  bailingmoe2: mixture,
  deepseek: mixture,
  "deepseek2-ocr": mixture,
  deepseek2: latent,
  dots1: mixture,
  "ernie4_5-moe": mixture,
  "hunyuan-moe": mixture,
  glm4moe: mixture,
  smallthinker: mixture,
  grok: mixture,
  "gpt-oss": { "attention.sliding_window": 8, ...mixture },
  llama4: { interleave_moe_layer_step: 2, ...mixture },
  dbrx: { "attention.clamp_kqv": 4, ...mixture },
  "minimax-m2": mixture,
  phimoe: mixture,
  olmoe: mixture,
  qwen2moe: mixture,
  qwen3moe: mixture,
};

export type MetadataValue = string | number | boolean | readonly number[];

/** Metadata from a plain object. */
export function plainMetadata(values: Readonly<Record<string, MetadataValue>>): Metadata {
  const get = (key: string) => values[key];
  const arrayOf = (key: string): readonly number[] | undefined => {
    const value = get(key);
    return typeof value === "object" ? value : undefined;
  };
  return {
    keys: () => Object.keys(values).values(),
    has: (key) => key in values,
    string: (key) => get(key) as string | undefined,
    number: (key) => get(key) as number | undefined,
    boolean: (key) => get(key) as boolean | undefined,
    arrayLength: (key) => arrayOf(key)?.length,
    strings: () => undefined,
    numbers: (key) => arrayOf(key) && [...arrayOf(key)!],
    booleans: () => undefined,
    preview: (key) => {
      const array = arrayOf(key);
      return array && { type: "array<i32>", value: [], length: array.length };
    },
  };
}

/** Token id n is the n-th letter of "a".."z", "A".."V"; no special tokens. */
export const letterTokenizer: Tokenizer = {
  kind: "letters",
  vocabSize: tinyShape.vocab,
  special: {
    bos: undefined,
    eos: undefined,
    eot: undefined,
    unk: undefined,
    pad: undefined,
    sep: undefined,
    addBos: false,
    addEos: false,
  },
  encode: (text) =>
    [...(typeof text === "string" ? text : text.text)].map((letter) => letters.indexOf(letter)),
  decode: (ids) => ids.map((id) => letters[id]).join(""),
  tokenText: (id) => letters[id]!,
  tokenBytes: (id) => new TextEncoder().encode(letters[id]),
  isEndOfGeneration: (id) => letterTokenizer.endTokens.has(id),
  get endTokens() {
    return new Set<number>();
  },
  fill: undefined,
  longestToken: undefined,
  fingerprint: 0,
  tokenId: (text) => letters.indexOf(text),
  stream: () => ({ push: (id) => letters[id]!, end: () => "" }),
};

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV";

/** Tokens that are likeliest after these. */
export async function greedyTokens(
  engine: Engine,
  tokens: number[],
  maxTokens: number,
): Promise<number[]> {
  const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
  const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
  const options = { temperature: 0, maxTokens };
  return (await generate(engine, { tokens, options }, control, () => {})).tokenIds;
}

export function tinyPrompt(seed: number, length: number): number[] {
  const random = new Random(seed);
  return Array.from({ length }, () => random.below(tinyShape.vocab));
}
