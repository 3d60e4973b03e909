// Converts messages of Anthropic's API to messages of a chat, and answers to its content blocks. Calls and their results are
// blocks of messages there; templates know calls as part of an answer, and results as messages of their own.

import * as z from "zod";
import { byName } from "../../../../src/base/by-name.ts";
import type { ChatMessage } from "../../../../src/index.ts";
import { checkFields, type FieldRules } from "../../body.ts";
import {
  type AnswerBlock,
  argumentsOf,
  type BlockEvent,
  type ChatAnswer,
} from "../../chat-answer.ts";
import { earlierCall } from "../../chat-tools.ts";
import { invalidRequest } from "../../errors.ts";
import type { IgnoredFields } from "../../ignored-fields.ts";
import { contentInput } from "../../inputs.ts";
import { type Content, contentText } from "../../prompt.ts";

export interface AnthropicMessage {
  readonly role: "user" | "assistant" | "system";
  readonly content: Content;
}

type Part = Readonly<Record<string, unknown>>;

/** Blocks of a cloud's own tools and compaction in earlier answers: the resulting texts stand beside them. */
const cloudBlocks: readonly string[] = [
  ...["redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result"],
  ...["code_execution_tool_result", "bash_code_execution_tool_result", "mcp_tool_use"],
  ...["text_editor_code_execution_tool_result", "mcp_tool_result", "tool_search_tool_result"],
  ...["container_upload", "fallback"],
];

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
export function anthropicTurns(
  messages: readonly AnthropicMessage[],
  ignored: IgnoredFields,
): ChatMessage[] {
  const names = new Map<string, string>(); // of tools, by the id of their call
  const turns = messages.flatMap(({ role, content }, at) => {
    const path = `messages[${at}].content`;
    if (typeof content === "string") return [{ role, content }];
    return role === "assistant"
      ? [assistantTurn(content, path, names, ignored)]
      : userTurns(role, content, path, names, ignored);
  });
  return turns as ChatMessage[];
}

function assistantTurn(
  parts: Exclude<Content, string>,
  path: string,
  names: Map<string, string>,
  ignored: IgnoredFields,
): Turn {
  const turn: Turn = { role: "assistant", content: "" };
  const texts: (typeof parts)[number][] = [];
  for (const [at, part] of parts.entries()) {
    const where = `${path}[${at}].`;
    if (part.type === "tool_use") {
      const { id, name, input } = checkFields(part as Part, useInput, rules, where, ignored);
      names.set(id, name);
      turn.tool_calls = [...(turn.tool_calls ?? []), earlierCall(name, input, id)];
    } else if (part.type === "thinking") {
      const { thinking } = checkFields(part as Part, thinkingInput, rules, where, ignored);
      turn.reasoning_content = (turn.reasoning_content ?? "") + thinking;
    } else if (!cloudBlocks.includes(part.type)) texts.push(part);
    else ignored.see(`${path}[${at}].type=${part.type}`);
  }
  turn.content = blocksText(texts, path);
  return turn;
}

function userTurns(
  role: string,
  parts: Exclude<Content, string>,
  path: string,
  names: ReadonlyMap<string, string>,
  ignored: IgnoredFields,
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
      ignored,
    );
    const name = names.get(id);
    if (name === undefined) {
      throw invalidRequest(
        `"${where}.tool_use_id": no tool_use before it has the id ${JSON.stringify(id.slice(0, 64))}`,
        `${where}.tool_use_id`,
      );
    }
    const text = blocksText(content, `${where}.content`);
    turns.push({ role: "tool", content: text, tool_call_id: id, name });
  }
  if (texts.length > 0 || turns.length === 0) {
    turns.push({ role, content: blocksText(texts, path) });
  }
  return turns;
}

const textInput = z.object({ type: z.literal("text"), text: z.string() });
const documentInput = z.object({
  title: z.string().nullish(),
  context: z.string().nullish(),
  source: z.discriminatedUnion("type", [
    z.object({ type: z.literal("text"), data: z.string() }),
    z.object({ type: z.literal("content"), content: z.union([z.string(), z.array(textInput)]) }),
  ]),
});
const searchInput = z.object({
  source: z.string(),
  title: z.string(),
  content: z.array(textInput),
});
const referenceInput = z.object({ tool_name: z.string() });

const joinedText = (parts: string | readonly { text: string }[]): string =>
  typeof parts === "string" ? parts : parts.map(({ text }) => text).join("\n");
const given = (parts: readonly (string | null | undefined)[]): string =>
  parts.filter((part) => part).join("\n");

/** Non-text blocks that can be read as text: documents that are text, search results, found tools. */
const readable: Readonly<Record<string, (block: unknown) => string | undefined>> = byName({
  document(block) {
    const { success, data } = documentInput.safeParse(block);
    if (!success) return undefined; // a PDF, or a file somewhere else
    const { source, title, context } = data;
    return given([
      title,
      context,
      source.type === "text" ? source.data : joinedText(source.content),
    ]);
  },
  search_result(block) {
    const { success, data } = searchInput.safeParse(block);
    return success ? given([data.title, data.source, joinedText(data.content)]) : undefined;
  },
  tool_reference(block) {
    const { success, data } = referenceInput.safeParse(block);
    return success ? data.tool_name : undefined;
  },
});

function blocksText(content: Content, path: string): string {
  if (typeof content === "string") return content;
  const parts = content.map((part) => {
    const text = Object.hasOwn(readable, part.type) ? readable[part.type]!(part) : undefined;
    return text === undefined ? part : { type: "text", text };
  });
  return contentText(parts, path, ["text"]);
}

/** The blocks of a whole answer. A call whose arguments are cut off by the end of the answer is left out: its input would not be an object. */
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
    // Clients expect a signature; ours is empty, because there is nothing to verify.
    const delta = { type: "signature_delta", signature: "" };
    if (block.kind === "reasoning") yield ["content_block_delta", { index, delta }];
    yield ["content_block_stop", { index }];
  }
}
