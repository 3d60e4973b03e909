// Hostile headers (hostile.ts) of every architecture in the table: a sample of all that can be wrong, on small models that the test
// makes. Each is refused with the key or the weight, what was found and what was expected, or computes finite logits. All of
// it, on llama.cpp's own files: hostile-files.test.ts.

import { describe, expect, test } from "vitest";
import { arrayEntry, type MetadataEntry } from "../../src/formats/typed-metadata.ts";
import { allArchs } from "../../src/models/table.ts";
import { attempt, type Base, type Change, keyChanges, keysRead, madeBase } from "./hostile.ts";

/** One of so many changes is tried. */
const SAMPLE = 131;

describe("a sample of what can be wrong", () => {
  const names = allArchs().map(({ names }) => names[0]!);
  test.each(names.map((name, i) => [name, i] as const))("%s", async (name, offset) => {
    const base = madeBase(name);
    const keys = await keysRead(base);
    const changes = keys.flatMap((key) => [...keyChanges(base, key)]);
    expect(changes.length).toBeGreaterThan(SAMPLE);
    for (let i = offset % SAMPLE; i < changes.length; i += SAMPLE) {
      await expectRefusedOrComputed(base, changes[i]!);
    }
  });
});

/** Says which key or weight, what it is, and what to expect. */
async function expectRefusedOrComputed(base: Base, change: Change): Promise<void> {
  const { bug, text } = await attempt(base, change);
  expect(bug, change.what).toBeUndefined();
  if (text === "computed") return;
  expect(text, change.what).toMatch(
    /expected|does not fit|do not fit|cannot hold|trained for|holds/,
  );
}

const u32 = (value: number): MetadataEntry => ({ type: "u32", value });

describe("what is wrong, and what to do", () => {
  test.each<[string, string, MetadataEntry | undefined, string]>([
    ["qwen3moe", "expert_count", u32(8), "blk.0.ffn_gate_exps.weight is [4, 64, 32], expected [8,"],
    [
      "qwen3moe",
      "expert_used_count",
      u32(0),
      "expert_used_count: got 0, expected an integer from 1",
    ],
    ["jamba", "attention.head_count_kv", undefined, "head_count_kv: got nothing, expected"],
    ["gemma2", "attention.sliding_window_pattern", arrayEntry("bool", [true]), "got 1 values"],
    ["llama", "attention.sliding_window", { type: "i32", value: -1 }, "window: got -1, expected"],
    ["llama", "expert_count", { type: "i32", value: -1 }, "expert_count: got -1, expected"],
    ["qwen2", "expert_count", { type: "i32", value: -1 }, "expert_count: got -1, expected 0"],
    ["llama", "rope.freq_base", u32(1), "rope.freq_base: got 1, expected a number above 1"],
    ["llama", "rope.scaling.factor", { type: "f32", value: 1e-30 }, "from 0.001 to 1000000"],
    ["llama", "rope.scaling.attn_factor", { type: "f32", value: 1e30 }, "from 0.001 to 1000"],
    ["llama", "attention.layer_norm_rms_epsilon", u32(1), "got 1, expected a number above 0 and"],
    ["llama", "attention.layer_norm_rms_epsilon", { type: "f64", value: 1e300 }, "a finite number"],
    ["granite", "logit_scale", { type: "f32", value: 1e-38 }, "expected a number from 1e-30 to"],
    ["llama4", "attention.sliding_window", { type: "i32", value: -4 }, "window: got -4, expected"],
    ["mistral3", "attention.temperature_scale", { type: "f32", value: -1 }, "from 0 to 1000"],
  ])("%s.%s = %o", async (name, key, entry, message) => {
    const change = { what: key, key: `${name}.${key}`, entry };
    const { bug, text } = await attempt(madeBase(name), change);
    expect(bug).toBeUndefined();
    expect(text).toContain(message);
    expect(text).toContain("download or convert it again");
  });

  test("xielu's parameters are bounded", async () => {
    const change = { what: "", key: "xielu.beta", entry: arrayEntry("f64", [0.5, 1e300]) };
    const { text } = await attempt(madeBase("apertus"), change);
    expect(text).toMatch(/xielu.beta: got 1e\+300 for layer 1, expected a number from -1000 to/);
  });

  test("Llama 3's frequency bands are in order", async () => {
    const base = madeBase("llama");
    const entries = new Map(base.entries)
      .set("llama.rope.scaling.type", { type: "string", value: "llama3" })
      .set("llama.rope.scaling.low_freq_factor", u32(4));
    const { text } = await attempt({ ...base, entries });
    expect(text).toContain("high_freq_factor: got 4, expected more than low_freq_factor, 4");
  });

  test("an architecture with a name of ten megabytes", async () => {
    const value = "llama".repeat(2e6);
    const change = {
      what: "",
      key: "general.architecture",
      entry: { type: "string", value },
    } as const;
    const { bug, text, isRefused } = await attempt(madeBase("llama"), change);
    expect([bug, isRefused]).toEqual([undefined, true]);
    expect(text.length).toBeLessThan(500);
  });
});

test.each([
  ["mamba", /recurrent state [\d.]+ KiB, working memory/],
  ["jamba", /KV cache and recurrent state [\d.]+ KiB for 64 tokens of f32, working memory/],
  ["llama", /KV cache [\d.]+ KiB for 64 tokens of f32, working memory/],
])("%s: a state that does not fit is refused by its name", async (name, message) => {
  const { bug, text } = await attempt(madeBase(name), undefined, 1000);
  expect(bug).toBeUndefined();
  expect(text).toMatch(message);
});

test.each([
  ["bert", "token_embd.weight", "token_embd.weight: got no such tensor, expected the table"],
  ["llama", "blk.0.attn_norm.weight", "missing: blk.0.attn_norm.weight [32]"],
])("%s without %s says what was expected, and what to do", async (name, tensor, message) => {
  const { bug, text } = await attempt(madeBase(name), { what: tensor, tensor });
  expect(bug).toBeUndefined();
  expect(text).toContain(message);
  expect(text).toContain("download or convert it again");
});

test("an encoder whose embedding is NaN says so", async () => {
  const base = madeBase("bert");
  const tensor = "blk.1.attn_output.weight";
  const { byteLength } = base.bytes.get(tensor)!;
  const bytes = () => new Uint8Array(new Float32Array(byteLength / 4).fill(Number.NaN).buffer);
  const change = { what: tensor, tensor, weight: base.tensors.get(tensor)!, bytes };
  const { bug, text } = await attempt(base, change);
  expect(bug).toBeUndefined();
  expect(text).toMatch(
    /"blk.1.attn_output" holds NaN, computed with blk.1.attn_output.weight .*damaged/,
  );
});

describe("a router", () => {
  const base = madeBase("qwen3moe");
  const withValue = (tensor: string, at: number, value: number): Change => {
    const floats = new Float32Array(base.bytes.get(tensor)!.slice().buffer);
    floats[at] = value;
    const bytes = () => new Uint8Array(floats.buffer);
    return { what: tensor, tensor, weight: base.tensors.get(tensor)!, bytes };
  };

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("with %d is refused at load", async (value) => {
    const { bug, text } = await attempt(base, withValue("blk.1.ffn_gate_inp.weight", 70, value));
    expect(bug).toBeUndefined();
    expect(text).toContain(
      `blk.1.ffn_gate_inp.weight[2, 6]: got ${value}, expected finite numbers`,
    );
  });

  test("with a bias of NaN, too", async () => {
    const glm = madeBase("glm4moe");
    const tensor = [...glm.tensors.keys()].find((name) => name.endsWith("exp_probs_b.bias"))!;
    const bytes = () => new Uint8Array(Float32Array.of(0, 0, 0, Number.NaN).buffer);
    const change = { what: tensor, tensor, weight: glm.tensors.get(tensor)!, bytes };
    const { text } = await attempt(glm, change);
    expect(text).toContain(`${tensor}[3]: got NaN, expected finite numbers`);
  });
});
