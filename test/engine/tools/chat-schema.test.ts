// chat.send() with a schema: a typed value, which the grammar holds the model to. A scripted model where a test is about the text, a
// real one with random weights where it is about the force.
// Held against: the words of a scripted model.

import { describe, expect, expectTypeOf, test } from "vitest";
import * as z from "zod";
import { AnswerError, open } from "../../../src/index.ts";
import { tinyFile } from "../../support/tiny-file.ts";
import { scriptedChat } from "../../support/tool-chat.ts";

const place = z.object({ city: z.string(), size: z.int().min(1) });

describe("the value", () => {
  test("comes after reasoning, has the schema's type, and joins the conversation", async () => {
    const { chat, options } = scriptedChat(['<think>Hm.</think>\n{"city": "Oslo", "size": 7}']);
    const generation = chat.send("?", { schema: place, temperature: 0 });
    let text = "";
    for await (const piece of generation) text += piece;
    const { value, reasoning } = await generation.result;
    expectTypeOf(value).toEqualTypeOf<{ city: string; size: number }>();
    expect({ value, reasoning }).toEqual({ value: { city: "Oslo", size: 7 }, reasoning: "Hm." });
    expect(JSON.parse(text)).toEqual(value);
    expect(options[0]).toMatchObject({
      temperature: 0,
      grammar: {
        reasoning: { start: "<think>", end: "</think>" },
        content: { schema: { type: "object", required: ["city", "size"] } },
      },
    });
    expect(chat.messages[1]).toMatchObject({ role: "assistant", reasoning_content: "Hm." });
  });

  test("what is cut off, or what a refinement refuses, is an error; the conversation is as before", async () => {
    const cut = scriptedChat(['<think>Hm.</think>{"city": "Os'], { stopReason: "length" });
    const error = await cut.chat.send("?", { schema: place }).result.catch((one: unknown) => one);
    expect(error).toBeInstanceOf(AnswerError);
    expect(error).toMatchObject({
      message: expect.stringContaining("is no complete JSON: maxTokens was reached"),
      answer: { text: '{"city": "Os', reasoning: "Hm.", stopReason: "length", calls: [] },
    });
    expect(cut.chat.messages).toEqual([]);
    const even = z.object({ n: z.number().refine((n) => n % 2 === 0, "it is odd") });
    const odd = scriptedChat(['{"n": 3}', "Hello"]);
    await expect(odd.chat.send("?", { schema: even }).result).rejects.toThrow("n: it is odd");
    expect((await odd.chat.send("?").result).text).toBe("Hello");
    expect(() => odd.chat.send("?", { schema: 7 } as never)).toThrow("expected a schema of zod");
  });
});

test("a model with random weights follows it by force", async () => {
  const file = await tinyFile();
  const model = await open(file.path, { kvType: "f32", threads: 1, contextSize: 256 });
  try {
    const schema = z.object({ kind: z.enum(["cat", "dog"]), legs: z.int().min(0).max(9) });
    const { value } = await model.chat({ seed: 1 }).send("?", { schema }).result;
    expect(schema.parse(value)).toEqual(value);
    const json = { type: "array", items: { type: "boolean" }, minItems: 2, maxItems: 2 };
    const list = (await model.chat({ seed: 2 }).send("?", { schema: json }).result).value;
    expect(list).toHaveLength(2);
  } finally {
    await model.dispose();
    file.remove();
  }
});
