// Reasoning that ends after so many tokens: with made-up tokens, and with a real model.

import { describe, expect, test } from "vitest";
import type { RenderedPrompt } from "../../src/base/rendered-prompt.ts";
import { ReasoningBudget } from "../../src/engine/reasoning-budget.ts";
import { open } from "../../src/index.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";

/** Tokens 100 and 101 are the marks, 102 a message; others are letters, and 200 and 201 two halves of a character. */
const texts: Record<number, string> = { 100: "<think>", 101: "</think>", 102: "Enough. " };
const tokenizer = {
  tokenBytes: (id: number) =>
    id === 200
      ? Uint8Array.of(0xc3)
      : id === 201
        ? Uint8Array.of(0xa9)
        : new TextEncoder().encode(texts[id] ?? String.fromCharCode(97 + (id % 26))),
  encode: ({ text }: RenderedPrompt) => (text.startsWith("Enough") ? [102, 101] : [101]),
} as unknown as Tokenizer;

const marks = { start: "<think>", end: "</think>" };

/** Which of the tokens were forced: "." for those that were not. */
function forced(options: object, tokens: readonly number[]): (number | ".")[] {
  const budget = new ReasoningBudget({ ...marks, tokens: 0, ...options }, tokenizer);
  return tokens.map((token) => {
    const { next } = budget;
    budget.accept(next ?? token);
    return next ?? ".";
  });
}

describe("the end of reasoning", () => {
  test("is forced after so many tokens", () => {
    expect(forced({ tokens: 2 }, [100, 1, 2, 3, 4])).toEqual([".", ".", ".", 101, "."]);
    expect(forced({ tokens: 0 }, [100, 1, 2])).toEqual([".", 101, "."]);
    const open = { tokens: 1, isOpen: true };
    expect(forced(open, [1, 2, 3])).toEqual([".", 101, "."]);
    expect(forced({ ...open, message: "Enough. " }, [1, 2, 3, 4])).toEqual([".", 102, 101, "."]);
  });

  test("is not, if it came by itself, or there is no reasoning", () => {
    expect(forced({ tokens: 3 }, [100, 1, 101, 2, 3, 4])).toEqual([".", ".", ".", ".", ".", "."]);
    expect(forced({ tokens: 0 }, [1, 2, 3])).toEqual([".", ".", "."]);
  });

  test("waits for the rest of a character", () => {
    expect(forced({ tokens: 1 }, [100, 200, 201, 2])).toEqual([".", ".", ".", 101]);
  });

  test("of a real model is where it should be", async () => {
    await using model = await open("stories15m", { threads: 1 });
    const options = { temperature: 0, maxTokens: 12 };
    const end = "The end.";
    const prompt = "Once upon a time";
    const reasoningBudget = { tokens: 5, end, isOpen: true };
    const plain = await model.generate(prompt, options).result;
    const { tokenIds } = await model.generate(prompt, { ...options, reasoningBudget }).result;
    expect(tokenIds.slice(0, 5)).toEqual(plain.tokenIds.slice(0, 5));
    const mark = await model.tokenize(end, { addBos: false });
    expect(tokenIds.slice(5, 5 + mark.length)).toEqual(mark);
    const wrong = model.generate(prompt, { reasoningBudget: { tokens: -1, end } }).result;
    await expect(wrong).rejects.toThrow(/reasoningBudget.tokens: got -1/);
  });
});
