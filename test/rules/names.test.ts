// Names from outside ("constructor", "__proto__", "toString") find nothing in any table: tables that are asked by name have no
// prototype (src/base/by-name.ts), and the `in` operator, which sees the prototype, is not used on them.

import { describe, expect, test } from "vitest";
import { backendByName } from "../../src/backends/table.ts";
import { LanternError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { readSamplers } from "../../src/engine/sampler-names.ts";
import { limits, open } from "../../src/index.ts";
import { shapeNamed } from "../../src/limits/configs.ts";
import { deviceNamed } from "../../src/limits/devices.ts";
import { templateOf } from "../../src/load/compose.ts";
import { ConfigReader } from "../../src/models/config-reader.ts";
import { ropeFromMetadata } from "../../src/models/rope.ts";
import { archNamed } from "../../src/models/table.ts";
import { fileTypeNamed } from "../../src/tools/quantize/file-types.ts";
import { letterTokenizer, plainMetadata } from "../support/tiny-engine.ts";
import { programFolders, sourceFiles, tokenize } from "./scan.ts";

/** Tables without byName(), and why they may. */
const exempt: Readonly<Record<string, string>> = {
  "apps/server/guard.ts": "headers, never asked by name",
  "src/tokenizers/json/": "fields.ts and its callers ask Object.hasOwn",
  "src/chat/": "asked with Object.hasOwn, or with one letter",
  "src/kernels/": "names of our own",
  "src/backends/": "names of our own",
};

const isExempt = (path: string): boolean =>
  Object.keys(exempt).some((part) => path.startsWith(part));

test("tables by name have no prototype", () => {
  const found = sourceFiles(...programFolders).flatMap(({ path, text }) =>
    [...text.matchAll(/^(?:export )?const (\w+): Readonly<Record<string, .*>> = (.*)$/gm)]
      .filter(([, , value]) => !value!.startsWith("byName("))
      .map(([, name]) => `${path}: ${name} is asked by name: make it with byName()`),
  );
  expect(found.filter((text) => !isExempt(text))).toEqual([]);
});

test("nobody looks a name up with the in operator", () => {
  const found = sourceFiles(...programFolders, "apps/web/src").flatMap(({ path, text }) => {
    const tokens = tokenize(text);
    return tokens.flatMap((token, at) => {
      const [before, last, next] = [tokens[at - 2], tokens[at - 1], tokens[at + 1]];
      if (token.kind !== "word" || token.text !== "in" || next?.text === "keyof") return [];
      const isLoopOrType = ["const", "let", "["].includes(before?.text ?? "");
      const isFixed =
        last?.kind === "string" || before?.text === "Symbol" || last?.text === "iterator";
      if (isLoopOrType || isFixed) return [];
      return [`${path}:${token.line}: use Object.hasOwn, or a Map`];
    });
  });
  const allowed = /^src\/(backends|kernels)\/|^src\/platform\/node-database\.ts/; // names and numbers of our own
  expect(found.filter((text) => !allowed.test(text))).toEqual([]);
});

describe.each(["constructor", "__proto__", "toString", "hasOwnProperty"])("%s", (name) => {
  const reader = (): ConfigReader =>
    new ConfigReader(
      plainMetadata({ "general.architecture": "llama", "llama.rope.scaling.type": name }),
      "llama",
    );

  test.each<[string, () => unknown]>([
    ["tensor type", () => dtypeByName(name)],
    ["backend", () => backendByName(name)],
    ["device", () => deviceNamed(name)],
    ["shape", () => shapeNamed(name)],
  ])("is no %s", (_, find) => {
    expect(find()).toBeUndefined();
  });

  test.each<[string, () => unknown]>([
    ["architecture", () => archNamed(name)],
    ["sampler", () => readSamplers([name])],
    ["quantized type", () => fileTypeNamed(name)],
    ["rope scaling", () => ropeFromMetadata(reader(), 16, "interleaved")],
    ["chat template", () => templateOf(name, plainMetadata({}), letterTokenizer)],
    ["model", () => open(name)],
    ["option of open()", () => open("x", { [name]: 1 })],
    ["option of limits()", () => limits("llama2-7b", { [name]: 1 })],
    ["KV type", () => open(new File([], "x.gguf"), { kvType: name as "f16" })],
    ["level", () => open(new File([], "x.gguf"), { level: name as unknown as 1 })],
    ["backend that is asked for", () => open(new File([], "x.gguf"), { backend: name as "cpu" })],
  ])("is no %s: a LanternError says so", async (_, use) => {
    const error = await (async () => await use())().then(
      () => new Error("it was accepted"),
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(LanternError);
  });
});
