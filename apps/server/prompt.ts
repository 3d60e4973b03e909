// Turns messages into prompt tokens: with the model's chat template if it has one. A model without one only continues
// text, and gets the messages' texts one after the other.

import { byName } from "../../src/base/by-name.ts";
import type { ContextCapacity } from "../../src/base/context-advice.ts";
import {
  type ChatMessage,
  ContextError,
  joined,
  type RenderedPrompt,
  type TemplateOptions,
  type TokenizeOptions,
  words,
} from "../../src/index.ts";
import type { ServedModel } from "./context.ts";
import { contextExceeded, invalidRequest, unsupportedField } from "./errors.ts";

/** The error for a prompt that does not fit. */
export type Refuse = (
  promptTokens: number,
  room: ContextCapacity,
  param: string,
  qualifier?: "at least ",
) => Error;

/** Text, or parts; those of `textTypes` are text. */
export type Content = string | readonly { readonly type: string; readonly text?: unknown }[];

/** Words from which clients learn that a model cannot see or hear. */
const otherMedia: Readonly<Record<string, string>> = byName({
  image: "image input is not supported",
  document: "document input other than text is not supported",
  image_url: "image input is not supported",
  input_image: "image input is not supported",
  input_audio: "audio input is not supported",
  input_video: "video input is not supported",
});

/**
 * The text of a message, its parts joined by `joint`; llama.cpp puts them on separate lines. Pictures, sounds and
 * files are refused by type.
 */
export function contentText(
  content: Content,
  path: string,
  textTypes: readonly string[],
  joint: string = "\n",
): string {
  if (typeof content === "string") return content;
  return content
    .map(({ type, text }, at) => {
      const where = `${path}[${at}]`;
      if (!textTypes.includes(type)) {
        const shown = type.slice(0, 60);
        const media = Object.hasOwn(otherMedia, type) ? `${otherMedia[type]}, ` : "";
        throw unsupportedField(
          where,
          `parts of type "${shown}": ${media}this server reads text only`,
        );
      }
      if (typeof text !== "string")
        throw invalidRequest(`"${where}.text": expected a string`, where);
      return text;
    })
    .join(joint);
}

export interface ChatPromptOptions {
  /** End with the start of the assistant's turn (default true). */
  addGenerationPrompt?: boolean | undefined;
  /** The last message is the start of the answer (default: if it is the assistant's). */
  continueFinal?: boolean | undefined;
  tools?: readonly unknown[] | undefined;
  /** More variables of the template. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

/** A conversation with the system message of the model's preset, if it has none of its own. */
export function withSystem(
  { preset }: ServedModel,
  messages: readonly ChatMessage[],
): readonly ChatMessage[] {
  const { system } = preset ?? {};
  const isOwn = messages.some(({ role }) => role === "system");
  return system === undefined || isOwn
    ? messages
    : [{ role: "system", content: system }, ...messages];
}

/** The number of tokens of a conversation's prompt, whether they fit or not. */
export async function chatTokenCount(
  served: ServedModel,
  messages: readonly ChatMessage[],
  options: ChatPromptOptions = {},
): Promise<number> {
  return await served.model.countTokens(await chatText(served, messages, options));
}

/**
 * The prompt of a conversation, with the start of the answer. If the last message is the assistant's, the model
 * continues it.
 */
export async function chatText(
  { model }: ServedModel,
  messages: readonly ChatMessage[],
  options: ChatPromptOptions = {},
): Promise<RenderedPrompt> {
  const { addGenerationPrompt = true, tools, variables } = options;
  const goesOn = continues(messages, options);
  if (!model.info.hasChatTemplate) {
    return words(messages.map(({ content }) => content).join("\n\n"));
  }
  const template: TemplateOptions = {
    addGenerationPrompt: goesOn || addGenerationPrompt,
    ...(tools && { tools }),
    ...(variables && { variables }),
  };
  if (!goesOn) return await model.applyTemplate(messages, template);
  const before = await model.applyTemplate(messages.slice(0, -1), template);
  return joined(before, words(messages.at(-1)!.content));
}

/** Whether the last message is the start of the answer. */
function continues(
  messages: readonly ChatMessage[],
  { addGenerationPrompt, continueFinal }: ChatPromptOptions,
): boolean {
  const [before, last] = [messages.at(-2)?.role, messages.at(-1)?.role];
  const goesOn = continueFinal ?? last === "assistant";
  if (!goesOn) return false;
  if (continueFinal && addGenerationPrompt) {
    throw invalidRequest(
      '"add_generation_prompt" and "continue_final_message": got true for both, expected true for at most one',
      "continue_final_message",
    );
  }
  if (last !== "assistant") {
    throw invalidRequest(
      '"continue_final_message": the last message is not the assistant\'s, so there is no answer to continue',
      "continue_final_message",
    );
  }
  if (before === "assistant") {
    throw invalidRequest(
      '"messages": the last two are both the assistant\'s, expected at most one, the beginning of the answer',
      "messages",
    );
  }
  return true;
}

/** Options for tokenizing a text. */
export interface TextOptions extends Pick<TokenizeOptions, "parseSpecial"> {
  /** The field of the text. */
  readonly param?: string | undefined;
  readonly refuse?: Refuse | undefined;
}

/**
 * The tokens of a text. If it begins with BOS itself, no second one is added. A text that is certainly too long is refused by its
 * length, without tokenizing it.
 */
export async function textTokens(
  served: ServedModel,
  text: string | RenderedPrompt,
  { param = "prompt", refuse = contextExceeded, parseSpecial = true }: TextOptions = {},
): Promise<number[]> {
  const { model } = served;
  const { contextSize } = model.info;
  checkLength(served, (typeof text === "string" ? text : text.text).length, param, refuse);
  try {
    const [tokens, empty] = await Promise.all([
      model.tokenize(text, { maxTokens: contextSize, parseSpecial }),
      model.tokenize(""),
    ]);
    return hasTwoBos(tokens, empty) ? tokens.slice(1) : tokens;
  } catch (error) {
    if (!(error instanceof ContextError) || error.tokens === undefined) throw error;
    throw refuse(error.tokens, model.info, param);
  }
}

function hasTwoBos(tokens: readonly number[], [bos]: readonly number[]): boolean {
  return bos !== undefined && tokens[0] === bos && tokens[1] === bos;
}

/** Refuses a text that would not fit even if all of its tokens were the longest ones. */
function checkLength({ model }: ServedModel, length: number, param: string, refuse: Refuse): void {
  const { longestToken, contextSize } = model.info;
  if (longestToken === undefined) return;
  const least = Math.ceil(length / longestToken);
  if (least > contextSize) throw refuse(least, model.info, param, "at least ");
}
