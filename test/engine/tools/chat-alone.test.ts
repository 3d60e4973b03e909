// chat.send() without tools: the same kind of answer as with them. Reasoning is apart from the text, on the way, in the result and in the
// conversation. The model is scripted; its answers are read in the format of a template.

import { describe, expect, test } from "vitest";
import type { AnswerEvent, GenerateOptions } from "../../../src/index.ts";
import { scriptedChat, toolTemplate } from "../../support/tool-chat.ts";

const thought = "<think>\nIs it Oslo?\n</think>\n\nIt is Oslo.";

describe("reasoning", () => {
  test("is no part of the text, and stays apart in the conversation", async () => {
    const { chat, prompts } = scriptedChat([thought, "Yes."]);
    const generation = chat.send("Which city?");
    const events: AnswerEvent[] = [];
    for await (const event of generation.events()) events.push(event);
    const joined = (kind: string) =>
      events.map((event) => (event.kind === kind && "text" in event ? event.text : "")).join("");
    expect(joined("reasoning")).toBe("Is it Oslo?");
    expect(joined("content")).toBe("It is Oslo.");
    const answer = await generation.result;
    expect(answer).toMatchObject({
      ...{ text: "It is Oslo.", reasoning: "Is it Oslo?", calls: [], stopReason: "end" },
      steps: [{ text: thought }],
    });
    expect(answer.value).toBeUndefined();
    expect(answer.toolFormat).toBeUndefined();
    const said = { role: "assistant", content: "It is Oslo.", reasoning_content: "Is it Oslo?" };
    expect(chat.messages).toEqual([{ role: "user", content: "Which city?" }, said]);
    await chat.send("Sure?").result;
    expect(prompts[1]!.match(/<think>/g)).toHaveLength(1); // the template's own, not the text's
  });

  test("text and tokens are those of the answer alone", async () => {
    let text = "";
    for await (const piece of scriptedChat([thought]).chat.send("?")) text += piece;
    expect(text).toBe("It is Oslo.");
    let tokens = "";
    for await (const token of scriptedChat([thought]).chat.send("?").tokens()) tokens += token.text;
    expect(tokens).toBe("It is Oslo.");
  });

  test("that is all there is, when the answer is stopped, is kept", async () => {
    const stop = new AbortController();
    const { chat } = scriptedChat([`<think>${"Is it Oslo? ".repeat(2000)}`]);
    const generation = chat.send("?", { signal: stop.signal });
    for await (const { kind } of generation.events()) if (kind === "reasoning") stop.abort();
    const { stopReason, text, reasoning } = await generation.result;
    expect({ stopReason, text }).toEqual({ stopReason: "aborted", text: "" });
    expect(chat.messages.at(-1)).toEqual({
      ...{ role: "assistant", content: "", reasoning_content: reasoning },
    });
  });

  test.each([
    [{ choices: ["yes", "no"] }, { choices: ["yes", "no"] }],
    [{ regex: /yes|no/ }, { regex: "yes|no" }],
    [{ grammar: 'root ::= "yes"' }, { gbnf: 'root ::= "yes"' }],
  ] as [GenerateOptions, object][])(
    "is free before what must look like %o",
    async (held, content) => {
      const { chat, options } = scriptedChat(["<think>Hm.</think>yes"]);
      expect(await chat.send("?", held).result).toMatchObject({ text: "yes", reasoning: "Hm." });
      const reasoning = { start: "<think>", end: "</think>" };
      expect(options[0]!.grammar).toEqual({ reasoning, content });
    },
  );
});

test("a template without reasoning: all is text, and control tokens are not", async () => {
  const template = toolTemplate.replaceAll(/\{%- if message.reasoning_content.*?endif %\}/g, "");
  const { chat, options } = scriptedChat([thought], { template });
  expect(await chat.send("?").result).toMatchObject({ text: thought, reasoning: "" });
  expect(options[0]).not.toHaveProperty("special");
});

test("a signal that was aborted before: an empty answer, and the conversation is as it was", async () => {
  const { chat } = scriptedChat([thought]);
  const { stopReason, text } = await chat.send("?", { signal: AbortSignal.abort() }).result;
  expect({ stopReason, text }).toEqual({ stopReason: "aborted", text: "" });
  expect(chat.messages).toEqual([]);
});
