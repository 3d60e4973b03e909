// What we read in answers, held against llama.cpp: its own test vectors (answer-vectors.json) with the real templates of the models.
// Each answer is read in one piece, in pieces of seven characters and character by character, and damaged in random pieces.

import { describe, expect, it } from "vitest";
import { AnswerReader } from "../../src/chat/answer/answer-reader.ts";
import type { AnswerPart } from "../../src/chat/answer/sink.ts";
import { describeShared } from "../support/shared.ts";
import { hermes } from "./json-format.ts";
import { allTools, startOf, templateOf, type Vector, vectors } from "./vectors.ts";

/** Where we read otherwise than llama.cpp, by the start of the input, and why. */
const others: Readonly<Record<string, string>> = {
  "<think>\n\n</think>\n\n<tool_call>\n<function=special_function>":
    "reasoning has no whitespace at its end, also after a repeated mark",
  "<|channel><|channel>thought\n<channel|>": "half a mark at the start is text",
  "REASONING</think>\nCONTENT":
    "whitespace after the end of reasoning belongs neither to it nor to the text",
  '<tool_call>\n{"name": "special_function", "arguments": {"arg1":':
    "arguments are given as the model writes them: no space that it has not written",
  "<mm:think>Union string</mm:think>": "tags in a value that may be an object are an object",
  "<|CHATBOT_TOKEN|>Hello, world!": "a repeated header is text",
};

function read(one: Vector, size: number): Vector["expect"] {
  const { format } = templateOf(one.template);
  const reader = new AnswerReader({
    format,
    tools: (one.tools ?? []).map((name) => allTools[name]!),
    reasoning: one.reasoning ?? "inline",
    start: startOf(one),
    isJson: one.isJson === true,
  });
  const parts: AnswerPart[] = [];
  for (let at = 0; at < one.input.length; at += size) {
    parts.push(...reader.push(one.input.slice(at, at + size)));
  }
  if (!one.isPartial) parts.push(...reader.end());
  const calls: [string, string, string][] = [];
  const text = { content: "", reasoning: "" };
  for (const part of parts) {
    if (part.kind === "call") calls.push([part.name, "", part.id]);
    else if (part.kind === "arguments") calls[part.index]![1] += part.text;
    else if (part.kind === "id") calls[part.index]![2] = part.id;
    else text[part.kind] += part.text;
  }
  return normal({ ...text, calls });
}

/** Arguments are compared as values; an id that llama.cpp does not expect is not compared. */
function normal({ content = "", reasoning = "", calls = [] }: Vector["expect"]): Vector["expect"] {
  return {
    content,
    reasoning,
    calls: calls.map(([name, text, id = ""]) => {
      try {
        return [name, JSON.stringify(JSON.parse(text)), id];
      } catch {
        return [name, text, id];
      }
    }),
  };
}

describeShared("answers as llama.cpp reads them", "chat-templates", () => {
  const names = [...new Set(vectors.map(({ template }) => template))].sort();

  it.each(names)("%s", (name) => {
    for (const one of vectors.filter(({ template }) => template === name)) {
      const why = Object.keys(others).find((start) => one.input.startsWith(start));
      for (const size of [1, 7, one.input.length + 1]) {
        const got = read(one, size);
        const wanted = normal(one.expect);
        wanted.calls = wanted.calls!.map(([callName, text, id], at) => [
          callName,
          text,
          id === "" ? (got.calls![at]?.[2] ?? "") : id!,
        ]);
        const isOther = why !== undefined && JSON.stringify(got) !== JSON.stringify(wanted);
        if (!isOther)
          expect(got, `${JSON.stringify(one.input)} in pieces of ${size}`).toEqual(wanted);
      }
    }
  });

  it("differs in no more than is said", () => {
    const different = vectors.filter((one) => {
      const wanted = normal(one.expect);
      const got = read(one, 7);
      return (
        got.content !== wanted.content ||
        got.reasoning !== wanted.reasoning ||
        JSON.stringify(got.calls!.map(([name, text]) => [name, text])) !==
          JSON.stringify(wanted.calls!.map(([name, text]) => [name, text]))
      );
    });
    const said = Object.keys(others);
    expect(
      different
        .map(({ input }) => input)
        .filter((input) => !said.some((start) => input.startsWith(start))),
    ).toEqual([]);
    expect(vectors.length - different.length).toBe(421);
  });
});

// What was read is never taken back, wherever the text is cut: the same vectors, whole and damaged, in random pieces.

let seed = 1;
const random = (below: number): number => {
  seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
  return (seed >>> 8) % below;
};

interface Read {
  content: string;
  reasoning: string;
  calls: { name: string; text: string }[];
}

function gather(parts: readonly AnswerPart[]): Read {
  const read: Read = { content: "", reasoning: "", calls: [] };
  for (const part of parts) {
    if (part.kind === "call") read.calls.push({ name: part.name, text: "" });
    else if (part.kind === "arguments") read.calls[part.index]!.text += part.text;
    else if (part.kind !== "id") read[part.kind] += part.text;
  }
  return read;
}

/** What is certain after each piece, and at last all of it. */
function readings(one: Vector, text: string, sizes: () => number): Read[] {
  const reader = new AnswerReader({
    format: templateOf(one.template).format,
    tools: (one.tools ?? []).map((name) => allTools[name]!),
    reasoning: one.reasoning ?? "inline",
    start: startOf(one),
    isJson: one.isJson === true,
  });
  const parts: AnswerPart[] = [];
  const seen: Read[] = [];
  for (let at = 0; at < text.length; ) {
    const size = sizes();
    parts.push(...reader.push(text.slice(at, at + size)));
    at += size;
    seen.push(gather(parts));
  }
  parts.push(...reader.end());
  return [...seen, gather(parts)];
}

function isBeginning(part: Read, whole: Read): boolean {
  return (
    whole.content.startsWith(part.content) &&
    whole.reasoning.startsWith(part.reasoning) &&
    part.calls.every(
      ({ name, text }, at) =>
        whole.calls[at]?.name === name && whole.calls[at].text.startsWith(text),
    )
  );
}

/** A piece taken out, doubled or moved, as models that go astray write. */
function damaged(text: string): string {
  const from = random(text.length);
  const to = from + 1 + random(12);
  const piece = text.slice(from, to);
  const other = random(text.length);
  const kinds = [
    text.slice(0, from) + text.slice(to),
    text.slice(0, from) + piece + piece + text.slice(to),
    text.slice(0, other) + piece + text.slice(other),
    text.slice(0, from),
  ];
  return kinds[random(kinds.length)]!;
}

describeShared("answers in pieces", "chat-templates", () => {
  it.each([
    ["as they are", (text: string) => text],
    ["damaged", damaged],
  ])("%s", (_, change) => {
    for (const one of vectors) {
      const text = change(one.input);
      const whole = readings(one, text, () => text.length + 1).at(-1)!;
      const pieces = readings(one, text, () => 1 + random(9));
      const what = `${one.template}: ${JSON.stringify(text)}`;
      expect(pieces.at(-1), what).toEqual(whole);
      for (const part of pieces) expect(isBeginning(part, whole), what).toBe(true);
    }
  });
});

describe("pieces", () => {
  const tools = [{ name: "f" }];
  const all = (text: string, size: number): AnswerPart[] => {
    const reader = new AnswerReader({ format: hermes, tools });
    const parts: AnswerPart[] = [];
    for (let at = 0; at < text.length; at += size) {
      parts.push(...reader.push(text.slice(at, at + size)));
    }
    return [...parts, ...reader.end()];
  };
  const contentOf = (parts: AnswerPart[]): string =>
    parts.map((part) => (part.kind === "content" ? part.text : "")).join("");

  it("of text that looks like the start of a mark are given when it is none", () => {
    const text = "a < b, <tool, <tool_cal> and <think> in the middle";
    for (const size of [1, 2, 3, 100]) expect(contentOf(all(text, size))).toBe(text);
  });

  it("of what is no call are text, whole", () => {
    for (const text of [
      "<tool_call>\nnothing</tool_call> x",
      '<tool_call>\n{"other": 1}\n</tool_call>',
      '<tool_call>\n{"name": 5, "arguments": {}}',
      "<tool_call>\n{",
    ]) {
      for (const size of [1, 5, 100]) expect(contentOf(all(text, size))).toBe(text);
    }
  });

  it("of a call that breaks off stay as they are", () => {
    const parts = all('<tool_call>\n{"name": "f", "arguments": {"a": [1, 2}', 3);
    const text = parts.map((part) => (part.kind === "arguments" ? part.text : "")).join("");
    expect(parts[0]).toMatchObject({ kind: "call", name: "f" });
    expect('{"a": [1, 2}'.startsWith(text)).toBe(true);
  });
});
