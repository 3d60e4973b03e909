// The table of the kernels that are not matmuls, those of elementwise/, attention/ and scan/. The CPU backend lowers them all. A new
// kernel is a file and a line here.

import type { Kernel } from "../ir/kernel.ts";
import { attentionMany } from "./attention/attention-many.ts";
import { attentionMix } from "./attention/attention-mix.ts";
import { attentionScores } from "./attention/attention-scores.ts";
import { kvWidens } from "./attention/kv-widen.ts";
import { quantizeKvQ8_0, storeF16 } from "./attention/kv-write.ts";
import {
  exp,
  gelu,
  relu,
  reluSquared,
  sigmoid,
  silu,
  softplus,
  step,
} from "./elementwise/activate.ts";
import { add, mul } from "./elementwise/binary.ts";
import { blockMax } from "./elementwise/block-max.ts";
import { copy } from "./elementwise/copy.ts";
import {
  expGate,
  geluGate,
  reluGate,
  reluSquaredGate,
  sigmoidGate,
  siluGate,
  softplusGate,
  stepGate,
  swigluOaiGate,
} from "./elementwise/gate.ts";
import { layerNorm, layerNormBias } from "./elementwise/layer-norm.ts";
import { rmsNorm } from "./elementwise/rms-norm.ts";
import { ropeHalf, ropeInterleaved } from "./elementwise/rope.ts";
import { roundBf16, roundF16 } from "./elementwise/round.ts";
import { scale, scaleAdd } from "./elementwise/scale.ts";
import { softcap } from "./elementwise/softcap.ts";
import { softmax } from "./elementwise/softmax.ts";
import { widenBf16, widenF16, widenPanelF16 } from "./elementwise/widen.ts";
import { channelScan } from "./scan/channel-scan.ts";
import { decayScan, decayScanTokens } from "./scan/decay-scan.ts";
import { headScans } from "./scan/head-scan.ts";
import { shortConvs } from "./scan/short-conv.ts";

/** Each takes the bytes of a vector register and, if its register tile depends on it, how many of them there are. */
export const elementwiseKernels: readonly ((width: number, registers?: number) => Kernel)[] = [
  rmsNorm,
  layerNorm,
  layerNormBias,
  ropeInterleaved,
  ropeHalf,
  silu,
  gelu,
  relu,
  reluSquared,
  sigmoid,
  siluGate,
  geluGate,
  reluGate,
  reluSquaredGate,
  sigmoidGate,
  softplus,
  softplusGate,
  exp,
  expGate,
  step,
  stepGate,
  swigluOaiGate,
  add,
  mul,
  scale,
  scaleAdd,
  softcap,
  copy,
  roundF16,
  roundBf16,
  widenF16,
  widenBf16,
  widenPanelF16,
  softmax,
  blockMax,
  ...attentionScores,
  ...attentionMix,
  ...attentionMany,
  ...kvWidens,
  storeF16,
  quantizeKvQ8_0,
  decayScan,
  decayScanTokens,
  ...headScans,
  channelScan,
  ...shortConvs,
];

/** Kernels that are not written for every width: the most bytes of a vector. */
export const widestVectors: Readonly<Record<string, number>> = { quantize_kv_q8_0: 32 };
