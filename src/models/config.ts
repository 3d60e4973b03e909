// Reads the configuration that most transformers share from metadata, and checks every number: a hostile or foreign file is
// refused here, before anything is allocated for it. config-reader.ts reads the single keys.

import { ModelError } from "../base/errors.ts";
import type { RopeLayout } from "../graph/graph.ts";
import type { ExpertConfig, ModelConfig, ModelHeader } from "./arch.ts";
import { ConfigReader } from "./config-reader.ts";
import { ropeFromMetadata } from "./rope.ts";

/** Largest values that a real model could have; anything above is a damaged file, not a model. */
const LIMITS = { layers: 1024, size: 1 << 20, heads: 1 << 14, context: 1 << 28, experts: 1 << 12 };

export interface ConfigOptions {
  /** "required": a model without experts is refused; default: one with experts is. */
  readonly experts?: "required";
}

export function readConfig(
  header: ModelHeader,
  defaultLayout: RopeLayout,
  options: ConfigOptions = {},
): ModelConfig {
  const { metadata } = header;
  const architecture = metadata.string("general.architecture")!;
  const read = new ConfigReader(metadata, architecture);
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
  if (options.experts === undefined) refuseExperts(read);
  const feedForward = read.integer("feed_forward_length", LIMITS.size);
  return {
    architecture,
    trainedContext: trainedContext(read),
    vocabSize: vocabSize(header),
    layers: read.integer("block_count", LIMITS.layers),
    embed,
    feedForward,
    heads,
    kvHeads,
    headDim,
    normEps: read.positive("attention.layer_norm_rms_epsilon"),
    rope: ropeFromMetadata(read, headDim, defaultLayout),
    ...(options.experts && { experts: readExperts(read, feedForward) }),
  };
}

/** Experts without a size of their own are as large as `feedForward`. */
function readExperts(read: ConfigReader, feedForward: number): ExpertConfig {
  const count = read.integer("expert_count", LIMITS.experts);
  const sharedKey = "expert_shared_feed_forward_length";
  return {
    count,
    used: read.integer("expert_used_count", count),
    feedForward: read.integerOr("expert_feed_forward_length", feedForward, LIMITS.size),
    shared: (read.number(sharedKey) ?? 0) === 0 ? 0 : read.integer(sharedKey, LIMITS.size),
  };
}

/**
 * Tokens that the model can attend to. These architectures have no windowed attention, so a model with a sliding window
 * ends there: up to its size, full attention is the same.
 */
function trainedContext(read: ConfigReader): number {
  const context = read.integerOr("context_length", 2048, LIMITS.context);
  const window = read.number("attention.sliding_window") ?? 0;
  return window > 0
    ? Math.min(context, read.integer("attention.sliding_window", LIMITS.context))
    : context;
}

/** The rows of the embedding table: metadata may claim another size. */
function vocabSize(header: ModelHeader): number {
  const table = header.tensors.get("token_embd.weight");
  if (!table) throw new ModelError('model: tensor "token_embd.weight" is missing');
  return table.shape[0]!;
}

/** A mixture of experts under a dense architecture's name would load and talk nonsense. */
function refuseExperts(read: ConfigReader): void {
  const experts = read.number("expert_count") ?? 0;
  if (experts > 0) {
    read.fail("expert_count", experts, "0: experts are not supported in this architecture");
  }
}
