// Models that are loaded when a request names them: those of a folder, of the catalog or of a file of presets. The disk is behind
// this interface; `lantern serve` implements it (apps/cli/on-demand.ts), tests use fakes. model-pool.ts loads and unloads them.
//
// A name from a request is only compared with the names of the list and never becomes a path.

import type { GenerateOptions, Model, ModelInfo } from "../../../src/index.ts";
import type { TaskOptions } from "./library.ts";

/** Defaults of a model's requests. */
export interface ModelPreset {
  readonly sampling?: GenerateOptions | undefined;
  /** The system message of conversations that have none. */
  readonly system?: string | undefined;
  /** It is never unloaded, neither to make room nor after its keep-alive time. */
  readonly isPinned?: boolean | undefined;
  /** How long it stays in memory after its last request. */
  readonly keepMs?: number | undefined;
}

/** A model that can be loaded by its name. */
export interface OnDemandModel {
  readonly id: string;
  /** Further names that requests may use. */
  readonly aliases: readonly string[];
  /** Its file or folder, without the folders above it. */
  readonly file: string;
  /** Size of its files. */
  readonly bytes: number;
  /** Its source, in llama.cpp's words. */
  readonly source?: "preset" | "models_dir" | "cache" | undefined;
}

export interface OnDemandModels {
  list(): Promise<readonly OnDemandModel[]>;
  open(id: string, options: TaskOptions): Promise<Model>;
  /** The memory that it takes: weights, one context and working memory; 0: unknown. */
  needs(id: string): Promise<number>;
  /** The preset of any served model, by its own name; undefined: there is none. */
  preset(id: string): ModelPreset | undefined;
  /** The model that an alias of the presets names. */
  aliased(name: string): string | undefined;
  /** Another model with the files of one of the list, or of one that the server has started with. */
  derive(id: string, model: DerivedModel): Promise<void>;
  /** Forgets a derived model; false: there is none of that name. */
  forget(id: string): boolean;
  /** Changes when a model must be opened again, because its options have changed. */
  version(id: string): string;
}

/** A model that is opened with options of its own. */
export interface DerivedModel {
  readonly of: string;
  readonly preset: ModelPreset;
  /** A Jinja template, or the name of a built-in one. */
  readonly template?: string | undefined;
  readonly contextSize?: number | undefined;
  /** Files of LoRA adapters; none: those of its original. */
  readonly adapters?: readonly string[] | undefined;
}

export interface PoolLimits {
  /** Models in memory at a time; Infinity: as many as fit. */
  readonly models: number;
  /** The limit of bytes of all models in memory; undefined: the free memory. */
  readonly bytes?: number | undefined;
  /** Memory that is free now; undefined: not known, and each engine checks for itself. */
  readonly freeBytes?: (() => number) | undefined;
  /** Whether a request loads the model that it names. */
  readonly autoload: boolean;
}

export const noLimits: PoolLimits = { models: Infinity, autoload: true };

/** The memory of a loaded model: its weights, and one context, or a GPU's allocation at load. More sequences take more. */
export function heldBytes({
  weightBytes,
  disk,
  stateBytes,
  kvBytesPerToken,
  contextSize,
  firstStateBytes = 0,
}: ModelInfo): number {
  const state = Math.max(firstStateBytes, kvBytesPerToken * contextSize);
  return (disk?.memoryBytes ?? weightBytes) + Math.min(stateBytes, state);
}
