// Converts items of OpenAI's responses to messages of a chat: earlier messages, calls, results and reasoning.

import * as z from "zod";
import { byName } from "../../../../src/base/by-name.ts";
import type { ChatMessage } from "../../../../src/index.ts";
import { checkFields, type FieldRules } from "../../body.ts";
import { earlierArguments, earlierCall } from "../../chat-tools.ts";
import { invalidRequest, unsupportedField } from "../../errors.ts";
import type { IgnoredFields } from "../../ignored-fields.ts";
import { contentInput } from "../../inputs.ts";
import { type Content, contentText } from "../../prompt.ts";

/** Items of an earlier response come with their id and status. */
const itemRules: FieldRules = { accepted: ["id", "status", "phase"], refused: {} };

const messageItem = z.object({
  type: z.string().optional(),
  role: z.enum(["system", "developer", "user", "assistant"]).optional(),
  content: contentInput.optional(),
});

const callItem = z.object({
  type: z.string(),
  call_id: z.string(),
  name: z.string(),
  arguments: z.string(),
});

const outputItem = z.object({ type: z.string(), call_id: z.string(), output: contentInput });

const reasoningItem = z.object({
  type: z.string(),
  summary: contentInput.optional(),
  content: contentInput.optional(),
});

const textTypes = ["input_text", "output_text", "text"];

/** A message in the making: calls and reasoning join the answer that they are part of. */
interface Turn {
  role: string;
  content: string;
  reasoning_content?: string;
  tool_calls?: object[];
  tool_call_id?: string;
}

type Item = Readonly<Record<string, unknown>>;

/** Items of a cloud's own tools in earlier answers: the resulting texts are messages. */
const cloudItems: readonly string[] = [
  ...["web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call"],
  ...["mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call"],
  ...["tool_search_output", "compaction_trigger"],
];

class Conversation {
  readonly turns: Turn[] = [];
  /** Ids of the calls that were made. */
  readonly calls: Set<string> = new Set();

  /** The assistant's message that continues; a new one after any other role. */
  answer(): Turn {
    const last = this.turns.at(-1);
    if (last?.role === "assistant") return last;
    const turn: Turn = { role: "assistant", content: "" };
    this.turns.push(turn);
    return turn;
  }
}

type ReadItem = (item: Item, path: string, to: Conversation, ignored: IgnoredFields) => void;

const readers: Readonly<Record<string, ReadItem>> = byName({
  message(given, path, to, ignored) {
    const item = checkFields(given, messageItem, itemRules, `${path}.`, ignored);
    if (item.role === undefined || item.content === undefined) {
      throw invalidRequest(`"${path}": expected role and content`, path);
    }
    const content = contentText(item.content, `${path}.content`, textTypes);
    const last = to.turns.at(-1);
    // Reasoning stands before the text that it led to.
    if (item.role === "assistant" && last?.role === "assistant" && last.content === "") {
      last.content = content;
      return;
    }
    to.turns.push({ role: item.role === "developer" ? "system" : item.role, content });
  },
  function_call(given, path, to, ignored) {
    const item = checkFields(given, callItem, itemRules, `${path}.`, ignored);
    const values = earlierArguments(item.arguments, `${path}.arguments`);
    to.calls.add(item.call_id);
    const turn = to.answer();
    turn.tool_calls = [...(turn.tool_calls ?? []), earlierCall(item.name, values, item.call_id)];
  },
  function_call_output(given, path, to, ignored) {
    const { call_id, output } = checkFields(given, outputItem, itemRules, `${path}.`, ignored);
    if (!to.calls.has(call_id)) {
      throw invalidRequest(
        `"${path}.call_id": no function_call before it has the call_id ${JSON.stringify(call_id.slice(0, 64))}`,
        `${path}.call_id`,
      );
    }
    const content = contentText(output, `${path}.output`, textTypes);
    to.turns.push({ role: "tool", content, tool_call_id: call_id });
  },
  reasoning(given, path, to, ignored) {
    const rules = { ...itemRules, accepted: [...itemRules.accepted, "encrypted_content"] };
    const { content, summary } = checkFields(given, reasoningItem, rules, `${path}.`, ignored);
    const text = (parts: Content | undefined, name: string): string =>
      contentText(parts ?? "", `${path}.${name}`, ["reasoning_text", "summary_text", "text"]);
    const thought = text(content, "content") || text(summary, "summary");
    if (thought !== "") to.answer().reasoning_content = thought;
  },
});

/** @param items Not yet checked. */
export function responseMessages(
  items: readonly Item[],
  instructions: string | undefined,
  ignored: IgnoredFields,
): ChatMessage[] {
  const conversation = new Conversation();
  for (const [at, item] of items.entries()) {
    const path = `input[${at}]`;
    const type = String(item.type ?? "message"); // first: items of other types have other fields
    const read = Object.hasOwn(readers, type) ? readers[type] : undefined;
    if (read === undefined) {
      if (ignored.isStrict || !cloudItems.includes(type)) {
        throw unsupportedField(path, `items of type "${type.slice(0, 60)}"`);
      }
      ignored.see(`${path}.type=${type}`);
      continue;
    }
    read(item, path, conversation, ignored);
  }
  const said = conversation.turns as ChatMessage[];
  return instructions === undefined ? said : [{ role: "system", content: instructions }, ...said];
}
