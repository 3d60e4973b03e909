// The tool calls of an answer: their results, and the messages of a conversation as a template expects them, with
// reasoning, calls and results.

import type { ChatMessage, ChatToolCall } from "../../src/index.ts";
import { type Message, SessionError, type ToolCall } from "./session.ts";

/** The result of a call. */
export interface CallEnd {
  state: Exclude<ToolCall["state"], "waiting">;
  result: string | null;
  by: string | null;
}

type WithCalls = Pick<Message, "role" | "state" | "calls">;

/** Calls that must get a result before the conversation continues. Those of an answer that was cut off never ran. */
export function openCalls({ state, calls }: Pick<WithCalls, "state" | "calls">): ToolCall[] {
  return state === "complete" ? calls.filter((call) => call.state === "waiting") : [];
}

/** All calls have their results: the model answers next. */
export function isAnswered(message: WithCalls | undefined): boolean {
  if (message?.role !== "assistant" || openCalls(message).length > 0) return false;
  return message.calls.some(({ state }) => state !== "waiting");
}

/** The calls of a message after one of them has ended. */
export function endedCalls(message: Message, id: string, end: CallEnd): ToolCall[] {
  const call = message.calls.find((one) => one.id === id);
  const what = `call "${id.slice(0, 100)}" of message "${message.id}"`;
  if (call === undefined) throw new SessionError("missing", `there is no ${what}`, "call");
  if (message.state !== "complete") {
    throw new SessionError("invalid", `call: ${what} was cut off before it was complete`, "call");
  }
  if (call.state !== "waiting") {
    const why = `${what} has its result already (${call.state}). Answer the question again for another one`;
    throw new SessionError("invalid", `call: ${why}`, "call");
  }
  return message.calls.map((one) => (one === call ? { ...one, ...end } : one));
}

type Turn = Pick<Message, "role" | "content"> & Partial<Pick<Message, "reasoning" | "calls">>;

/** A message as templates expect it, followed by the results of its calls. */
export function toTurns({ role, content, reasoning, calls = [] }: Turn): ChatMessage[] {
  const ended = calls.filter(({ state }) => state !== "waiting");
  const own = {
    role,
    content,
    ...(reasoning && { reasoning_content: reasoning }),
    ...(ended.length > 0 && { tool_calls: ended.map(templateCall) }),
  };
  const results = ended.map((call) => ({
    role: "tool" as const,
    content: resultOf(call),
    tool_call_id: call.id,
    name: call.name,
  }));
  return [own, ...results];
}

function templateCall({ id, name, arguments: text }: ToolCall): ChatToolCall {
  return { id, type: "function", function: { name, arguments: parsed(text) } };
}

/** Templates expect an object; a model's text may be none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function resultOf({ state, result }: ToolCall): string {
  if (state === "refused") {
    return result === null
      ? "The user refused this call."
      : `The user refused this call: ${result}`;
  }
  return state === "failed" ? `Error: ${result ?? "the tool failed"}` : (result ?? "");
}
