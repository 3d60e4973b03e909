// Messages of OpenAI's chat requests, and the fields that control the template: for /v1/chat/completions, its token
// count and /apply-template.

import * as z from "zod";
import type { ChatMessage } from "../../src/index.ts";
import { checkFields, type FieldRules } from "./body.ts";
import { earlierCalls } from "./chat-tools.ts";
import type { ServerSettings } from "./context.ts";
import { invalidRequest, unsupportedField } from "./errors.ts";
import { contentInput, objectList } from "./inputs.ts";
import { type ChatPromptOptions, contentText } from "./prompt.ts";
import type { Call } from "./route.ts";

const messageFields = z.object({
  role: z.enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: contentInput.optional(),
  tool_calls: z.unknown().optional(),
  tool_call_id: z.string().optional(),
  reasoning_content: z.string().optional(),
  name: z.string().optional(),
});

const messageRules: FieldRules = {
  accepted: ["refusal", "annotations", "reasoning_details"],
  refused: {
    function_call: { why: 'it was replaced by "tool_calls"' },
    audio: { why: "this server reads text only" },
  },
  adjust: otherReasoning,
};

/** OpenRouter's and vLLM's name for the reasoning of an earlier answer. */
function otherReasoning(message: Record<string, unknown>): void {
  const { reasoning } = message;
  if (typeof reasoning !== "string") return;
  delete message.reasoning;
  message.reasoning_content ??= reasoning;
}

type Message = Readonly<Record<string, unknown>>;

export interface TemplateFields {
  messages: Message[];
  add_generation_prompt?: boolean | undefined;
  continue_final_message?: boolean | "content" | undefined;
  chat_template_kwargs?: Record<string, unknown> | undefined;
  enable_thinking?: boolean | undefined;
  reasoning_effort?: string | undefined;
}

export const templateShape: {
  readonly [K in keyof TemplateFields]-?: z.ZodType<TemplateFields[K]>;
} = {
  messages: objectList.refine((list) => list.length > 0, "expected at least one message"),
  add_generation_prompt: z.boolean().optional(),
  continue_final_message: z.union([z.boolean(), z.literal("content")]).optional(),
  chat_template_kwargs: z.record(z.string(), z.unknown()).optional(),
  enable_thinking: z.boolean().optional(),
  reasoning_effort: z.string().max(40).optional(),
};

/** OpenAI's messages in the template's form. */
export function toMessages(
  messages: readonly Message[],
  { ignored, server: { settings } }: Call,
): ChatMessage[] {
  const { maxMessages } = settings;
  if (messages.length > maxMessages) {
    throw invalidRequest(
      `"messages": got ${messages.length}, expected at most ${maxMessages}`,
      "messages",
      "too_many_messages",
    );
  }
  return messages.map((message, at) => {
    const path = `messages[${at}]`;
    const read = checkFields(message, messageFields, messageRules, `${path}.`, ignored);
    const { role, content, tool_call_id, reasoning_content, name } = read;
    if (role === "function") {
      throw unsupportedField(`${path}.role`, 'it was replaced by "tool"');
    }
    if (role === "tool" && tool_call_id === undefined) {
      throw invalidRequest(
        `"${path}.tool_call_id": it is missing, expected the id of the call that this answers`,
        `${path}.tool_call_id`,
      );
    }
    if (content === undefined && message.content !== null) {
      throw invalidRequest(`"${path}.content": expected a string, or null`, `${path}.content`);
    }
    // As in llama.cpp, parts are joined as lines; at the start of an answer, as paragraphs.
    const joint = at === messages.length - 1 && role === "assistant" ? "\n\n" : "\n";
    const text = contentText(content ?? "", `${path}.content`, ["text"], joint);
    const tool_calls =
      read.tool_calls === undefined
        ? undefined
        : earlierCalls(read.tool_calls, `${path}.tool_calls`);
    // Other fields go to the template unchanged.
    const more = { tool_calls, tool_call_id, reasoning_content, name };
    const given = Object.entries(more).filter(([, value]) => value !== undefined);
    const own = { role: role === "developer" ? "system" : role, content: text } as const;
    return { ...own, ...Object.fromEntries(given) };
  });
}

/** Template options besides the messages. */
export function promptOptions(fields: TemplateFields, settings: ServerSettings): ChatPromptOptions {
  const { reasoning_effort: effort } = fields;
  const continueFinal = fields.continue_final_message ?? (settings.prefill ? undefined : false);
  return {
    addGenerationPrompt: fields.add_generation_prompt,
    ...(continueFinal !== undefined && { continueFinal: continueFinal !== false }),
    variables: {
      ...templateDefaults(settings),
      ...effortVariables(effort),
      ...fields.chat_template_kwargs,
      ...thinking(fields.enable_thinking),
    },
  };
}

/** Variables of templates, unless a request sets them. */
export function templateDefaults(settings: ServerSettings): Readonly<Record<string, unknown>> {
  return {
    ...settings.templateVariables,
    ...thinking(settings.thinking),
    ...effortVariables(settings.reasoning?.effort),
  };
}

function effortVariables(effort: string | undefined): Readonly<Record<string, unknown>> {
  if (effort === undefined) return {};
  return effort === "none" ? thinking(false) : { reasoning_effort: effort };
}

/** The variable for templates that let a model think first, or not. */
export function thinking(wanted: boolean | undefined): { enable_thinking?: boolean } {
  return wanted === undefined ? {} : { enable_thinking: wanted };
}
