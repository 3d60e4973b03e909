// Messages of Anthropic's API as messages of a chat, and answers as its content blocks. Calls and their results are blocks of
// messages there; templates know calls as part of an answer, and results as messages of their own.

import * as z from "zod";
import type { ChatMessage } from "../index.ts";
import { checkFields, type FieldRules } from "./body.ts";
import { type AnswerBlock, argumentsOf, type BlockEvent, type ChatAnswer } from "./chat-answer.ts";
import { earlierCall } from "./chat-tools.ts";
import { invalidRequest } from "./errors.ts";
import { contentInput } from "./inputs.ts";
import { type Content, contentText } from "./prompt.ts";

export interface AnthropicMessage {
  readonly role: "user" | "assistant" | "system";
  readonly content: Content;
}

type Part = Readonly<Record<string, unknown>>;

const rules: FieldRules = {
  accepted: ["cache_control", "citations", "caller", "toolset_name", "signature"],
  refused: {},
};

const useInput = z.object({
  type: z.string(),
  id: z.string(),
  name: z.string(),
  input: z.record(z.string(), z.unknown()),
});

const resultInput = z.object({
  type: z.string(),
  tool_use_id: z.string(),
  content: contentInput.optional(),
  is_error: z.boolean().optional(),
});

const thinkingInput = z.object({ type: z.string(), thinking: z.string() });

/** A message in the making. */
interface Turn {
  role: string;
  content: string;
  reasoning_content?: string;
  tool_calls?: object[];
  tool_call_id?: string;
  name?: string;
}

/** One message may become several: each result of a tool is one. */
export function anthropicTurns(messages: readonly AnthropicMessage[]): ChatMessage[] {
  const names = new Map<string, string>(); // of tools, by the id of their call
  const turns = messages.flatMap(({ role, content }, at) => {
    const path = `messages[${at}].content`;
    if (typeof content === "string") return [{ role, content }];
    return role === "assistant"
      ? [assistantTurn(content, path, names)]
      : userTurns(role, content, path, names);
  });
  return turns as ChatMessage[];
}

function assistantTurn(
  parts: Exclude<Content, string>,
  path: string,
  names: Map<string, string>,
): Turn {
  const turn: Turn = { role: "assistant", content: "" };
  const texts: (typeof parts)[number][] = [];
  for (const [at, part] of parts.entries()) {
    const where = `${path}[${at}].`;
    if (part.type === "tool_use") {
      const { id, name, input } = checkFields(part as Part, useInput, rules, where);
      names.set(id, name);
      turn.tool_calls = [...(turn.tool_calls ?? []), earlierCall(name, input, id)];
    } else if (part.type === "thinking") {
      const { thinking } = checkFields(part as Part, thinkingInput, rules, where);
      turn.reasoning_content = (turn.reasoning_content ?? "") + thinking;
    } else if (part.type !== "redacted_thinking") texts.push(part); // nobody can read those
  }
  turn.content = contentText(texts, path, ["text"]);
  return turn;
}

function userTurns(
  role: string,
  parts: Exclude<Content, string>,
  path: string,
  names: ReadonlyMap<string, string>,
): Turn[] {
  const turns: Turn[] = [];
  const texts: (typeof parts)[number][] = [];
  for (const [at, part] of parts.entries()) {
    if (part.type !== "tool_result") {
      texts.push(part);
      continue;
    }
    const where = `${path}[${at}]`;
    const { tool_use_id: id, content = "" } = checkFields(
      part as Part,
      resultInput,
      rules,
      `${where}.`,
    );
    const name = names.get(id);
    if (name === undefined) {
      throw invalidRequest(
        `"${where}.tool_use_id": no tool_use before it has the id ${JSON.stringify(id.slice(0, 64))}`,
        `${where}.tool_use_id`,
      );
    }
    const text = contentText(content, `${where}.content`, ["text"]);
    turns.push({ role: "tool", content: text, tool_call_id: id, name });
  }
  if (texts.length > 0 || turns.length === 0) {
    turns.push({ role, content: contentText(texts, path, ["text"]) });
  }
  return turns;
}

/** The blocks of a whole answer. A call whose arguments the answer ended in is not there: its input would not be an object. */
export function contentBlocks(answer: ChatAnswer): object[] {
  const blocks = answer.blocks.flatMap((block) => wholeBlock(block) ?? []);
  return blocks.length === 0 ? [{ type: "text", text: "" }] : blocks;
}

function wholeBlock(block: AnswerBlock): object | undefined {
  if (block.kind === "content") return { type: "text", text: block.text };
  if (block.kind === "reasoning") {
    return { type: "thinking", thinking: block.text, signature: "" };
  }
  const input = argumentsOf(block);
  return input && { type: "tool_use", id: block.id, name: block.name, input };
}

const emptyBlock = ({ kind, id, name }: AnswerBlock): object =>
  kind === "content"
    ? { type: "text", text: "" }
    : kind === "reasoning"
      ? { type: "thinking", thinking: "", signature: "" }
      : { type: "tool_use", id, name, input: {} };

const deltaOf = ({ kind }: AnswerBlock, text: string): object =>
  kind === "content"
    ? { type: "text_delta", text }
    : kind === "reasoning"
      ? { type: "thinking_delta", thinking: text }
      : { type: "input_json_delta", partial_json: text };

/** The streamed events of a block, as type and data. */
export function* blockEvents({
  type,
  block,
  text,
}: BlockEvent): Generator<readonly [string, object]> {
  const { index } = block;
  if (type === "open") yield ["content_block_start", { index, content_block: emptyBlock(block) }];
  else if (type === "delta") yield ["content_block_delta", { index, delta: deltaOf(block, text) }];
  else {
    // Clients expect a signature; ours is empty, for there is nothing to verify.
    const delta = { type: "signature_delta", signature: "" };
    if (block.kind === "reasoning") yield ["content_block_delta", { index, delta }];
    yield ["content_block_stop", { index }];
  }
}
