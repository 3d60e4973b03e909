// Every kernel of the CPU backend that is not a matrix product. A new one is a file and a line here.

import type { Kernel } from "../ir/kernel.ts";
import { gelu, relu, silu } from "./activate.ts";
import { attentionMix } from "./attention-mix.ts";
import { attentionScores } from "./attention-scores.ts";
import { add, mul } from "./binary.ts";
import { copy } from "./copy.ts";
import { geluGate, reluGate, siluGate } from "./gate.ts";
import { quantizeKvQ8_0, storeF16 } from "./kv-write.ts";
import { layerNorm, layerNormBias } from "./layer-norm.ts";
import { rmsNorm } from "./rms-norm.ts";
import { ropeHalf, ropeInterleaved } from "./rope.ts";
import { roundBf16, roundF16 } from "./round.ts";
import { scale } from "./scale.ts";
import { softcap } from "./softcap.ts";
import { softmax } from "./softmax.ts";
import { widenBf16, widenF16, widenTileF16 } from "./widen.ts";

/** Each takes the bytes of a vector register, and how many of these there are, if it has tiles. */
export const elementwiseKernels: readonly ((width: number, registers?: number) => Kernel)[] = [
  rmsNorm,
  layerNorm,
  layerNormBias,
  ropeInterleaved,
  ropeHalf,
  silu,
  gelu,
  relu,
  siluGate,
  geluGate,
  reluGate,
  add,
  mul,
  scale,
  softcap,
  copy,
  roundF16,
  roundBf16,
  widenF16,
  widenBf16,
  widenTileF16,
  softmax,
  ...attentionScores,
  ...attentionMix,
  storeF16,
  quantizeKvQ8_0,
];

/** Kernels that are not written for every width: the most bytes of a vector. */
export const widestVectors: Readonly<Record<string, number>> = { quantize_kv_q8_0: 32 };
