// The interface of an architecture: how its configuration is read, which weights it has, and one forward pass.
//
// An architecture is one file here and one line in table.ts (docs/inside/add-a-model.md). It never mentions a backend, a dtype
// or a file format: it sees metadata under GGUF's names and builds a graph.

import type { Metadata } from "../base/metadata.ts";
import type { GraphBuilder } from "../graph/builder.ts";
import type { Outputs, Rope, Weight } from "../graph/graph.ts";

/** The configuration of every decoder-only transformer; an architecture may extend it. */
export interface ModelConfig {
  /** general.architecture as the file has it. */
  architecture: string;
  /** Tokens of the context that it was trained with. */
  trainedContext: number;
  /** Tokens of the context that it is loaded with: some scale their positions by it. undefined: not known yet. */
  context?: number;
  vocabSize: number;
  /** The number of layers, without those that predict further tokens. */
  layers: number;
  /** Layers of the file after the last that predict further tokens; they are not part of the model's graph. Default: 0. */
  nextLayers?: number;
  /** Values per token between layers. */
  embed: number;
  feedForward: number;
  heads: number;
  /** Heads of keys and values; with fewer than `heads`, attention is grouped-query. */
  kvHeads: number;
  headDim: number;
  normEps: number;
  rope: Rope;
  /** Up to this many tokens a file's factors for short contexts are used, above it those for long ones. Default: trainedContext. */
  originalContext?: number;
  /** The matrices of q, k and v are one tensor of the file, attn_qkv. */
  fusedQkv: boolean;
  /** false: tokens attend to later ones, too. Default: true. */
  causal?: boolean;
  /** undefined: the model has no mixture of experts. */
  experts?: ExpertConfig;
}

/** The experts of a layer. */
export interface ExpertConfig {
  count: number;
  /** Experts that each token uses. */
  used: number;
  /** Columns between the matrices of one expert. */
  feedForward: number;
  /** The same of the shared expert, which every token uses; 0: there is none. */
  shared: number;
}

/** The part of a model file that models/ sees. */
export interface ModelHeader {
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, Weight>;
}

/** A weight that the architecture expects: its name and its shape. */
export interface WeightSpec {
  readonly name: string;
  readonly shape: readonly number[];
  readonly optional?: boolean;
  /** The file may have this one instead (gate and up of experts in one tensor). */
  readonly unless?: string;
  /** The forward pass may leave it out, as llama.cpp does. Any other tensor that it does not read is an error. */
  readonly unread?: boolean;
}

/** The weights of a loaded model, by name. */
export interface WeightLookup {
  get(name: string): Weight;
  /** undefined for an optional weight that the file does not have. */
  maybe(name: string): Weight | undefined;
}

/** `C`: the architecture's own configuration. */
export interface Arch<C extends ModelConfig = ModelConfig> {
  /** The values of general.architecture that this file serves. */
  readonly names: readonly string[];
  /** The models that have it, for people: "Qwen 1.5, 2 and 2.5". */
  readonly about: string;
  config(header: ModelHeader): C;
  weights(config: C): WeightSpec[];
  /**
   * Builds the graph of a batch: tokens in, logits out. Declares the state that layers keep from batch to batch
   * (GraphBuilder.state).
   */
  forward(g: GraphBuilder, config: C, w: WeightLookup): Outputs;
  /** The layer that predicts a further token (parts/next.ts), where files of this architecture have one. */
  readonly next?: NextLayer<C>;
}

/** A graph of its own: tokens and hidden states in, logits out. */
export interface NextLayer<C extends ModelConfig = ModelConfig> {
  weights(config: C): WeightSpec[];
  forward(g: GraphBuilder, config: C, w: WeightLookup): Outputs;
}
