// The options grammar, schema, regex and choices of the public API, through real engine threads: texts, errors, chats.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { type GenerateOptions, type Model, open, UsageError } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
beforeAll(async () => {
  file = await tinyFile();
  model = await open(file.path, { kvType: "f32" });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});

const generate = (options: GenerateOptions) =>
  model.generate("the", { seed: 1, maxTokens: 200, ...options }).result;

const person = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 5 },
    age: { type: "integer", minimum: 0, maximum: 99 },
  },
  required: ["name", "age"],
  additionalProperties: false,
};

describe("texts of", () => {
  test("a JSON schema", async () => {
    const { text, stopReason } = await generate({ schema: person });
    const { name, age, ...others } = JSON.parse(text);
    expect(name).toBeTypeOf("string");
    expect(age).toBeGreaterThanOrEqual(0);
    expect(others).toEqual({});
    expect(stopReason).toBe("end");
  });

  test("a schema of Zod", async () => {
    const schema = z.object({
      tags: z
        .array(z.enum(["red", "green"]))
        .min(1)
        .max(3),
      ok: z.boolean(),
    });
    for (const seed of [1, 2, 3]) {
      const { text } = await generate({ schema, seed });
      expect(schema.safeParse(JSON.parse(text)).success).toBe(true);
    }
  });

  test("a regular expression", async () => {
    expect((await generate({ regex: /\d{3}-[a-f]{2}/ })).text).toMatch(/^\d{3}-[a-f]{2}$/);
  });

  test("choices, and a grammar in GBNF", async () => {
    const choices = ["yes", "no", "née"];
    expect(choices).toContain((await generate({ choices })).text);
    const grammar = 'root ::= "[" item ("," item){2} "]"\nitem ::= [1-9] | "[" [1-9]{1,9} "]"';
    const { text } = await generate({ grammar, temperature: 2, topK: 0 });
    expect(JSON.parse(text)).toHaveLength(3);
  });

  test("a grammar that may end or go on: the model's end token ends it", async () => {
    const logitBias = { 2: 30 };
    const { text, stopReason } = await generate({ regex: "abc[a-z]*", logitBias, temperature: 0 });
    expect({ text, stopReason }).toEqual({ text: "abc", stopReason: "end" });
    const ignored = await generate({
      regex: "abc[a-z]*",
      logitBias,
      ignoreEos: true,
      maxTokens: 9,
    });
    expect(ignored.text).toMatch(/^abc[a-z]{6}$/);
  });
});

describe("errors", () => {
  test("name the keyword and its path", async () => {
    const schema = { properties: { a: { items: { $dynamicRef: "#x" } } } };
    await expect(generate({ schema })).rejects.toThrow(/\$dynamicRef/);
    await expect(model.checkGrammar({ schema })).rejects.toThrow(/properties\/a\/items/);
    await expect(generate({ grammar: "root ::= item" })).rejects.toThrow(/line 1, column 10/);
    await expect(generate({ regex: "(" })).rejects.toThrow(UsageError);
  });

  test.each([
    [{ regex: "a", choices: ["a"] }, /regex and choices: got 2 grammars, expected one/],
    [{ choices: [] }, /choices: .*expected a list of one or more texts/],
    [{ grammar: 7 as never }, /grammar: got 7, expected text in GBNF/],
    [{ schema: "{}" as never }, /schema: .*expected a JSON schema/],
    [{ regex: /a/i }, /regex: got the flags i/],
    [{ schema: { "~standard": { validate: () => {} } } }, /cannot describe itself/],
  ] as [GenerateOptions, RegExp][])("%o", async (options, message) => {
    await expect(generate(options)).rejects.toThrow(message);
    await expect(model.checkGrammar(options)).rejects.toThrow(message);
  });

  test("leave a chat as it was", async () => {
    const chat = model.chat({ maxTokens: 20, seed: 1 });
    await expect(chat.send("a", { regex: "a", choices: ["b"] }).result).rejects.toThrow(UsageError);
    expect(chat.messages).toEqual([]);
    await expect(chat.send("a", { regex: "(" }).result).rejects.toThrow(UsageError);
    expect(chat.messages).toEqual([]);
    expect((await chat.send("a", { choices: ["yes"] }).result).text).toBe("yes");
    expect(chat.messages).toHaveLength(2);
  });
});

test("a schema with values that JSON does not have is refused, wherever they are", async () => {
  const inList = { anyOf: [{ enum: ["a", () => "b"] }] };
  await expect(model.checkGrammar({ schema: inList })).rejects.toThrow('"1" is a function');
  const inObject = { properties: { name: { const: Symbol("a") } } };
  await expect(model.checkGrammar({ schema: inObject })).rejects.toThrow('"const" is a symbol');
});

test("checkGrammar() says what is not enforced", async () => {
  const schema = { type: "string", format: "color-of-sky" };
  expect(await model.checkGrammar({ schema })).toEqual([expect.stringContaining("color-of-sky")]);
  expect(await model.checkGrammar({ choices: ["a"] })).toEqual([]);
  expect(await model.checkGrammar({})).toEqual([]);
});
