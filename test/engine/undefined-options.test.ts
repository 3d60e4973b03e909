// An optional option may be undefined, also under TypeScript's exactOptionalPropertyTypes (this file is type-checked so), and is then as
// one that was left out. Which options there are comes from the types, so that a new one cannot be forgotten.

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type * as lantern from "../../src/index.ts";
import {
  checkTune,
  convert,
  inspect,
  limits,
  type Model,
  open,
  openTokenizer,
  perplexity,
  quantize,
  verify,
} from "../../src/index.ts";
import { generationRows } from "../../src/options/generation.ts";
import { openRows } from "../../src/options/open.ts";
import { samplingRows } from "../../src/options/sampling.ts";
import { sourceFiles } from "../rules/scan.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { fieldsOf } from "../support/type-fields.ts";

/** The optional properties of T that refuse undefined. Required<T> keeps what was written, undefined included. */
type Refused<T> = {
  [K in keyof T]-?: object extends Pick<T, K>
    ? undefined extends Required<T>[K]
      ? never
      : K
    : never;
}[keyof T];

/** A type error, which names the property, where one refuses undefined. */
function takesUndefined<T>(..._refused: [Refused<T>] extends [never] ? [] : [Refused<T>]): true {
  return true;
}

const checked: Readonly<Record<string, true>> = {
  OpenOptions: takesUndefined<lantern.OpenOptions>(),
  AdapterFile: takesUndefined<lantern.AdapterFile>(),
  CpuBinding: takesUndefined<lantern.CpuBinding>(),
  InspectOptions: takesUndefined<lantern.InspectOptions>(),
  TemplateOptions: takesUndefined<lantern.TemplateOptions>(),
  TokenizeOptions: takesUndefined<lantern.TokenizeOptions>(),
  SamplingOptions: takesUndefined<lantern.SamplingOptions>(),
  GrammarOptions: takesUndefined<lantern.GrammarOptions>(),
  GenerateOptions: takesUndefined<lantern.GenerateOptions>(),
  SpeculateOptions: takesUndefined<lantern.SpeculateOptions>(),
  ReasoningBudgetOptions: takesUndefined<lantern.ReasoningBudgetOptions>(),
  ChatOptions: takesUndefined<lantern.ChatOptions>(),
  SendOptions: takesUndefined<lantern.SendOptions>(),
  JsonSchemaOptions: takesUndefined<lantern.JsonSchemaOptions>(),
  SchemaOptions: takesUndefined<lantern.SchemaOptions<object>>(),
  ToolOptions: takesUndefined<lantern.ToolOptions<unknown>>(),
  ToolLimits: takesUndefined<lantern.ToolLimits>(),
  Tool: takesUndefined<lantern.Tool>(),
  EmbedOptions: takesUndefined<lantern.EmbedOptions>(),
  RerankOptions: takesUndefined<lantern.RerankOptions>(),
  LogitsOptions: takesUndefined<lantern.LogitsOptions>(),
  ScoreOptions: takesUndefined<lantern.ScoreOptions>(),
  SaveStateOptions: takesUndefined<lantern.SaveStateOptions>(),
  LoadStateOptions: takesUndefined<lantern.LoadStateOptions>(),
  ProfileOptions: takesUndefined<lantern.ProfileOptions>(),
  MachineOptions: takesUndefined<lantern.MachineOptions>(),
  GpuMeasureOptions: takesUndefined<lantern.GpuMeasureOptions>(),
  MatmulBenchOptions: takesUndefined<lantern.MatmulBenchOptions>(),
  AnswerReaderOptions: takesUndefined<lantern.AnswerReaderOptions>(),
  ToolGrammarOptions: takesUndefined<lantern.ToolGrammarOptions>(),
  ServingOptions: takesUndefined<lantern.ServingOptions>(),
  StoredStateOptions: takesUndefined<lantern.StoredStateOptions>(),
  ConvertOptions: takesUndefined<lantern.ConvertOptions>(),
  OrderOptions: takesUndefined<lantern.OrderOptions>(),
  LimitsOptions: takesUndefined<lantern.LimitsOptions>(),
  OwnModel: takesUndefined<lantern.OwnModel>(),
  SpeculationOptions: takesUndefined<lantern.SpeculationOptions>(),
  FitOptions: takesUndefined<lantern.FitOptions>(),
  FitQuestion: takesUndefined<lantern.FitQuestion>(),
  PerplexityOptions: takesUndefined<lantern.PerplexityOptions>(),
  ImatrixOptions: takesUndefined<lantern.ImatrixOptions>(),
  QuantizeOptions: takesUndefined<lantern.QuantizeOptions>(),
  CompareQuantizedOptions: takesUndefined<lantern.CompareQuantizedOptions>(),
  SparsifyOptions: takesUndefined<lantern.SparsifyOptions>(),
  VerifyOptions: takesUndefined<lantern.VerifyOptions>(),
  TuneOptions: takesUndefined<lantern.TuneOptions>(),
  TuneTestOptions: takesUndefined<lantern.TuneTestOptions>(),
};

/** The options that methods have in place. */
type Last<A extends readonly unknown[]> = Required<A> extends [...unknown[], infer L] ? L : never;
takesUndefined<Last<Parameters<Model["health"]>>>();
takesUndefined<Last<Parameters<Model["detokenize"]>>>();
takesUndefined<Last<Parameters<Model["inputSums"]>>>();
takesUndefined<Last<Parameters<lantern.TextTokenizer["encode"]>>>();
takesUndefined<Last<Parameters<lantern.TextTokenizer["decode"]>>>();
takesUndefined<Last<Parameters<typeof lantern.quantizeTypes>>>();

const textsOf = (folder: string) => sourceFiles(folder).map(({ text }) => text);
const api = textsOf("src/api");
const declared = [...api, ...textsOf("src/tools"), ...textsOf("src/tune")].join("\n");

test("every exported type of options is checked", () => {
  const exported = [
    ...readFileSync("src/index.ts", "utf8").matchAll(/\b(\w+Options)\b/g),
    ...api.flatMap((text) => [...text.matchAll(/^export (?:interface|type) (\w+Options)\b/gm)]),
  ].map(([, name]) => name!);
  expect(exported.length).toBeGreaterThan(20);
  expect(exported.filter((name) => checked[name] === undefined)).toEqual([]);
});

/** All properties of a type, undefined. */
const nothing = (...types: string[]): object =>
  Object.fromEntries(types.flatMap(fieldsWithRows).map((name) => [name, undefined]));

/** With those that are rows of src/options/. */
const rowsOf: Readonly<Record<string, object>> = {
  OpenOptions: openRows,
  SamplingOptions: samplingRows,
  GenerateOptions: generationRows,
};
const fieldsWithRows = (type: string): string[] => [
  ...fieldsOf(declared, type),
  ...Object.keys(rowsOf[type] ?? {}),
];

const greedy = { temperature: 0, maxTokens: 6 };
const sampled = ["SamplingOptions", "GrammarOptions", "GenerateOptions"];

describe("an option that is undefined is as if it were left out", () => {
  let file: Awaited<ReturnType<typeof tinyFile>>;
  let model: Model;

  beforeAll(async () => {
    file = await tinyFile();
    model = await open(file.path, { ...nothing("OpenOptions"), threads: 1 });
  });

  afterAll(async () => {
    await model?.dispose();
    file?.remove();
  });

  test("of open()", async () => {
    expect(Object.keys(nothing("OpenOptions")).length).toBeGreaterThan(40);
    await using plain = await open(file.path, { threads: 1 });
    const { backend: _, ...info } = plain.info; // its notes have times
    expect(model.info).toMatchObject(info);
  });

  test("of generate()", async () => {
    const plain = await model.generate("the cat", greedy).result;
    const asked = { ...nothing(...sampled), ...greedy };
    expect(Object.keys(asked).length).toBeGreaterThan(40);
    const { tokenIds, stopReason } = await model.generate("the cat", asked).result;
    expect({ tokenIds, stopReason }).toMatchObject({
      tokenIds: plain.tokenIds,
      stopReason: plain.stopReason,
    });
  });

  test("of a chat and its messages, which keep the chat's options", async () => {
    const none = nothing(...sampled, "SendOptions");
    const chat = model.chat({ ...nothing("ChatOptions"), ...greedy, stop: ["\n"], seed: 1 });
    const first = await chat.send("the cat", none).result;
    expect(first.timings.generatedTokens).toBeLessThanOrEqual(greedy.maxTokens);
    const again = await chat.regenerate(none).result;
    expect(again.text).toBe(first.text);
    const plain = await model.chat({ ...greedy, stop: ["\n"] }).send("the cat").result;
    expect(again.text).toBe(plain.text);
  });

  test("of a message with tools", async () => {
    const chat = model.chat({ ...greedy, maxTokens: 3 });
    const tools = { now: { ...nothing("Tool"), run: () => "noon" } };
    const none = nothing("GenerateOptions", "SamplingOptions", "ToolLimits", "ToolOptions");
    const { steps } = await chat.send("the cat", { ...none, tools }).result;
    expect(steps[0]!.timings.generatedTokens).toBeLessThanOrEqual(3);
  });

  test("of the other methods", async () => {
    const text = "the cat";
    const ids = await model.tokenize(text, nothing("TokenizeOptions"));
    expect(ids).toEqual(await model.tokenize(text));
    expect(await model.countTokens(text, nothing("TokenizeOptions"))).toBe(ids.length);
    expect(await model.detokenize(ids, { special: undefined })).toBe(await model.detokenize(ids));
    const logits = await model.logits(text, nothing("LogitsOptions"));
    expect(logits).toEqual(await model.logits(text));
    const score = await model.score(ids, nothing("ScoreOptions"));
    expect(score).toEqual(await model.score(ids));
    const vectors = await model.embed([text], nothing("EmbedOptions"));
    expect(vectors).toEqual(await model.embed([text]));
    const sums = await model.inputSums(ids, { firstIsBos: undefined, signal: undefined });
    expect(sums).toEqual(await model.inputSums(ids));
    const messages = [{ role: "user", content: text }] as const;
    const prompt = await model.applyTemplate(messages, nothing("TemplateOptions"));
    expect(prompt).toEqual(await model.applyTemplate(messages));
    expect((await model.health({ timeoutMs: undefined })).status).toBe("ok");
  });

  test("of the functions that need no open model", async () => {
    const sink = { write: async () => undefined };
    const bytes = async (how: object) => (await quantize(file.path, sink, "Q8_0", how)).bytesAfter;
    expect(await bytes(nothing("QuantizeOptions"))).toBe(await bytes({}));
    const whole = await inspect(file.path, nothing("InspectOptions"));
    expect(whole).toEqual(await inspect(file.path));
    const text = "the cat sat ".repeat(20);
    const small = { contextSize: 32, parallel: 1 };
    const guess = await perplexity(file.path, text, { ...nothing("PerplexityOptions"), ...small });
    expect(guess.perplexity).toEqual((await perplexity(file.path, text, small)).perplexity);
    const on = { device: "NVIDIA GeForce RTX 4090" };
    const report = await limits(file.path, { ...nothing("LimitsOptions"), ...on });
    expect(report).toEqual(await limits(file.path, on));
    await checkTune({ ...nothing("TuneOptions"), shapes: "7b", native: false });
    const how = { threads: 1, backends: ["cpu"] };
    const verified = await verify(file.path, { ...nothing("VerifyOptions"), ...how });
    expect(verified.backends.map(({ passed }) => passed)).toEqual([true]);
    const refusal = convert(file.path, sink, nothing("ConvertOptions"));
    await expect(refusal).rejects.toThrow(/GGUF/);
    const tokenizer = await openTokenizer(file.path);
    const ids = tokenizer.encode("the cat", { addSpecial: undefined, parseSpecial: undefined });
    expect(ids).toEqual(tokenizer.encode("the cat"));
    expect(tokenizer.decode(ids, { special: undefined })).toBe(tokenizer.decode(ids));
  });
});
