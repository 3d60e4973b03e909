// One checker for the names of options, used by every call of the API and by the fields of HTTP requests; one text for
// whatever was thrown.

import { describe, expect, test } from "vitest";
import { messageOf } from "../../src/base/errors.ts";
import { checkOptionNames, unknownName } from "../../src/base/options.ts";
import * as lantern from "../../src/index.ts";
import { programFolders, sourceFiles } from "../rules/scan.ts";
import { tinyFile } from "../support/tiny-file.ts";

const wrong = { tread: 1 };

describe("names of options", () => {
  const known = { threads: true, contextSize: true } as const;

  test("what is unknown is refused, with what it may have meant and all there are", () => {
    const check = () => checkOptionNames("call()", wrong as object, known as never);
    expect(check).toThrow(lantern.UsageError);
    expect(check).toThrow(
      'call(): unknown option "tread". Did you mean threads? Known: threads, contextSize',
    );
    expect(() => checkOptionNames("call()", { threads: 1 }, known as never)).not.toThrow();
  });

  test("what every object has is no option", () => {
    for (const name of ["constructor", "toString", "__proto__"]) {
      const options = Object.fromEntries([[name, 1]]);
      expect(() => checkOptionNames("call()", options, known as never)).toThrow(/unknown option/);
    }
  });

  test.each([[null], [7], ["text"], [["list"]]])("options that are none: %j", (options) => {
    const check = () => checkOptionNames("call()", options as unknown as object, known as never);
    expect(check).toThrow(/^call\(\): options: got .*, expected an object$/);
  });

  test("a long name is cut, and nothing is listed where nothing is known", () => {
    expect(unknownName("field", "x".repeat(10_000), ["a"]).length).toBeLessThan(300);
    expect(unknownName("field", "a", [])).toBe('unknown field "a"');
  });
});

/** A call of the API with a misspelt option. None gets as far as looking for the model. */
const calls: Record<string, () => unknown> = {
  "open()": () => lantern.open("none", wrong as object),
  "limits()": () => lantern.limits("none", wrong as object),
  "verify()": () => lantern.verify("none", wrong as object),
  "convert()": () => lantern.convert("none", "out", wrong as object),
  "quantize()": () => lantern.quantize("none", "out", "Q4_0", wrong as object),
  "imatrix()": () => lantern.imatrix("none", "text", "out", wrong as object),
  "perplexity()": () => lantern.perplexity("none", "text", wrong as object),
  "compareQuantized()": () => lantern.compareQuantized("none", "none", wrong as object),
  "modelFits()": () => lantern.modelFits([], wrong as object),
  "tune()": () => lantern.tune(wrong as object),
  "testTune()": () => lantern.testTune(wrong as never),
};

test.each(Object.keys(calls))("%s refuses an option that it does not know", async (call) => {
  const promise = Promise.resolve(calls[call]!());
  await expect(promise).rejects.toThrow(lantern.UsageError);
  await expect(promise).rejects.toThrow(`${call}: unknown option "tread".`);
});

test("so do the calls of a model", async () => {
  const file = await tinyFile();
  await using model = await lantern.open(file.path, { threads: 1, contextSize: 32 });
  const odd = { toks: 1 } as object;
  const asked: Record<string, () => Promise<unknown>> = {
    "tokenize()": () => model.tokenize("a", odd),
    "countTokens()": () => model.countTokens("a", odd),
    "detokenize()": () => model.detokenize([1], odd),
    "logits()": () => model.logits("a", odd),
    "score()": () => model.score([1, 2], odd),
    "embed()": () => model.embed(["a"], odd),
    "applyTemplate()": () => model.applyTemplate([], odd),
    "profile()": () => model.profile(odd),
    sampling: () => model.generate("a", odd).result,
  };
  for (const [call, ask] of Object.entries(asked)) {
    await expect(ask()).rejects.toThrow(`${call}: unknown option "toks".`);
  }
  file.remove();
});

test("whatever was thrown has a message", () => {
  expect(messageOf(new TypeError("no"))).toBe("no");
  expect(messageOf("no")).toBe("no");
  expect(messageOf(undefined)).toBe("undefined");
  expect(messageOf({ toString: 7 })).toBe("an object");
});

test("there is one of each", () => {
  const sources = sourceFiles(...programFolders);
  const holding = (pattern: RegExp) =>
    sources.filter(({ text }) => pattern.test(text)).map(({ path }) => path);
  expect(holding(/unknown option "\$/)).toEqual([]);
  expect(holding(/unknown \$\{kind\} "/)).toEqual(["src/base/options.ts"]);
  expect(holding(/(\w+) instanceof Error \? \1\.message : String/)).toEqual([]);
  expect(holding(/function messageOf/)).toEqual(["src/base/errors.ts"]);
});
