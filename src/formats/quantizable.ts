// Selects the tensors of a model that may have another type than F32: its matrices, except small or sensitive ones. The rule is
// llama.cpp's. quantize and open() with `weights` change the same ones, so that both give the same model.

import type { TensorInfo } from "./model-file.ts";

/** Names of matrices that are never quantized: small, or too sensitive. */
const keptNames: readonly string[] = [
  "_norm.weight",
  "ffn_gate_inp.weight",
  "ffn_gate_tid2eid.weight",
  "altup",
  "laurel",
  "per_layer_model_proj",
  "ssm_conv1d",
  "shortconv.conv.weight",
  "indexer.k_proj.weight",
  "indexer.q_proj.weight",
  "time_mix_first.weight",
  "time_mix_w0.weight",
  "time_mix_w1.weight",
  "time_mix_w2.weight",
  "time_mix_v0.weight",
  "time_mix_v1.weight",
  "time_mix_v2.weight",
  "time_mix_a0.weight",
  "time_mix_a1.weight",
  "time_mix_a2.weight",
  "time_mix_g1.weight",
  "time_mix_g2.weight",
  "time_mix_decay_w1.weight",
  "time_mix_decay_w2.weight",
  "time_mix_lerp_fused.weight",
  "attn_rel_b.weight",
  ".position_embd",
  "sam.pos_embd",
  "sam.neck.",
  "sam.net_",
  ".rel_pos",
  ".patch_embd",
  ".patch_merger",
  "a.rvq.codebook",
  "mm.a.code_embd",
];
const keptWhole: readonly string[] = ["position_embd.weight", "token_types.weight"];

export function isQuantizable({ name, shape }: Pick<TensorInfo, "name" | "shape">): boolean {
  // Outer dimensions of 1 do not count.
  const dimensions = shape.length - shape.findIndex((dim, i) => dim > 1 || i === shape.length - 1);
  if (dimensions < 2 || !name.endsWith("weight")) return false;
  return !keptWhole.includes(name) && !keptNames.some((part) => name.includes(part));
}
