// Every call of the library with values of wrong types, as plain JavaScript and parsed JSON bring them: each is refused with a
// LanternError, or means something; never a TypeError from somewhere inside, never a thread that died, never a hang.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type GenerateOptions,
  inspect,
  LanternError,
  type Model,
  open,
  openTokenizer,
  type TextTokenizer,
  UsageError,
} from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let tokenizer: TextTokenizer;
beforeAll(async () => {
  file = await tinyFile();
  model = await open(file.path, { kvType: "f32", threads: 1, contextSize: 64 });
  tokenizer = await openTokenizer(file.path);
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});

const bare: unknown = Object.create(null);
const wrong: readonly unknown[] = [
  undefined,
  null,
  true,
  7,
  -1,
  Number.NaN,
  2 ** 60,
  10n,
  "x",
  "\ud800",
  Symbol("s"),
  () => 1,
  {},
  bare,
  { toString: 1, length: 3 },
  [],
  [undefined],
  [null],
  [Number.NaN],
  [1.5],
  [-1],
  [2 ** 40],
  ["1"],
  [{}],
  [bare],
  [Symbol("s")],
  [[undefined]],
  [{ role: "user" }],
  [{ role: 7, content: [] }],
  new Map([["a", 1]]),
  new Uint8Array(4),
  new Date(Number.NaN),
];

/** Ends as it should, or with a LanternError. Generations are waited for. */
async function tried(call: () => unknown): Promise<unknown> {
  try {
    const value = await call();
    const result = (value as { result?: Promise<unknown> } | undefined)?.result;
    await result;
    return undefined;
  } catch (error) {
    return error;
  }
}

const short = { maxTokens: 1, temperature: 0 };
// biome-ignore lint/suspicious/noExplicitAny: wrong types are what this is about
type Any = any;

const calls: Readonly<Record<string, (value: Any) => unknown>> = {
  "generate(X)": (x) => model.generate(x, short),
  "generate(_, X)": (x) => model.generate("the", x ?? short),
  "chat(X)": (x) => model.chat(x).send("the", short),
  "chat().send(X)": (x) => model.chat().send(x, short),
  "chat().send(_, X)": (x) => model.chat(short).send("the", x),
  "chat({ messages: X })": (x) => model.chat({ messages: x }).send("the", short),
  "chat({ system: X })": (x) => model.chat({ system: x }).send("the", short),
  "tokenize(X)": (x) => model.tokenize(x),
  "tokenize(_, X)": (x) => model.tokenize("the", x),
  "tokenize(_, { maxTokens: X })": (x) => model.tokenize("the", { maxTokens: x }),
  "countTokens(X)": (x) => model.countTokens(x),
  "detokenize(X)": (x) => model.detokenize(x),
  "detokenize(_, X)": (x) => model.detokenize([5], x),
  "tokenPieces(X)": (x) => model.tokenPieces(x),
  "logits(X)": (x) => model.logits(x),
  "logits(_, X)": (x) => model.logits("the", x),
  "logits(_, { top: X })": (x) => model.logits("the", { top: x }),
  "logits(_, { greedy: X })": (x) => model.logits("the", { greedy: x }),
  "score(X)": (x) => model.score(x),
  "score(_, X)": (x) => model.score([1, 5], x),
  "score(_, { from: X })": (x) => model.score([1, 5, 6], { from: x }),
  "score(_, { base: X })": (x) => model.score([1, 5, 6], { base: x }),
  "inputSums(X)": (x) => model.inputSums(x),
  "embed(X)": (x) => model.embed(x),
  "embed([X])": (x) => model.embed([x]),
  "embed(_, X)": (x) => model.embed(["the"], x),
  "embed(_, { pooling: X })": (x) => model.embed(["the"], { pooling: x }),
  "applyTemplate(X)": (x) => model.applyTemplate(x),
  "applyTemplate(_, X)": (x) => model.applyTemplate([{ role: "user", content: "a" }], x),
  "applyTemplate(_, { tools: X })": (x) =>
    model.applyTemplate([{ role: "user", content: "a" }], { tools: x }),
  "profile(X)": (x) => model.profile(x),
  "open(X)": (x) => open(x),
  "open(_, X)": (x) => open(new File([], "x.gguf"), x),
  "inspect(X)": (x) => inspect(x),
  "openTokenizer(X)": (x) => openTokenizer(x),
  "tokenizer.encode(X)": (x) => tokenizer.encode(x),
  "tokenizer.encode(_, X)": (x) => tokenizer.encode("the", x),
  "tokenizer.decode(X)": (x) => tokenizer.decode(x),
  "tokenizer.tokenText(X)": (x) => tokenizer.tokenText(x),
};

const generateOptions = [
  "temperature",
  "topK",
  "seed",
  "stop",
  "maxTokens",
  "logitBias",
  "samplers",
  "drySequenceBreakers",
  "logprobs",
  "addBos",
  "ignoreEos",
  "signal",
] as const;
const openOptions = [
  "contextSize",
  "kvType",
  "threads",
  "level",
  "backend",
  "gpuLayers",
  "exact",
  "sparse",
  "chatTemplate",
  "parallel",
  "cacheRamBytes",
  "cacheDiskBytes",
  "cacheFolder",
  "signal",
  "onProgress",
] as const;

function findings(
  call: (value: unknown) => unknown,
  values: readonly unknown[] = wrong,
): Promise<string[]> {
  return values.reduce<Promise<string[]>>(async (before, value, index) => {
    const found = await before;
    const error = await tried(() => call(value));
    if (error !== undefined && !(error instanceof LanternError)) {
      const shown = error instanceof Error ? (error.stack ?? error.message) : String(error);
      found.push(`value ${index}: ${shown.split("\n").slice(0, 4).join("\n")}`);
    } else if (error instanceof LanternError && error.code === "worker") {
      found.push(`value ${index}: ${error.message}`);
    }
    return found;
  }, Promise.resolve([]));
}

describe("wrong types", () => {
  test.each(Object.keys(calls))("%s", async (name) => {
    expect(await findings(calls[name]!)).toEqual([]);
  });

  test.each(generateOptions)("generate(_, { %s: X })", async (name) => {
    const call = (value: unknown): unknown =>
      model.generate("the", { ...short, [name]: value } as GenerateOptions);
    expect(await findings(call)).toEqual([]);
  });

  test.each(openOptions)("open(_, { %s: X })", async (name) => {
    // A file that is none: options are checked, and no model is loaded hundreds of times.
    const call = (value: unknown): unknown => open(new File([], "x.gguf"), { [name]: value });
    const few = [null, -1, Number.NaN, Symbol("s"), bare, { toString: 1 }, [undefined]];
    expect(await findings(call, few)).toEqual([]);
  });

  test("the model still works", async () => {
    expect((await model.generate("the cat", short).result).tokenIds).toHaveLength(1);
  });
});

test.each<[string, () => unknown]>([
  ["logits([undefined])", () => model.logits([undefined as Any])],
  ["embed([undefined])", () => model.embed([undefined as Any])],
  ["embed([[undefined]])", () => model.embed([[undefined as Any]])],
  ["embed('x')", () => model.embed("x" as Any)],
  ["score([undefined, undefined])", () => model.score([undefined, undefined] as Any)],
  ["tokenize(_, { maxTokens: 'x' })", () => model.tokenize("the", { maxTokens: "x" as Any })],
  ["generate(_, { signal: 'x' })", () => model.generate("the", { signal: "x" as Any }).result],
  ["logits(_, { signal: 'x' })", () => model.logits("the", { signal: "x" as Any })],
  ["embed(_, { signal: {} })", () => model.embed(["the"], { signal: {} as Any })],
  ["score(_, { signal: 1 })", () => model.score([1, 5], { signal: 1 as Any })],
  ["inputSums(_, { signal: [] })", () => model.inputSums([1, 5], { signal: [] as Any })],
  ["open(_, { signal: 'x' })", () => open(file.path, { signal: "x" as Any })],
  ["open(_, { onProgress: 'x' })", () => open(file.path, { onProgress: "x" as Any })],
  ["chat().send(7)", () => model.chat().send(7 as Any).result],
  ["chat({ messages: [{}] })", () => model.chat({ messages: [{} as Any] }).send("a").result],
  ["applyTemplate([null])", () => model.applyTemplate([null as Any])],
])("%s is refused, with what is wrong", async (_, call) => {
  const error = await tried(call);
  expect(error).toBeInstanceOf(UsageError);
  expect((error as Error).message).toMatch(/got .*expected /s);
});
