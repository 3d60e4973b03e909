// The table of the kernels that are not matmuls, those of elementwise/, attention/ and scan/. The CPU backend lowers them all. A new
// kernel is a file and a line here.

import { type KernelMaker, lazily } from "../ir/lazy-kernel.ts";
import { attentionMix } from "./attention/attention-mix.ts";
import { attentionMany } from "./attention/attention-prefill.ts";
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

export const elementwiseKernels: readonly KernelMaker[] = [
  lazily("rms_norm", rmsNorm),
  lazily("layer_norm", layerNorm),
  lazily("layer_norm_bias", layerNormBias),
  lazily("rope_interleaved", ropeInterleaved),
  lazily("rope_half", ropeHalf),
  lazily("silu", silu),
  lazily("gelu", gelu),
  lazily("relu", relu),
  lazily("relu_squared", reluSquared),
  lazily("sigmoid", sigmoid),
  lazily("silu_gate", siluGate),
  lazily("gelu_gate", geluGate),
  lazily("relu_gate", reluGate),
  lazily("relu_squared_gate", reluSquaredGate),
  lazily("sigmoid_gate", sigmoidGate),
  lazily("softplus", softplus),
  lazily("softplus_gate", softplusGate),
  lazily("exp", exp),
  lazily("exp_gate", expGate),
  lazily("step", step),
  lazily("step_gate", stepGate),
  lazily("swiglu_oai_gate", swigluOaiGate),
  lazily("add", add),
  lazily("mul", mul),
  lazily("scale", scale),
  lazily("scale_add", scaleAdd),
  lazily("softcap", softcap),
  lazily("copy", copy),
  lazily("round_f16", roundF16),
  lazily("round_bf16", roundBf16),
  lazily("widen_f16", widenF16),
  lazily("widen_bf16", widenBf16),
  lazily("widen_tile_f16", widenPanelF16),
  lazily("softmax", softmax),
  lazily("block_max", blockMax),
  ...attentionScores,
  ...attentionMix,
  ...attentionMany,
  ...kvWidens,
  lazily("store_f16", storeF16),
  lazily("quantize_kv_q8_0", quantizeKvQ8_0),
  lazily("scan_decay", decayScan),
  lazily("scan_decay_tokens", decayScanTokens),
  ...headScans,
  lazily("scan_channels", channelScan),
  ...shortConvs,
];

/** Kernels that are not written for every width: the most bytes of a vector. */
export const widestVectors: Readonly<Record<string, number>> = { quantize_kv_q8_0: 32 };
