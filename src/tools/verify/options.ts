// What verify() is asked: which backends, which layers, how much of a prompt, and how far values may differ.

import type { OpenOptions } from "../../api/api.ts";

export interface VerifyOptions {
  /** Names of backends. Default: "cpu", and "webgpu" where there is a GPU. */
  backends?: readonly string[];
  /** How much of the model is on the GPU, for backends that compute there: as open() takes it. Default: "all". */
  gpuLayers?: number | "all";
  /** Compare only these layers; what is in no layer is always compared. Default: all. */
  layers?: readonly number[];
  /** What the model reads. Default: a few words of a story. */
  prompt?: string;
  /** Tokens of it at most (default 12), the last two of which are read one by one. */
  tokens?: number;
  /** Type of the KV cache. Default: the one that rounds nothing. */
  kvType?: NonNullable<OpenOptions["kvType"]>;
  /** The largest relative difference that an op may make (default 1e-4). */
  tolerance?: number;
  threads?: number;
  /** Default: 4 where this machine can, otherwise 3. */
  level?: 2 | 3 | 4;
  signal?: AbortSignal;
  onProgress?: (now: string, done: number, total: number) => void;
}
