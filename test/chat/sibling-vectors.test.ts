// llama.cpp's tests beside test-chat.cpp, as facts (sibling-vectors.json): what is read in answers of given formats, which marks
// templates have, and when the end of reasoning is forced. What those files test of llama.cpp's own classes (combinators of its
// parser, diffs of renderings, the text of its grammars) is no fact about answers and is not here.
// Held against: llama.cpp's vectors.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { AnswerFormat, AnswerTool } from "../../src/api/answer-format.ts";
import type { RenderedPrompt } from "../../src/base/rendered-prompt.ts";
import { AnswerReader } from "../../src/chat/answer/answer-reader.ts";
import { deriveAnswerFormat } from "../../src/chat/answer/derive.ts";
import type { AnswerPart } from "../../src/chat/answer/sink.ts";
import { ChatTemplate } from "../../src/chat/template.ts";
import { ReasoningBudget } from "../../src/engine/reasoning-budget.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { describeShared } from "../support/shared.ts";
import { templateOf } from "./vectors.ts";

interface Answer {
  readonly name: string;
  readonly format?: string;
  /** A template, where the format is derived from one. */
  readonly source?: string;
  readonly tools?: readonly string[];
  readonly start?: "open" | "closed";
  readonly inline?: true;
  readonly isJson?: true;
  readonly input: string;
  readonly expect: { content?: string; reasoning?: string; calls?: [string, string, string?][] };
}

const vectors = JSON.parse(
  readFileSync(new URL("sibling-vectors.json", import.meta.url), "utf8"),
) as {
  readonly tools: Readonly<Record<string, AnswerTool>>;
  readonly formats: Readonly<Record<string, AnswerFormat>>;
  readonly peg: readonly Answer[];
  readonly auto: readonly Answer[];
  readonly marks: readonly [string, Readonly<Record<string, unknown>>][];
  readonly roles: readonly [string, string, string][];
  readonly budget: readonly BudgetCase[];
  readonly utf8: readonly [string, boolean][];
};

function read(one: Answer, size: number): Answer["expect"] {
  const format =
    one.source === undefined
      ? vectors.formats[one.format!]!
      : deriveAnswerFormat(new ChatTemplate(one.source, { bos: "", eos: "" }));
  const reader = new AnswerReader({
    format,
    tools: (one.tools ?? []).map((name) => vectors.tools[name]!),
    reasoning: one.inline ? "inline" : "apart",
    start: { reasoning: one.start ?? "unknown", opening: "" },
    isJson: one.isJson === true,
  });
  const parts: AnswerPart[] = [];
  for (let at = 0; at < one.input.length; at += size) {
    parts.push(...reader.push(one.input.slice(at, at + size)));
  }
  parts.push(...reader.end());
  const calls: [string, string, string][] = [];
  const text = { content: "", reasoning: "" };
  for (const part of parts) {
    if (part.kind === "call") calls.push([part.name, "", part.id]);
    else if (part.kind === "arguments") calls[part.index]![1] += part.text;
    else if (part.kind === "id") calls[part.index]![2] = part.id;
    else text[part.kind] += part.text;
  }
  return { ...text, calls };
}

/** Arguments are compared as values, ids where there is one. */
function isSame(one: Answer, got: Answer["expect"]): boolean {
  const { content = "", reasoning = "", calls = [] } = one.expect;
  const areCalls = calls.every(([name, text, id], at) => {
    const call = got.calls?.[at];
    if (call?.[0] !== name || (id !== undefined && call[2] !== id)) return false;
    try {
      expect(JSON.parse(call[1])).toEqual(JSON.parse(text));
      return true;
    } catch {
      return false;
    }
  });
  return (
    got.content === content &&
    got.reasoning === reasoning &&
    got.calls?.length === calls.length &&
    areCalls
  );
}

const wrong = (answers: readonly Answer[]): string[] =>
  answers
    .filter((one) => [1, 5, one.input.length].some((size) => !isSame(one, read(one, size))))
    .map(({ name }) => name);

describe("llama.cpp's other chat tests", () => {
  it("test-chat-peg-parser.cpp: answers", () => {
    expect(wrong(vectors.peg)).toEqual([]);
  });

  it("test-chat-auto-parser.cpp: answers", () => {
    // {"f": {"id": ..., "args": {...}}}: no template has it, so that no format describes it.
    expect(wrong(vectors.auto)).toEqual(["the function as the key"]);
  });
});

describeShared("test-chat-auto-parser.cpp: templates", "chat-templates", () => {
  it("have the marks that llama.cpp finds", () => {
    const different = vectors.marks.flatMap(([name, marks]) => {
      const format: unknown = templateOf(name).format;
      return Object.entries(marks).flatMap(([path, wanted]) => {
        const got = path
          .split(".")
          .reduce<unknown>(
            (value, key) => (value as Record<string, unknown> | undefined)?.[key],
            format,
          );
        // Whitespace between two marks belongs to the one or to the other.
        const isSame = String(got ?? "").trim() === String(wanted).trim();
        return isSame ? [] : [`${name} ${path}: ${JSON.stringify(got)}`];
      });
    });
    expect(different).toEqual([]);
  });

  it("have the marks of roles where llama.cpp finds them", () => {
    const different = vectors.roles.flatMap(([name, user, assistant]) => {
      const { text } = templateOf(name).template.render(
        [
          { role: "user", content: "zqFirst" },
          { role: "assistant", content: "zqSecond" },
          { role: "user", content: "zqThird" },
        ],
        { extra: { enable_thinking: false } },
      );
      const first = text.indexOf("zqFirst");
      const second = text.indexOf("zqSecond");
      const isUser = text.slice(0, first).trimEnd().endsWith(user);
      const isAssistant = text.slice(first, second).includes(assistant);
      return isUser && isAssistant ? [] : [`${name}: ${JSON.stringify(text.slice(0, second))}`];
    });
    expect(different).toEqual([]);
  });
});

interface BudgetCase {
  readonly name: string;
  readonly tokens: readonly number[];
  readonly start: readonly (readonly number[])[];
  readonly end: readonly (readonly number[])[];
  readonly forced: readonly number[];
  readonly budget: number;
  readonly isOpen?: true;
  /** Indexes of the first and the last token that is forced. */
  readonly forcedFrom?: number;
  readonly forcedTo?: number;
}

/** Each token is a word of its own. */
const word = (id: number): string => `<${id}>`;
const tokenizer = {
  tokenBytes: (id: number) => new TextEncoder().encode(word(id)),
  encode: ({ text }: RenderedPrompt) => [...text.matchAll(/<(\d+)>/g)].map(([, id]) => Number(id)),
} as unknown as Tokenizer;

describe("test-reasoning-budget.cpp", () => {
  /** A format has one pair of marks here; without any there is no budget to be had, which is an error. */
  const others = ["no start/end configured", "multiple start sequences", "multiple end sequences"];

  it.each(
    vectors.budget
      .filter(({ name }) => !others.includes(name))
      .map((one) => [one.name, one] as const),
  )("%s", (_, one) => {
    const end = one.end[0]!.map(word).join("");
    const options = {
      tokens: one.budget,
      start: one.start[0]!.map(word).join(""),
      end,
      message: one.forced.map(word).join("").replace(end, ""),
      ...(one.isOpen && { isOpen: true }),
    };
    const budget = new ReasoningBudget(options, tokenizer);
    const forced: number[] = [];
    for (const [at, token] of one.tokens.entries()) {
      const { next } = budget;
      if (next !== undefined) forced.push(at);
      budget.accept(next ?? token);
    }
    const { forcedFrom, forcedTo } = one;
    expect([forced[0], forced.at(-1)]).toEqual([forcedFrom, forcedTo]);
  });

  it("a character is finished first", () => {
    const different = vectors.utf8.filter(([hex, isWhole]) => {
      const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
      const pieces = { ...tokenizer, tokenBytes: () => bytes };
      const options = { tokens: 1, end: word(101), isOpen: true };
      const budget = new ReasoningBudget(options, pieces);
      budget.accept(1);
      return (budget.next !== undefined) !== isWhole;
    });
    // A byte that ends a character, alone: it belongs to the tokens before it, and nothing is missing after it.
    expect(different).toEqual([["80", false]]);
  });
});
