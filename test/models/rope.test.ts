// Rope scaling from a Hugging Face configuration must be what llama.cpp's converter makes of the same configuration:
// a tensor of factors for llama3, metadata for yarn and linear. What those mean is held by tiny-golden.test.ts.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { huggingFaceMetadata } from "../../src/formats/huggingface-metadata.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import type { Rope } from "../../src/graph/graph.ts";
import { ConfigReader } from "../../src/models/config-reader.ts";
import { ropeFromMetadata } from "../../src/models/rope.ts";
import { plainMetadata } from "../support/tiny-engine.ts";
import { readTinyGolden, tinyLogits } from "./tiny-golden.ts";
import { floatModels, tinyGguf } from "./tiny-models.ts";

interface Llama3Case {
  name: string;
  config: JsonObject & { hidden_size: number; num_attention_heads: number; head_dim?: number };
  /** The converter's rope_freqs.weight. */
  factors: number[];
}

const { cases } = JSON.parse(
  readFileSync(new URL("./data/llama3-rope-factors.json", import.meta.url), "utf8"),
) as { cases: Llama3Case[] };

describe("llama3", () => {
  test.each(cases)(
    "$name: frequencies divided by the converter's factors",
    ({ config, factors }) => {
      const headDim = config.head_dim ?? config.hidden_size / config.num_attention_heads;
      const { rope_parameters: parameters, ...rest } = config;
      const theta = (parameters as JsonObject).rope_theta;
      const plain = hubRope({ ...rest, rope_theta: theta }, headDim);
      const newStyle = hubRope(config, headDim);
      const oldStyle = hubRope({ ...rest, rope_theta: theta, rope_scaling: parameters }, headDim);
      expect(factors.length).toBe(headDim / 2);
      expect(new Set(factors).size).toBeGreaterThan(2);
      for (const rope of [newStyle, oldStyle]) {
        expect(rope.magnitude).toBe(1);
        factors.forEach((factor, pair) => {
          const wanted = plain.frequencies[pair]! / factor;
          // The converter has float32 frequencies; where two bands are blended, their last bits show.
          expect(Math.abs(rope.frequencies[pair]! / wanted - 1), `pair ${pair}`).toBeLessThan(1e-5);
        });
      }
    },
  );

  test("as metadata, the logits that llama.cpp computes with the factors", async () => {
    const model = floatModels.find(({ name }) => name === "llama-llama3")!;
    expect(model.ropeFactors?.map(Math.fround)).toEqual(cases.at(-1)!.factors.map(Math.fround));
    const { ropeFactors, ...asMetadata } = model;
    const got = await tinyLogits(
      await tinyGguf({
        ...asMetadata,
        metadata: {
          "rope.scaling.type": { type: "string", value: "llama3" },
          "rope.scaling.factor": { type: "f32", value: 8 },
          "rope.scaling.low_freq_factor": { type: "f32", value: 1 },
          "rope.scaling.high_freq_factor": { type: "f32", value: 4 },
          "rope.scaling.original_context_length": { type: "u32", value: 256 },
        },
      }),
      0,
    );
    for (const { position, top } of readTinyGolden(model.name).top) {
      const logits = new Map(got.positions[position]!.top);
      for (const [id, logit] of top) expect(Math.abs(logits.get(id)! - logit)).toBeLessThan(1e-3);
    }
  });
});

describe("yarn", () => {
  const scaling = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 128 };
  const asGguf = ggufRope({
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4,
    "rope.scaling.original_context_length": 128,
  });

  test("a Hugging Face configuration is the GGUF metadata that the converter writes", () => {
    expect(hubRope({ rope_scaling: scaling }, 16)).toEqual({ ...asGguf, layout: "half" });
    expect(hubRope({ rope_parameters: scaling }, 16)).toEqual({ ...asGguf, layout: "half" });
    const oldName = { ...scaling, rope_type: undefined, type: "yarn" };
    expect(hubRope({ rope_scaling: oldName }, 16)).toEqual({ ...asGguf, layout: "half" });
  });

  test("fast pairs are kept, slow ones divided by the factor, those between blended", () => {
    const plain = ggufRope({});
    const divisors = asGguf.frequencies.map((f, pair) => plain.frequencies[pair]! / f);
    expect(divisors[0]).toBeCloseTo(1, 6);
    expect(divisors.at(-1)).toBeCloseTo(4, 5);
    expect(divisors.toSorted()).toEqual(divisors);
    expect(divisors.filter((divisor) => divisor > 1.01 && divisor < 3.99).length).toBeGreaterThan(
      0,
    );
  });

  test("beta_fast and beta_slow move the blended band", () => {
    const wider = hubRope({ rope_scaling: { ...scaling, beta_fast: 4, beta_slow: 2 } }, 16);
    const same = hubRope({ rope_scaling: { ...scaling, beta_fast: 32, beta_slow: 1 } }, 16);
    expect(same.frequencies).toEqual(asGguf.frequencies);
    expect(wider.frequencies).not.toEqual(asGguf.frequencies);
  });

  test("attention_factor is the whole factor on the rotated values", () => {
    expect(asGguf.magnitude).toBeCloseTo(1 + 0.1 * Math.log(4), 12);
    const rope = hubRope({ rope_scaling: { ...scaling, attention_factor: 0.75 } }, 16);
    expect(rope.magnitude).toBeCloseTo(0.75, 6);
  });
});

test("linear: a Hugging Face configuration is the GGUF metadata that the converter writes", () => {
  const asGguf = ggufRope({ "rope.scaling.type": "linear", "rope.scaling.factor": 2.5 });
  const rope = hubRope({ rope_scaling: { type: "linear", factor: 2.5 } }, 16);
  expect(rope).toEqual({ ...asGguf, layout: "half" });
  expect(rope.frequencies[0]).toBeCloseTo(0.4, 7);
});

/** What a llama model with this config.json rotates by. */
function hubRope(config: JsonObject, headDim: number): Rope {
  const whole = {
    model_type: "llama",
    num_hidden_layers: 1,
    hidden_size: headDim,
    intermediate_size: 32,
    num_attention_heads: 1,
    max_position_embeddings: 512,
    ...config,
  };
  const rest = {
    generationConfig: {},
    tokenizerConfig: {},
    tokenizer: {},
    chatTemplate: undefined,
  };
  const metadata = huggingFaceMetadata({ config: whole, ...rest }, "test");
  return ropeFromMetadata(new ConfigReader(metadata, "llama"), headDim, "interleaved");
}

/** The same for GGUF metadata, heads of 16. */
function ggufRope(keys: Readonly<Record<string, string | number>>): Rope {
  const entries = Object.entries(keys).map(([key, value]) => [`llama.${key}`, value] as const);
  const metadata = plainMetadata(Object.fromEntries(entries));
  return ropeFromMetadata(new ConfigReader(metadata, "llama"), 16, "interleaved");
}
