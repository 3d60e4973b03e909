// The parts of an engine: a model's header, its tokenizer and template, and a backend. The composition root
// (src/threads/serve-engine.ts) puts them together.

import type { Backend } from "../backends/backend.ts";
import type { Metadata } from "../base/metadata.ts";
import type { ChatTemplate } from "../chat/template.ts";
import type { Weight } from "../graph/graph.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

export interface EngineParts {
  readonly name: string;
  readonly format: string;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, Weight>;
  /** Reads bytes of a tensor directly into the backend's memory. */
  readTensor(name: string, target: Uint8Array, byteOffset: number): Promise<void>;
  /** Both may be made when they are first read: after prepare(), while the backend's threads read weights. */
  readonly tokenizer: Tokenizer;
  /** undefined if the model has none. */
  readonly template: ChatTemplate | undefined;
  readonly backend: Backend;
  /** Whether the kernels for all types that matter were tuned on this machine. */
  readonly isTuned?: boolean;
  /** Adapter files, in the order of their numbers. Default: none. readTensor() reads their factors as adapterTensor() names them. */
  readonly adapters?: readonly AdapterPart[];
  /** Neurons are predicted. Default: they are not. */
  readonly predictors?: PredictorPart;
}

/**
 * The location of predictors: a file, whose tensors readTensor() reads as predictorTensor() names them, or the tensors of the model.
 */
export type PredictorPart =
  | { readonly name: string; readonly metadata: Metadata; readonly tensors: EngineParts["tensors"] }
  | "model";

/** The name of a predictor's tensor among the model's. */
export function predictorTensor(tensor: string): string {
  return `predictor.${tensor}`;
}

export interface AdapterPart {
  /** Its name, for messages. */
  readonly name: string;
  /** The path it was read from, for messages. */
  readonly path: string;
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, Weight>;
  /** The scale of requests that do not say. */
  readonly scale: number;
  /** A fingerprint of its weights. */
  readonly fingerprint: string;
}

/** The name of an adapter's tensor among the model's. */
export function adapterTensor(adapter: number, tensor: string): string {
  return `adapter.${adapter}.${tensor}`;
}
