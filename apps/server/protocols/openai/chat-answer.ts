// An answer in the shape of OpenAI's chats: deltas of its chunks, and the whole message.

import type { StopReason } from "../../../../src/index.ts";
import type { ChatAnswer, ChatPart } from "../../chat-answer.ts";
import { finishReason } from "../../openai-fields.ts";

/** A delta of OpenAI's chunks. */
export type Delta = Readonly<Record<string, unknown>>;

export function deltaOf(part: ChatPart): Delta {
  if (part.kind === "content") return { content: part.text };
  if (part.kind === "reasoning") return { reasoning_content: part.text };
  const { index } = part;
  if (part.kind === "arguments") {
    return { tool_calls: [{ index, function: { arguments: part.text } }] };
  }
  const own = { name: part.name, arguments: "" };
  return { tool_calls: [{ index, id: part.id, type: "function", function: own }] };
}

export function answerMessage(answer: ChatAnswer): object {
  const tool_calls = answer.calls.map(({ id, name, text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  const content = answer.text("content");
  const reasoning = answer.text("reasoning");
  return {
    role: "assistant",
    content: content === "" && answer.hasCalls ? null : content,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(answer.hasCalls && { tool_calls }),
  };
}

export function finishOf(reason: StopReason, answer: ChatAnswer): string {
  const finish = finishReason(reason);
  return finish === "stop" && answer.hasCalls ? "tool_calls" : finish;
}
