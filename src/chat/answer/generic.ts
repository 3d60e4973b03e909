// Tools for models whose template knows none: the system message describes them and asks for calls as one JSON object, and results
// go back as the user's. A grammar holds the calls to it (grammar/), but how well such a model chooses tools is up to the model.

import type { AnswerFormat, CallFormat } from "../../api/answer-format.ts";
import type { TemplateMessage } from "../template.ts";
import { plainJson } from "./plain-json.ts";

const calls: CallFormat = {
  section: { start: '{"tool_calls": ', end: "}" },
  call: { start: "", end: "" },
  separator: "",
  gap: "\n",
  form: { ...plainJson, isList: true },
  endsReasoning: false,
};

/** Whether the model's own template knows tools. */
export const knowsTools = ({ calls: own, frames }: AnswerFormat): boolean =>
  own !== undefined || frames !== undefined;

const example = '{"tool_calls": [{"name": "...", "arguments": {...}}]}';

function describe(tools: readonly unknown[], isForced: boolean): string {
  const how = isForced
    ? `Answer with a call of these tools, as one JSON object and nothing else: ${example}`
    : `To call them, answer with one JSON object and nothing else: ${example}. Otherwise answer in plain text.`;
  const list = tools.map((tool) => JSON.stringify(tool)).join("\n");
  return `You can call these tools:\n${list}\n\n${how}`;
}

type Message = TemplateMessage & {
  readonly tool_calls?: readonly { readonly function: object }[];
  readonly name?: string;
};

/** A conversation as a template can show it. */
export interface ShownConversation<M> {
  readonly messages: readonly M[];
  readonly tools: readonly unknown[];
  /** The format of the answer. */
  readonly format: AnswerFormat;
  /** The messages describe the tools, since the template cannot. */
  readonly isGeneric: boolean;
}

/** @param isForced The answer must be a call. */
export function shownConversation<M extends TemplateMessage>(
  format: AnswerFormat,
  messages: readonly M[],
  tools: readonly unknown[],
  isForced: boolean,
): ShownConversation<M> {
  const isOffered = tools.length > 0;
  if (knowsTools(format) || !(isOffered || messages.some(isOfTools))) {
    return { messages, tools, format, isGeneric: false };
  }
  return {
    messages: genericMessages(messages, tools, isForced) as M[],
    tools: [],
    format: isOffered ? { ...format, calls } : format,
    isGeneric: isOffered,
  };
}

/** Whether a template that knows no tools may be at a loss with it: a call, or its result. */
const isOfTools = (message: TemplateMessage): boolean =>
  message.role === "tool" || (message as Message).tool_calls !== undefined;

/** A conversation with tools as one without. */
function genericMessages(
  messages: readonly TemplateMessage[],
  tools: readonly unknown[],
  isForced: boolean,
): TemplateMessage[] {
  const said: TemplateMessage[] = [];
  let isResult = false;
  for (const given of messages as readonly Message[]) {
    const { role, content } = given;
    const before = isResult ? said.at(-1) : undefined;
    isResult = role === "tool";
    if (role === "tool") {
      const result = `${given.name === undefined ? "Result" : `Result of ${given.name}`}: ${content}`;
      // Results of several calls are one message: many templates want turns to alternate.
      if (before !== undefined) said[said.length - 1] = joined(before, result);
      else said.push({ role: "user", content: result });
    } else if (given.tool_calls !== undefined) {
      const tool_calls = given.tool_calls.map(({ function: own }) => own);
      const call = JSON.stringify({ tool_calls });
      said.push({ role, content: content === "" ? call : `${content}\n${call}` });
    } else
      said.push(before !== undefined && role === "user" ? mergeInto(said, before, content) : given);
  }
  if (tools.length === 0) return said;
  const text = describe(tools, isForced);
  const [first, ...rest] = said;
  if (first?.role === "system") return [joined(first, text), ...rest];
  return [{ role: "system", content: text }, ...said];
}

const joined = (message: TemplateMessage, text: string): TemplateMessage => ({
  ...message,
  content: `${message.content}\n\n${text}`,
});

/** The user's words after results belong to the same turn. */
function mergeInto(
  said: TemplateMessage[],
  before: TemplateMessage,
  text: string,
): TemplateMessage {
  said.pop();
  return joined(before, text);
}
