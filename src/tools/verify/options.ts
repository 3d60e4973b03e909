// The options of verify(): the backends, the layers, the part of a prompt, and the allowed difference of values.

import type { OpenOptions } from "../../api/api.ts";

export interface VerifyOptions {
  /** Names of backends. Default: "cpu", and "webgpu" if there is a GPU. */
  backends?: readonly string[] | undefined;
  /** The number of layers on the GPU, for backends that compute there: as in open(). Default: "all". */
  gpuLayers?: number | "all" | undefined;
  /** Compare only these layers; values outside layers are always compared. Default: all. */
  layers?: readonly number[] | undefined;
  /** The prompt. Default: a few words of a story. */
  prompt?: string | undefined;
  /** The most tokens of it (default 12); the last two are computed one by one. */
  tokens?: number | undefined;
  /** Type of the KV cache. Default: the one that does not round. */
  kvType?: NonNullable<OpenOptions["kvType"]> | undefined;
  /** As the option of open(). */
  weights?: NonNullable<OpenOptions["weights"]> | undefined;
  /** The largest relative difference that an op may make (default 1e-4). */
  tolerance?: number | undefined;
  threads?: number | undefined;
  /** Default: 4 if this machine can run machine code, otherwise 3. */
  level?: 2 | 3 | 4 | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((now: string, done: number, total: number) => void) | undefined;
}
