// Reads the configuration that most transformers share from metadata, and checks every number: a hostile or foreign file is
// refused here, before anything is allocated for it. config-reader.ts reads the single keys.

import { ModelError } from "../base/errors.ts";
import type { RopeLayout } from "../graph/graph.ts";
import type { ExpertConfig, ModelConfig, ModelHeader } from "./arch.ts";
import { ConfigReader } from "./config-reader.ts";
import { ropeFromMetadata } from "./rope.ts";

/** Largest values that a real model could have; anything above is a damaged file, not a model. */
export const LIMITS: Readonly<Record<"layers" | "size" | "heads" | "context" | "experts", number>> =
  { layers: 1024, size: 1 << 20, heads: 1 << 14, context: 1 << 28, experts: 1 << 12 };

export interface ConfigOptions {
  /** "required": a model without experts is refused. "optional": it is dense. Default: one with experts is refused. */
  readonly experts?: "required" | "optional";
  /** Which epsilon the norms have. Default: "rms". */
  readonly norm?: "rms" | "layer";
  /** The epsilon of files that have none. Default: they are refused. */
  readonly normEps?: number;
  /**
   * "own": the architecture reads attention.sliding_window itself. "none": it ignores the window, as llama.cpp does.
   * Default: the context ends at the window, up to which full attention is the same.
   */
  readonly window?: "own" | "none";
}

export function readConfig(
  header: ModelHeader,
  defaultLayout: RopeLayout,
  options: ConfigOptions = {},
): ModelConfig {
  const read = readerOf(header);
  const embed = read.integer("embedding_length", LIMITS.size);
  const heads = read.integer("attention.head_count", LIMITS.heads);
  const headDim = read.integerOr("attention.key_length", embed / heads, LIMITS.size);
  const kvHeads = read.integerOr("attention.head_count_kv", heads, LIMITS.heads);
  const valueDim = read.integerOr("attention.value_length", headDim, LIMITS.size);
  if (heads % kvHeads !== 0) {
    read.fail("attention.head_count_kv", kvHeads, `a divisor of the ${heads} heads`);
  }
  if (valueDim !== headDim) {
    read.fail("attention.value_length", valueDim, `${headDim} (as attention.key_length)`);
  }
  // Files in which all layers have experts may leave out the size of dense ones.
  const isMixture =
    options.experts === "required" && read.number("feed_forward_length") === undefined;
  const sizeKey = isMixture ? "expert_feed_forward_length" : "feed_forward_length";
  const feedForward = read.integer(sizeKey, LIMITS.size);
  const experts = readExperts(read, feedForward, options.experts);
  return {
    ...readCommon(header, options),
    feedForward,
    heads,
    kvHeads,
    headDim,
    rope: ropeFromMetadata(read, headDim, defaultLayout),
    ...(experts && { experts }),
  };
}

/** The part of the configuration that is the same in models with layers of different heads and sizes. */
export type CommonConfig = Omit<
  ModelConfig,
  "feedForward" | "heads" | "kvHeads" | "headDim" | "rope" | "experts"
>;

export function readCommon(header: ModelHeader, options: ConfigOptions = {}): CommonConfig {
  const read = readerOf(header);
  const norm = options.norm === "layer" ? "layer_norm_epsilon" : "layer_norm_rms_epsilon";
  const epsilon = `attention.${norm}`;
  const hasNone = options.normEps !== undefined && read.number(epsilon) === undefined;
  const stored = read.integer("block_count", LIMITS.layers);
  const nextLayers = read.count("nextn_predict_layers", stored - 1);
  const original = "rope.scaling.original_context_length";
  const isCausal = read.boolean("attention.causal") ?? true;
  return {
    architecture: read.architecture,
    trainedContext: trainedContext(read, options),
    vocabSize: vocabSize(header),
    layers: stored - nextLayers,
    nextLayers,
    ...(read.number(original) !== undefined && {
      originalContext: read.integer(original, LIMITS.context),
    }),
    embed: read.integer("embedding_length", LIMITS.size),
    normEps: hasNone ? options.normEps! : epsilonOf(read, epsilon),
    fusedQkv: header.tensors.has("blk.0.attn_qkv.weight"),
    ...(!isCausal && { causal: false }),
  };
}

/** Reads the keys of the file's architecture. */
export function readerOf({ metadata }: ModelHeader): ConfigReader {
  return new ConfigReader(metadata, metadata.string("general.architecture")!);
}

/** Experts without a size of their own are as large as `feedForward`. */
export function readExperts(
  read: ConfigReader,
  feedForward: number,
  expected: ConfigOptions["experts"],
): ExpertConfig | undefined {
  const found = read.number("expert_count") ?? 0;
  if (expected === undefined) refuseExperts(read);
  if (expected !== "required" && found === 0) return undefined;
  const count = read.integer("expert_count", LIMITS.experts);
  const sharedKey = "expert_shared_feed_forward_length";
  return {
    count,
    used: read.integer("expert_used_count", count),
    feedForward: read.integerOr("expert_feed_forward_length", feedForward, LIMITS.size),
    shared: (read.number(sharedKey) ?? 0) === 0 ? 0 : read.integer(sharedKey, LIMITS.size),
  };
}

/** A mixture of experts under a dense architecture's name would load and talk nonsense. */
function refuseExperts(read: ConfigReader): void {
  const found = read.number("expert_count") ?? 0;
  if (found !== 0) {
    read.fail("expert_count", found, "0: experts are not supported in this architecture");
  }
}

/** An epsilon of 1 would outweigh the normed values. */
export function epsilonOf(read: ConfigReader, key: string): number {
  const epsilon = read.positive(key);
  if (epsilon >= 1) read.fail(key, epsilon, "a number above 0 and below 1");
  return epsilon;
}

/** Tokens that the model can attend to. */
function trainedContext(read: ConfigReader, { window: handling }: ConfigOptions): number {
  const context = read.integerOr("context_length", 2048, LIMITS.context);
  const window =
    handling === undefined ? read.count("attention.sliding_window", LIMITS.context) : 0;
  return window > 0 ? Math.min(context, window) : context;
}

/** The rows of the embedding table: metadata may claim another size. */
function vocabSize({ tensors }: ModelHeader): number {
  const table = tensors.get("token_embd.weight") ?? tensors.get("output.weight");
  if (!table) {
    throw new ModelError(
      "model: token_embd.weight: got no such tensor, expected the table of embeddings. " +
        "The file is damaged, or its converter is unknown here: download or convert it again",
    );
  }
  return table.shape[0]!;
}
