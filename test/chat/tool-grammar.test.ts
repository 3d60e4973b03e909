// Grammars of tool calls: what models write in llama.cpp's test vectors is allowed, and what would be no call of these tools is not.
// Held against: llama.cpp's vectors.

import { describe, expect, it } from "vitest";
import type { AnswerFormat, AnswerTool } from "../../src/api/answer-format.ts";
import { AnswerReader } from "../../src/chat/answer/answer-reader.ts";
import { toolGrammar } from "../../src/chat/answer/grammar/tool-grammar.ts";
import { type Grammar, GrammarCompiler } from "../../src/grammar/grammar.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { compile, generate, takes } from "../grammar/support.ts";
import { describeShared } from "../support/shared.ts";
import { hermes } from "./json-format.ts";
import { allTools, startOf, templateOf, type Vector, vectors } from "./vectors.ts";

function grammarOf(one: Vector, isForced: boolean): Grammar {
  const { format } = templateOf(one.template);
  const tools = one.tools!.map((name) => allTools[name]!);
  const start = startOf(one);
  const key = JSON.stringify([one.template, one.tools, isForced, start]);
  const known = grammars.get(key);
  if (known !== undefined) return known;
  const made = compile(toolGrammar({ format, tools, isForced, isParallel: true, start })!);
  grammars.set(key, made);
  return made;
}

const grammars = new Map<string, Grammar>();

describeShared("llama.cpp's vectors with calls", "chat-templates", () => {
  const called = vectors.filter(
    ({ expect: { calls }, isPartial, goesOn, tools }) =>
      calls !== undefined && calls.length > 0 && !isPartial && !goesOn && tools,
  );
  /** Where the model's freedom ends: the arguments of tagged calls come in the order of the schema. */
  const isOther = ({ template, tools }: Vector): boolean =>
    template === "Qwen3-Coder.jinja" && /^(edit|tool_2req)/.test(tools![0]!);

  it("are what a model may write that decides by itself", () => {
    const refused = called.filter((one) => !takes(grammarOf(one, false), one.input));
    expect(refused.filter((one) => !isOther(one)).map(({ input }) => input)).toEqual([]);
    expect([called.length - refused.length, called.length]).toEqual([235, 240]);
  });

  it("are what a model may write that must call, but for text, other orders and marks that it left out", () => {
    const silent = called.filter(({ expect: { content } }, at) => !content && at % 4 === 0);
    const taken = silent.filter((one) => takes(grammarOf(one, true), one.input));
    expect([taken.length, silent.length]).toEqual([52, 54]);
  });
});

const tagged: AnswerFormat = {
  calls: {
    section: { start: "", end: "" },
    call: { start: "<tool_call>\n<function=", end: "\n</function>\n</tool_call>" },
    separator: "\n",
    gap: "\n",
    form: {
      kind: "tagged",
      afterName: { first: ">\n", last: undefined },
      beforeKey: "<parameter=",
      afterKey: { string: ">\n", other: ">\n" },
      afterValue: "\n</parameter>",
      hasCdata: false,
    },
    endsReasoning: true,
  },
  turnEnds: [],
};
const tools: AnswerTool[] = [
  {
    name: "get_time",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Rome", "Oslo"] }, count: { type: "integer" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
];
const start = { reasoning: "unknown", opening: "" } as const;
const call = (text: string): string => `<tool_call>\n${text}\n</tool_call>`;
const rome = call('{"name": "get_time", "arguments": {"city": "Rome"}}');

describe("a call", () => {
  const of = (more: object): Grammar =>
    compile(
      toolGrammar({ format: hermes, tools, isForced: true, isParallel: false, start, ...more })!,
    );

  it("that is forced is all there is, after reasoning", () => {
    const forced = of({});
    expect(takes(forced, rome)).toBe(true);
    expect(takes(forced, `<think>Let me use <tool_call>.</think>\n\n${rome}`)).toBe(true);
    expect(takes(forced, "It is noon.")).toBe(false);
    expect(takes(forced, "<think>Let me see.")).toBe(false);
    expect(takes(forced, `${rome}\n${rome}`)).toBe(false);
    expect(takes(of({ isParallel: true }), `${rome}\n${rome}`)).toBe(true);
    const open = of({ start: { reasoning: "open", opening: "<think>" } });
    expect(takes(open, `Hm.</think>${rome}`)).toBe(true);
    expect(takes(open, rome)).toBe(false);
  });

  it("follows the schema once it has begun", () => {
    const auto = of({ isForced: false });
    for (const text of ["It is noon.", "a < b, <tool", rome, `Let me see.\n${rome}`, ""]) {
      expect(takes(auto, text), text).toBe(true);
    }
    for (const inside of [
      '{"name": "get_date", "arguments": {}}',
      '{"name": "get_time", "arguments": {}}',
      '{"name": "get_time", "arguments": {"city": "Bonn"}}',
      '{"name": "get_time", "arguments": {"city": "Rome", "count": 1.5}}',
      '{"name": "get_time", "arguments": {"city": "Rome", "more": 1}}',
      "no call",
    ]) {
      expect(takes(auto, `Well. ${call(inside)}`), inside).toBe(false);
    }
  });

  it("with a tag for each argument does, too", () => {
    const auto = of({ format: tagged, isForced: false });
    const argument = (key: string, value: string): string =>
      `<parameter=${key}>\n${value}\n</parameter>\n`;
    const whole = (inside: string): string => call(`<function=get_time>\n${inside}</function>`);
    expect(takes(auto, `Well.\n${whole(argument("city", "Oslo"))}`)).toBe(true);
    expect(takes(auto, whole(argument("city", "Oslo") + argument("count", "7")))).toBe(true);
    expect(takes(auto, whole(argument("city", "Bonn")))).toBe(false);
    expect(takes(auto, whole(argument("city", "Oslo") + argument("count", "x")))).toBe(false);
    expect(takes(auto, whole(""))).toBe(false);
    // Models leave the outer tag out: arguments follow the schema all the same.
    const bare = `<function=get_time>\n${argument("city", "Bonn")}</function>\n</tool_call>`;
    expect(takes(auto, bare)).toBe(false);
    expect(takes(auto, bare.replace("Bonn", "Rome"))).toBe(true);
  });

  it("that was forced on random tokens is read as one, whatever the format", () => {
    for (const format of [hermes, tagged]) {
      for (let seed = 1; seed <= 6; seed++) {
        const source = toolGrammar({ format, tools, isForced: true, isParallel: false, start })!;
        const text = generate(compile({ ...source }), seed, 400);
        if (!text.endsWith("</tool_call>")) continue; // reasoning without an end
        const reader = new AnswerReader({ format, tools });
        const parts = [...reader.push(text), ...reader.end()];
        const values = parts.map((part) => (part.kind === "arguments" ? part.text : "")).join("");
        expect(["Rome", "Oslo"], text).toContain((JSON.parse(values) as { city: string }).city);
      }
    }
  });
});

describe("marks that are control tokens", () => {
  const texts = ["", "<end>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<other>"];
  const tokenizer = {
    vocabSize: texts.length + 256,
    tokenBytes: (id: number, { special = false } = {}) =>
      id < texts.length
        ? new TextEncoder().encode(special ? texts[id]! : "")
        : Uint8Array.of(id - texts.length),
    isEndOfGeneration: (id: number) => id === 1,
    tokenId: (text: string) => (texts.includes(text) ? texts.indexOf(text) : undefined),
    encode: (text: string) =>
      [...new TextEncoder().encode(text)].map((byte) => byte + texts.length),
  } as unknown as Tokenizer;
  const ids = (...parts: (string | number)[]): number[] =>
    parts.flatMap((part) => (typeof part === "number" ? [part] : tokenizer.encode(part)));
  const inside = '\n{"name": "get_time", "arguments": {"city": "Rome"}}\n';

  const accepts = (isForced: boolean, tokens: readonly number[]): boolean => {
    const source = toolGrammar({ format: hermes, tools, isForced, isParallel: false, start })!;
    const state = new GrammarCompiler(tokenizer).compile(source).start();
    return tokens.every((token) => state.accept(token)) && state.isComplete;
  };

  it("are tokens, and nothing else", () => {
    expect(accepts(true, ids(2, inside, 3))).toBe(true);
    expect(accepts(true, ids(4, "Hm.", 5, 2, inside, 3))).toBe(true);
    expect(accepts(true, ids("<tool_call>", inside, 3))).toBe(false);
  });

  it("begin a call in free text, in which other ones may be", () => {
    expect(accepts(false, ids("Well, ", 6, 2, inside, 3))).toBe(true);
    expect(accepts(false, ids("Well, ", 6, "that is all."))).toBe(true);
    expect(accepts(false, ids("Well, ", 2, "no call", 3))).toBe(false);
  });
});

it("with a schema for answers, an answer is a call or JSON of the schema, after any reasoning", () => {
  const content = {
    schema: { type: "object", properties: { a: { type: "integer" } }, required: ["a"] },
  };
  const all = { format: hermes, tools, isForced: false, isParallel: true, start, content };
  const grammar = compile(toolGrammar(all)!);
  const call = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}\n</tool_call>';
  const texts = [call, '{"a": 1}', `<think>Hm.</think>\n${call}`, '<think>Hm.</think>\n{"a": 1}'];
  expect(texts.filter((text) => takes(grammar, text))).toEqual(texts);
  const others = [
    "Hello",
    '{"a": "1"}',
    `{"a": 1}\n${call}`,
    `Well. ${call}`,
    "<think>Hm.</think>",
  ];
  expect(others.filter((text) => takes(grammar, text))).toEqual([]);
});
