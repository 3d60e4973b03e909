// The strict reading of flags, without a model.
// Held against: values and messages written here.

import { Command, CommanderError } from "commander";
import { describe, expect, test } from "vitest";
import { withOneName } from "../../apps/cli/flag-names.ts";
import { numberFlag } from "../../apps/cli/flag-values.ts";
import {
  addModelFlags,
  addSamplingFlags,
  generateOptions,
  openOptions,
} from "../../apps/cli/flags.ts";
import { grammarOptions } from "../../apps/cli/grammar-flags.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";

function parse(args: string[]): Command {
  const command = new Command("run").exitOverride().configureOutput({ writeErr: () => {} });
  addSamplingFlags(addModelFlags(command, "x"));
  return command.parse(args, { from: "user" });
}

function complaint(args: string[]): string {
  try {
    parse(args);
  } catch (error) {
    if (error instanceof CommanderError) return error.message;
    throw error;
  }
  throw new Error(`${args.join(" ")} was accepted`);
}

test("llama.cpp's flags become the engine's options", () => {
  const flags = parse(
    `-m a.gguf -n 5 -c 512 -t 2 --temp 0.5 --top-k 10 --top-p .9 --min-p 0.1 --typical 0.7 --repeat-penalty 1.1
     --repeat-last-n -1 --frequency-penalty -0.5 --presence-penalty 1e-1 --logit-bias 5+1.5 --logit-bias 7-inf
     -s 42 --stop A --stop B -r C --ignore-eos --cache-type q8_0`.split(/\s+/),
  ).opts();
  expect(generateOptions(flags)).toEqual({
    maxTokens: 5,
    temperature: 0.5,
    topK: 10,
    topP: 0.9,
    minP: 0.1,
    typicalP: 0.7,
    repeatPenalty: 1.1,
    repeatLastN: -1,
    frequencyPenalty: -0.5,
    presencePenalty: 0.1,
    logitBias: new Map([
      [5, 1.5],
      [7, Number.NEGATIVE_INFINITY],
    ]),
    seed: 42,
    stop: ["A", "B", "C"],
    ignoreEos: true,
  });
  const open = { contextSize: 512, threads: 2, kvType: "q8_0", warmup: false };
  expect(openOptions(flags)).toEqual(open);
});

test("a warm-up is for commands that answer more than once, or whoever asks for it", () => {
  const once = (text: string) => openOptions(parse(text.split(" ")).opts()).warmup;
  expect([once("-m a.gguf"), once("--warmup"), once("--no-warmup")]).toEqual([
    false,
    undefined,
    false,
  ]);
  const often = (text: string) => {
    const command = addModelFlags(new Command(), undefined, { warmup: true });
    return openOptions(command.parse(text.split(" "), { from: "user" }).opts()).warmup;
  };
  expect([often("-m a.gguf"), often("--warmup"), often("--no-warmup")]).toEqual([
    undefined,
    undefined,
    false,
  ]);
});

test("keys and values of the KV cache may have a type each, by llama.cpp's names", () => {
  const kvTypeOf = (text: string) => openOptions(parse(withOneName(text.split(" "))).opts()).kvType;
  expect(kvTypeOf("-m a.gguf")).toBe("f16");
  expect(kvTypeOf("-ctk q8_0 -ctv q4_0")).toEqual({ k: "q8_0", v: "q4_0" });
  expect(kvTypeOf("--cache-type-k=q5_1")).toEqual({ k: "q5_1", v: "f16" });
  expect(kvTypeOf("--cache-type q8_0 -ctv iq4_nl")).toEqual({ k: "q8_0", v: "iq4_nl" });
  expect(kvTypeOf("-ctk q4_0 -ctv q4_0")).toBe("q4_0");
});

test("short names of llama.cpp are one flag, and not the first letter with a value", () => {
  expect(withOneName(["-np", "4", "-ngl", "9", "-n", "p"])).toEqual([
    "--parallel",
    "4",
    "--gpu-layers",
    "9",
    "-n",
    "p",
  ]);
});

test("so do those of the other samplers", () => {
  const flags = parse(
    `--top-nsigma 1.5 --xtc-probability 0.5 --xtc-threshold 0.2 --dynatemp-range 0.3 --dynatemp-exp 2 --mirostat 2
     --mirostat-lr 0.2 --mirostat-ent 3 --dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n -1
     --dry-sequence-breaker \\n --dry-sequence-breaker - --samplers top_k;temp`.split(/\s+/),
  ).opts();
  expect(generateOptions(flags)).toEqual({
    topNSigma: 1.5,
    xtcProbability: 0.5,
    xtcThreshold: 0.2,
    dynatempRange: 0.3,
    dynatempExponent: 2,
    mirostat: 2,
    mirostatEta: 0.2,
    mirostatTau: 3,
    dryMultiplier: 0.8,
    dryBase: 2,
    dryAllowedLength: 3,
    dryPenaltyLastN: -1,
    drySequenceBreakers: ["\n", "-"],
    samplers: ["top_k", "temp"],
  });
  expect(generateOptions(parse(["--sampler-seq", "kt"]).opts())).toEqual({ samplers: "kt" });
  const none = parse(["--dry-sequence-breaker", "none"]).opts();
  expect(generateOptions(none)).toEqual({ drySequenceBreakers: [] });
  expect(complaint(["--mirostat", "3"])).toContain("from 0 to 2");
});

test("--no-native and --level are only passed on when they are given", () => {
  expect(openOptions(parse(["--no-native"]).opts())).toMatchObject({ native: false });
  expect(openOptions(parse(["--level", "3"]).opts())).toMatchObject({ level: 3 });
  expect(openOptions(parse([]).opts())).not.toHaveProperty("native");
  expect(openOptions(parse([]).opts())).not.toHaveProperty("level");
});

test("hot neurons: a share, none, or what was measured", () => {
  expect(openOptions(parse(["--hot-neurons", "0.25"]).opts())).toMatchObject({ hotNeurons: 0.25 });
  for (const none of [["--hot-neurons", "0"], ["--no-hot-neurons"]]) {
    expect(openOptions(parse(none).opts())).toMatchObject({ hotNeurons: 0 });
  }
  expect(openOptions(parse([]).opts())).not.toHaveProperty("hotNeurons");
});

test("what is not given is left to the engine; -1 is endless, and random", () => {
  expect(generateOptions(parse([]).opts())).toEqual({});
  expect(generateOptions(parse(["-n", "-1", "-s", "-1"]).opts())).toEqual({});
});

describe("refused values", () => {
  const cases: [string[], RegExp][] = [
    [["--temp", "abc"], /--temp <x>' argument 'abc' is invalid. Expected a number of at least 0/],
    [["--temp", "NaN"], /Expected a number of at least 0/],
    [["--temp", "Infinity"], /Expected a number/],
    [["--temp", "0x10"], /Expected a number/],
    [["--temp", ""], /Expected a number/],
    [["--temp", "-1"], /Expected a number of at least 0/],
    [["--top-p", "1.5"], /Expected a number from 0 to 1/],
    [["--top-k", "2.5"], /Expected a whole number of at least 0/],
    [["-n", "-2"], /Expected a whole number of at least 0, or -1/],
    [["-n"], /argument missing/],
    [["-t", "0"], /Expected a whole number from 1 to 256/],
    [["-c", "1e99"], /Expected a whole number from 1 to/],
    [["--cache-type", "q4"], /Allowed choices are f32, f16, bf16, q8_0, q4_0/],
    [["--logit-bias", "5"], /Expected a token id, a sign and a number/],
    [["--stop", ""], /at least one character/],
    [["--tmep", "1"], /unknown option '--tmep'\n\(Did you mean --temp\?\)/],
    [["--topk", "1"], /Did you mean --top-k/],
  ];
  for (const [args, expected] of cases) {
    test(args.join(" "), () => expect(complaint(args)).toMatch(expected));
  }
});

test("numberFlag takes what people write", () => {
  const read = numberFlag({});
  expect(["1", "-1", "+1", "1.5", ".5", "1.", "1e-3", " 2 "].map(read)).toEqual([
    1, -1, 1, 1.5, 0.5, 1, 0.001, 2,
  ]);
});

describe("flags of grammars", () => {
  const files: Readonly<Record<string, string>> = {
    "a.gbnf": "root ::= [a]",
    "b.json": '{"type": "null"}',
  };
  const terminal = { readText: async (path: string) => files[path]! } as Terminal;
  const read = async (args: string[]) =>
    await grammarOptions(parse(withOneName(args)).opts(), terminal);

  test.each([
    [["--grammar", "root ::= [b]"], { gbnf: "root ::= [b]" }],
    [["--grammar-file", "a.gbnf"], { gbnf: "root ::= [a]" }],
    [["-j", '{"type": "string"}'], { schema: { type: "string" } }],
    [["--json-schema", "@b.json"], { schema: { type: "null" } }],
    [["-jf", "b.json"], { schema: { type: "null" } }],
    [["--regex", "a+"], { regex: "a+" }],
    [["--choice", "a", "--choice", "b,c"], { choices: ["a", "b,c"] }],
  ])("%j", async (args, grammar) => {
    expect(await read(args)).toEqual({ grammar });
  });

  test("none, two, and a schema that is none", async () => {
    expect(await read([])).toEqual({});
    await expect(read(["--regex", "a", "-jf", "b.json"])).rejects.toThrow(
      /both --json-schema-file and --regex/,
    );
    await expect(read(["-j", "{type}"])).rejects.toThrow(/--json-schema: expected a JSON schema/);
    await expect(read(["-j", "7"])).rejects.toThrow(/--json-schema: .*got 7/);
  });
});
