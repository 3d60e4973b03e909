// llama.cpp's test vectors (answer-vectors.json): answers, the templates of their models, and what is read in them.

import { readFileSync } from "node:fs";
import type { AnswerFormat } from "../../src/api/answer-format.ts";
import { type AnswerStart, promptEnd } from "../../src/chat/answer/answer-reader.ts";
import { deriveAnswerFormat } from "../../src/chat/answer/derive.ts";
import { ChatTemplate, type TemplateMessage } from "../../src/chat/template.ts";
import { sharedPath } from "../support/shared.ts";

export interface Vector {
  template: string;
  input: string;
  tools?: string[];
  thinking?: false;
  reasoning?: "apart";
  isJson?: true;
  isPartial?: true;
  goesOn?: "reasoning" | "content";
  messages?: (TemplateMessage & {
    reasoning_content?: string;
    tool_calls?: { function: { arguments: string } }[];
  })[];
  expect: { content?: string; reasoning?: string; calls?: [string, string, string?][] };
}

const file = JSON.parse(readFileSync(new URL("answer-vectors.json", import.meta.url), "utf8")) as {
  tools: Record<string, { name: string; parameters: unknown }>;
  cases: Vector[];
};

export const allTools: typeof file.tools = file.tools;
export const vectors: readonly Vector[] = file.cases;

const templates = new Map<string, { template: ChatTemplate; format: AnswerFormat }>();

export function templateOf(name: string): { template: ChatTemplate; format: AnswerFormat } {
  const known = templates.get(name);
  if (known !== undefined) return known;
  const source = readFileSync(sharedPath(`chat-templates/${name}`), "utf8");
  const template = new ChatTemplate(source, { bos: "", eos: "" });
  const made = { template, format: deriveAnswerFormat(template) };
  templates.set(name, made);
  return made;
}

/** Templates get arguments as objects, as the server gives them. */
function messagesOf({ messages }: Vector): TemplateMessage[] {
  if (messages === undefined) return [{ role: "user", content: "Hey there!" }];
  return messages.map((message) => {
    if (message.tool_calls === undefined) return message;
    const tool_calls = message.tool_calls.map((call) => ({
      ...call,
      function: { ...call.function, arguments: JSON.parse(call.function.arguments) as unknown },
    }));
    return { ...message, tool_calls };
  });
}

export function startOf(one: Vector): AnswerStart {
  const { template, format } = templateOf(one.template);
  const messages = messagesOf(one);
  if (one.goesOn !== undefined) {
    const { content, reasoning_content } = one.messages!.at(-1)!;
    const before = {
      ...(reasoning_content !== undefined && { reasoning: reasoning_content }),
      ...(one.goesOn === "content" && { content }),
    };
    return { reasoning: one.goesOn === "reasoning" ? "open" : "closed", opening: "", before };
  }
  const tools = one.tools?.map((name) => ({ type: "function", function: allTools[name]! }));
  const thinking = one.thinking ?? true;
  const prompt = template.render(messages, {
    addGenerationPrompt: true,
    ...(tools && { tools }),
    extra: { enable_thinking: thinking, thinking },
  });
  return promptEnd(prompt.text, format);
}
