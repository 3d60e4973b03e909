// The options of verify(): which backends, which layers, how much of a prompt, and how far values may differ.

import type { OpenOptions } from "../../api/api.ts";

export interface VerifyOptions {
  /** Names of backends. Default: "cpu", and "webgpu" if there is a GPU. */
  backends?: readonly string[];
  /** How many layers are on the GPU, for backends that compute there: as in open(). Default: "all". */
  gpuLayers?: number | "all";
  /** Compare only these layers; values outside layers are always compared. Default: all. */
  layers?: readonly number[];
  /** The prompt. Default: a few words of a story. */
  prompt?: string;
  /** The most tokens of it (default 12); the last two are computed one by one. */
  tokens?: number;
  /** Type of the KV cache. Default: the one that does not round. */
  kvType?: NonNullable<OpenOptions["kvType"]>;
  /** As the option of open(). */
  weights?: NonNullable<OpenOptions["weights"]>;
  /** The largest relative difference that an op may make (default 1e-4). */
  tolerance?: number;
  threads?: number;
  /** Default: 4 if this machine can run machine code, otherwise 3. */
  level?: 2 | 3 | 4;
  signal?: AbortSignal;
  onProgress?: (now: string, done: number, total: number) => void;
}
