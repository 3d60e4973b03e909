// From messages to the tokens that a model reads. With the model's chat template, where it has one; a model without one
// continues text, and gets the messages' text as it stands, one after the other.

import { byName } from "../base/by-name.ts";
import { type ChatMessage, ContextError, type TemplateOptions } from "../index.ts";
import type { ServedModel } from "./context.ts";
import { contextExceeded, invalidRequest, unsupportedField } from "./errors.ts";

/** The error for a prompt that does not fit. */
export type Refuse = (
  promptTokens: number,
  contextSize: number,
  param: string,
  qualifier?: "at least ",
) => Error;

/** Text, or parts of which those of `textTypes` are text. */
export type Content = string | readonly { readonly type: string; readonly text?: unknown }[];

/** The words in which clients that look for them find that a model does not see or hear. */
const otherMedia: Readonly<Record<string, string>> = byName({
  image: "image input is not supported",
  image_url: "image input is not supported",
  input_image: "image input is not supported",
  input_audio: "audio input is not supported",
  input_video: "video input is not supported",
});

/**
 * The text of a message, its parts joined by `joint`; llama.cpp puts them on lines of their own. Pictures, sounds and
 * files are refused by their type's name.
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
  /** End with the beginning of an answer (default true). */
  addGenerationPrompt?: boolean | undefined;
  /** The last message is the beginning of the answer (default: where it is the assistant's). */
  continueFinal?: boolean | undefined;
  tools?: readonly unknown[] | undefined;
  /** Further variables of the template. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * The prompt of a conversation, with the beginning of the answer. A last message of the assistant's is that beginning:
 * the model goes on from it.
 */
export async function chatTokens(
  served: ServedModel,
  messages: readonly ChatMessage[],
  options: ChatPromptOptions = {},
  param: string = "messages",
  refuse: Refuse = contextExceeded,
): Promise<number[]> {
  return await textTokens(served, await chatText(served, messages, options), param, refuse);
}

/** How many tokens that would be, whether they fit or not. */
export async function chatTokenCount(
  served: ServedModel,
  messages: readonly ChatMessage[],
  options: ChatPromptOptions = {},
): Promise<number> {
  const { model } = served;
  const text = await chatText(served, messages, options);
  const [count, tokens] = await Promise.all([
    model.countTokens(text),
    model.tokenize(text.slice(0, 100)),
  ]);
  return hasTwoBos(tokens, await model.tokenize("")) ? count - 1 : count;
}

export async function chatText(
  { model }: ServedModel,
  messages: readonly ChatMessage[],
  options: ChatPromptOptions = {},
): Promise<string> {
  const { addGenerationPrompt = true, tools, variables } = options;
  const goesOn = continues(messages, options);
  if (!model.info.hasChatTemplate) return messages.map(({ content }) => content).join("\n\n");
  const template: TemplateOptions = {
    addGenerationPrompt: goesOn || addGenerationPrompt,
    ...(tools && { tools }),
    ...(variables && { variables }),
  };
  if (!goesOn) return await model.applyTemplate(messages, template);
  return (await model.applyTemplate(messages.slice(0, -1), template)) + messages.at(-1)!.content;
}

/** Whether the last message is the beginning of the answer. */
function continues(
  messages: readonly ChatMessage[],
  { addGenerationPrompt, continueFinal }: ChatPromptOptions,
): boolean {
  const [before, last] = [messages.at(-2)?.role, messages.at(-1)?.role];
  const goesOn = continueFinal ?? last === "assistant";
  if (!goesOn) return false;
  if (continueFinal && addGenerationPrompt) {
    throw invalidRequest(
      '"add_generation_prompt" and "continue_final_message": got true for both, expected it for one of them',
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
      '"messages": the last two are both the assistant\'s, expected one at most: it is the beginning of the answer',
      "messages",
    );
  }
  return true;
}

/**
 * A text as the model reads it. A template that writes BOS itself gets no second one. A text that does not fit is refused
 * by its length, before any work, where that is certain; `param` is the field that it comes from.
 */
export async function textTokens(
  served: ServedModel,
  text: string,
  param: string = "prompt",
  refuse: Refuse = contextExceeded,
): Promise<number[]> {
  const { model } = served;
  const { contextSize } = model.info;
  checkLength(served, text.length, param, refuse);
  try {
    const [tokens, empty] = await Promise.all([
      model.tokenize(text, { maxTokens: contextSize }),
      model.tokenize(""),
    ]);
    return hasTwoBos(tokens, empty) ? tokens.slice(1) : tokens;
  } catch (error) {
    if (!(error instanceof ContextError) || error.tokens === undefined) throw error;
    throw refuse(error.tokens, contextSize, param);
  }
}

/** A text as the model reads it, however long it is. */
export async function wholeTextTokens({ model }: ServedModel, text: string): Promise<number[]> {
  const [tokens, empty] = await Promise.all([model.tokenize(text), model.tokenize("")]);
  return hasTwoBos(tokens, empty) ? tokens.slice(1) : tokens;
}

function hasTwoBos(tokens: readonly number[], [bos]: readonly number[]): boolean {
  return bos !== undefined && tokens[0] === bos && tokens[1] === bos;
}

/** Even if all of its tokens were the longest that there are. */
function checkLength({ model }: ServedModel, length: number, param: string, refuse: Refuse): void {
  const { longestToken, contextSize } = model.info;
  if (longestToken === undefined) return;
  const least = Math.ceil(length / longestToken);
  if (least > contextSize) throw refuse(least, contextSize, param, "at least ");
}
