// Models whose files exist in two forms: the tiny files of ../shared/archs in the other form give llama.cpp's logits, too.
// Held against: llama.cpp's logits.

import { expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { describeShared } from "../support/shared.ts";
import { expectArch, type PlainTensor, type Reshape } from "./archs-golden.ts";

type Tensors = Map<string, PlainTensor>;

/** Takes a tensor out. */
function take(tensors: Tensors, name: string): PlainTensor {
  const tensor = tensors.get(name)!;
  tensors.delete(name);
  return tensor;
}

/** Layers that have a tensor. */
function layersWith(tensors: Tensors, name: string): number[] {
  return [...tensors.keys()]
    .filter((full) => full.endsWith(`.${name}`))
    .map((full) => Number(full.split(".")[1]));
}

/** Rows of matrices, one after the other: `parts` are [matrix, first row, rows]. */
function rows(
  cols: number,
  parts: readonly (readonly [PlainTensor, number, number])[],
): PlainTensor {
  const pieces = parts.map(([{ values }, from, count]) =>
    values.subarray(from * cols, (from + count) * cols),
  );
  const all = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return { shape: [all.length / cols, cols], values: all };
}

/** Gate and up of experts: [experts, n, embed] each -> [experts, 2 * n, embed]. */
const fuseExperts: Reshape = (tensors) => {
  for (const layer of layersWith(tensors, "ffn_gate_exps.weight")) {
    const name = (part: string) => `blk.${layer}.ffn_${part}_exps.weight`;
    const [gate, up] = [take(tensors, name("gate")), take(tensors, name("up"))];
    const [experts, n, embed] = gate.shape as [number, number, number];
    const parts = Array.from({ length: experts }, (_, e) =>
      [gate, up].map((one) => [one, e * n, n] as const),
    );
    const { values } = rows(embed, parts.flat());
    tensors.set(name("gate_up"), { shape: [experts, 2 * n, embed], values });
  }
};

/** q, k, v and z of Qwen3-Next in one tensor, by key heads. */
const fuseDeltaNet: Reshape = (tensors) => {
  for (const layer of layersWith(tensors, "ssm_ba.weight")) {
    const name = (part: string) => `blk.${layer}.${part}.weight`;
    const [qkv, z] = [take(tensors, name("attn_qkv")), take(tensors, name("attn_gate"))];
    const [inner, embed] = z.shape as [number, number];
    const states = tensors.get(name("ssm_norm"))!.shape[0]!;
    const keys = (qkv.shape[0]! - inner) / 2;
    const groups = keys / states;
    const own = inner / groups;
    const parts = Array.from({ length: groups }, (_, head) => [
      [qkv, head * states, states] as const,
      [qkv, keys + head * states, states] as const,
      [qkv, 2 * keys + head * own, own] as const,
      [z, head * own, own] as const,
    ]);
    tensors.set(name("ssm_in"), rows(embed, parts.flat()));
  }
};

/** Keys and values of latent attention: [heads, rank, n] and [heads, v, rank] -> [heads * (n + v), rank]. */
const joinLatent: Reshape = (tensors) => {
  for (const layer of layersWith(tensors, "attn_k_b.weight")) {
    const name = (part: string) => `blk.${layer}.attn_${part}_b.weight`;
    const [k, v] = [take(tensors, name("k")), take(tensors, name("v"))];
    const [heads, rank, n] = k.shape as [number, number, number];
    const turned = new Float32Array(k.values.length); // [heads, n, rank]
    for (let i = 0; i < turned.length; i++) {
      const [head, row, col] = [Math.floor(i / (n * rank)), Math.floor(i / rank) % n, i % rank];
      turned[i] = k.values[(head * rank + col) * n + row]!;
    }
    const size = v.shape[1]!;
    const keys = { shape: [heads * n, rank], values: turned };
    const parts = Array.from({ length: heads }, (_, head) => [
      [keys, head * n, n] as const,
      [v, head * size, size] as const,
    ]);
    tensors.set(name("kv"), rows(rank, parts.flat()));
  }
};

describeShared("llama.cpp's logits of another form of the file", "archs", () => {
  test.each([
    ["qwen3moe", "gate and up of experts in one tensor", fuseExperts],
    ["deepseek2", "gate and up of experts in one tensor", fuseExperts],
    ["qwen3next", "ssm_in", fuseDeltaNet],
    ["kimi-linear", "attn_kv_b", joinLatent],
  ])("%s, %s", async (file, _, reshape) => {
    await expectArch(file, new ReferenceBackend(), "brief", reshape);
    expect.hasAssertions();
  });
});
