// perplexity() through open models and files: llama.cpp's numbers, windows and their first token, bases saved and
// compared with, and what cannot be.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AbortedError,
  ContextError,
  type Estimate,
  FormatError,
  type Model,
  open,
  perplexity,
  SourceError,
  UsageError,
} from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { tinyFile } from "../support/tiny-file.ts";

const text =
  "the cat sat at the sea and ate eels, the eels at the sea sat; a cat ate the tea ".repeat(4);
/** Of the models whose numbers llama.cpp computed: the random values of a weight depend on those before it. */
const layerWeights = [
  ...["attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight"],
  ...["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.weight", "attn_output.bias"],
  ...["ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
];
const folder = mkdtempSync(join(tmpdir(), "lantern-perplexity-"));
let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
beforeAll(async () => {
  file = await tinyFile({ layerWeights });
  model = await open(file.path, { kvType: "f32", contextSize: 80 });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
  rmSync(folder, { recursive: true });
});

/** Runs with `saveBase` and puts what it gives into a file. */
async function savedBase(name: string, options: { chunks?: number } = {}): Promise<string> {
  const parts: Uint8Array[] = [];
  await perplexity(model, text, {
    contextSize: 40,
    ...options,
    saveBase: { write: async (bytes) => void parts.push(bytes) },
  });
  const path = join(folder, name);
  writeFileSync(path, Buffer.concat(parts));
  return path;
}

/** Within a ten-thousandth. */
function near(found: Estimate, value: number, error: number): void {
  expect(found.value / value).toBeCloseTo(1, 4);
  expect(found.error / error).toBeCloseTo(1, 4);
}

test("special tokens in a text are text, unless they are asked for", async () => {
  const chat = "<s>the cat sat</s>".repeat(12);
  const plain = await perplexity(model, chat, { contextSize: 40 });
  const special = await perplexity(model, chat, { contextSize: 40, parseSpecial: true });
  const ids = await model.tokenize(chat, { parseSpecial: true });
  expect(special.windows).toBe(Math.floor(ids.length / 40));
  expect(plain.windows).toBeGreaterThan(special.windows);
});

describe("score()", () => {
  test("agrees with logits(), position by position", async () => {
    const tokens = (await model.tokenize(text)).slice(0, 70);
    const { positions } = await model.logits(tokens, { top: model.info.vocabSize });
    const { logprobs, top } = await model.score(tokens, { from: 30 });
    expect(logprobs).toHaveLength(39);
    for (const [at, logprob] of logprobs.entries()) {
      const logits = new Map(positions[30 + at]!.top);
      const sum = [...logits.values()].reduce((total, logit) => total + Math.exp(logit), 0);
      expect(logprob).toBeCloseTo(logits.get(tokens[31 + at]!)! - Math.log(sum), 4);
      expect(top[at]).toBe(positions[30 + at]!.top[0]![0]);
    }
  });

  test("the first token is BOS where that is asked for, and is itself where not", async () => {
    const tokens = (await model.tokenize(text, { addBos: false })).slice(0, 20);
    const withBos = await model.score([1, ...tokens.slice(1)]);
    expect(await model.score(tokens, { firstIsBos: true })).toEqual(withBos);
    expect((await model.score(tokens)).logprobs).not.toEqual(withBos.logprobs);
  });

  test("what cannot be", async () => {
    await expect(model.score([5])).rejects.toBeInstanceOf(UsageError);
    await expect(model.score([5, 6, 7], { from: 2 })).rejects.toThrow(/from: got 2 with 3 tokens/);
    await expect(model.score([5, 9999])).rejects.toThrow(/9999 is not in the vocabulary/);
    await expect(model.score(new Array(81).fill(5))).rejects.toBeInstanceOf(ContextError);
    const base = new Uint16Array(7);
    await expect(model.score([5, 6, 7], { base })).rejects.toThrow(/base has 7 values/);
    await expect(model.score([5, 6], { signal: AbortSignal.abort() })).rejects.toBeInstanceOf(
      AbortedError,
    );
  });
});

describe("perplexity()", () => {
  test("is exp of the mean over the second halves of whole windows", async () => {
    const tokens = await model.tokenize(text, { parseSpecial: false });
    const windows = Math.floor(tokens.length / 40);
    expect(windows).toBeGreaterThan(3);
    let nll = 0;
    for (let window = 0; window < windows; window++) {
      const [, ...rest] = tokens.slice(40 * window, 40 * (window + 1));
      const { logprobs } = await model.score([1, ...rest], { from: 20 });
      expect(logprobs).toHaveLength(19);
      for (const logprob of logprobs) nll -= logprob;
    }
    const seen: number[] = [];
    const result = await perplexity(model, text, {
      contextSize: 40,
      onProgress: ({ window }) => seen.push(window),
    });
    expect(result.perplexity.value).toBeCloseTo(Math.exp(nll / (19 * windows)), 9);
    expect(result).toMatchObject({ windows, contextSize: 40, scored: 19 * windows });
    expect(seen).toEqual(Array.from({ length: windows }, (_, i) => i + 1));
  });

  test("opens a model by its place; windows at the same time give the same value", async () => {
    const options = { contextSize: 40, open: { kvType: "f32" } } as const;
    const one = await perplexity(model, text, { contextSize: 40 });
    const many = await perplexity(file.path, text, { ...options, parallel: 3 });
    expect(many.perplexity.value).toBeCloseTo(one.perplexity.value, 9);
  });

  test("an abort and a failure of the sink end it", async () => {
    const controller = new AbortController();
    const aborted = perplexity(model, text, {
      contextSize: 40,
      signal: controller.signal,
      onProgress: () => controller.abort(),
    });
    await expect(aborted).rejects.toBeInstanceOf(AbortedError);
    let pieces = 0;
    const full = perplexity(model, text, {
      contextSize: 40,
      parallel: 2,
      saveBase: {
        write: async () => {
          if (++pieces === 3) throw new SourceError("the disk is full");
        },
      },
    });
    await expect(full).rejects.toThrow("the disk is full");
    expect(pieces).toBe(3);
  });

  test("says what is wrong", async () => {
    await expect(perplexity(model, "short", { contextSize: 40 })).rejects.toThrow(
      /the text is too short: it has \d+ tokens, and two windows of 40 need 80/,
    );
    await expect(perplexity(model, text, { contextSize: 100 })).rejects.toThrow(
      /windows of 100 tokens do not fit tiny, whose context holds 80/,
    );
    await expect(perplexity(file.path, text, { contextSize: 1 << 20 })).rejects.toThrow(
      /windows of 1048576 tokens do not fit tiny, whose context holds \d+ \(trained for/,
    );
    await expect(perplexity(model, text, { contextSize: 3 })).rejects.toThrow(/at least 4/);
    await expect(perplexity(model, text, { chunks: 0 })).rejects.toThrow(/chunks: got 0/);
    await expect(perplexity(model, undefined)).rejects.toThrow(/got no text/);
    const wrong = { window: 3 } as object;
    await expect(perplexity(model, text, wrong)).rejects.toThrow(/unknown option "window"/);
  });
});

describe("a base", () => {
  test("of the same model: no divergence, and every likeliest token the same", async () => {
    const base = await savedBase("same.base");
    const plain = await perplexity(model, text, { contextSize: 40 });
    const compared = (await perplexity(model, undefined, { base, parallel: 2 })).base!;
    expect(compared.perplexity.value / plain.perplexity.value).toBeCloseTo(1, 4);
    expect(compared.divergence.max).toBeLessThan(1e-4);
    expect(compared.sameTop.value).toBe(1);
    expect(compared.ratio.value).toBeCloseTo(1, 4);
  });

  // The expected values were computed by llama.cpp's kl_divergence() (b21e4de) from this base and these logits.
  test("of another model: the statistics that llama.cpp makes of it", async () => {
    const base = await savedBase("other.base");
    const other = await tinyFile({ seed: 2, layerWeights });
    try {
      const options = { base, open: { kvType: "f32" } } as const;
      const { perplexity: own, base: found, scored } = await perplexity(other.path, text, options);
      const { ratio, divergence, change, sameTop } = found!;
      expect(scored).toBe(152);
      near(own, 321.0451, 30.61972);
      near(found!.perplexity, 849.672, 66.2259);
      near(ratio, 0.377846, 0.040372);
      near(divergence, 1.284174, 0.015197);
      near({ value: divergence.median, error: divergence.max }, 1.270617, 1.818208);
      near({ value: divergence.p90, error: divergence.p99 }, 1.539646, 1.818208);
      expect(change.mean.value).toBeCloseTo(0.00372, 5);
      expect(change.mean.error).toBeCloseTo(0.00045, 5);
      expect(change.rms.value).toBeCloseTo(0.00664, 5);
      expect(change.rms.error).toBeCloseTo(0.0005, 5);
      expect(sameTop).toEqual({ value: 0, error: 0 });
    } finally {
      other.remove();
    }
  });

  test("is refused where it does not belong", async () => {
    const base = await savedBase("refused.base");
    const other = await tinyFile({ vocab: 300 });
    try {
      await expect(perplexity(other.path, undefined, { base })).rejects.toThrow(
        /refused\.base was saved with another model: its vocabulary has \d+ tokens, that of tiny 300/,
      );
    } finally {
      other.remove();
    }
    await expect(perplexity(model, text, { base, contextSize: 64 })).rejects.toThrow(
      /saved with windows of 40 tokens, but windows of 64 were asked for/,
    );
    await expect(perplexity(model, `x${text}`, { base })).rejects.toThrow(
      /saved from another text, or with another tokenizer: its token 2 is/,
    );
    await expect(perplexity(model, text, { base: join(folder, "none") })).rejects.toBeInstanceOf(
      SourceError,
    );
  });

  test("that is damaged is refused before anything is computed", async () => {
    const base = readFileSync(await savedBase("whole.base", { chunks: 3 }));
    const damaged = async (name: string, bytes: Uint8Array) => {
      const path = join(folder, name);
      writeFileSync(path, bytes);
      return await perplexity(model, undefined, { base: path });
    };
    await expect(damaged("cut.base", base.subarray(0, -1))).rejects.toThrow(
      /windows: got 2, expected 3 of 40 tokens, but the file ends early: use these \(--chunks 2\)/,
    );
    await expect(damaged("head.base", base.subarray(0, 12))).rejects.toBeInstanceOf(FormatError);
    await expect(damaged("text.base", Buffer.from(text))).rejects.toThrow(/expected "_logits_"/);
    const huge = Buffer.from(base);
    huge.writeInt32LE(0x7fffffff, 8);
    await expect(damaged("huge.base", huge)).rejects.toBeInstanceOf(FormatError);
    const token = Buffer.from(base);
    token.writeInt32LE(-5, 24);
    await expect(damaged("token.base", token)).rejects.toThrow(/token 1: got -5/);
  });
});

describeShared("llama.cpp's numbers", "models/stories15M", () => {
  const stories = readFileSync(sharedPath("corpora/tinystories_sample.txt"), "utf8");

  test.each([
    ["Q8_0", 5.242],
    ["Q4_0", 5.431],
  ])("stories15M in %s, window 128: %f within 0.5%", async (type, expected) => {
    const path = sharedPath(`models/stories15M/stories15M-${type}.gguf`);
    const { perplexity: found, windows } = await perplexity(path, stories, { contextSize: 128 });
    expect(windows).toBe(7);
    expect(Math.abs(found.value / expected - 1)).toBeLessThan(0.005);
  });
});
