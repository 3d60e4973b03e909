// From messages to the tokens that a model reads. With the model's chat template, where it has one; a model without one
// continues text, and gets the messages' text as it stands, one after the other.

import { type ChatMessage, ContextError } from "../index.ts";
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

/** The text of a message; pictures, sounds and files are refused by their type's name. */
export function contentText(content: Content, path: string, textTypes: readonly string[]): string {
  if (typeof content === "string") return content;
  return content
    .map(({ type, text }, at) => {
      const where = `${path}[${at}]`;
      if (!textTypes.includes(type)) {
        const shown = type.slice(0, 60);
        throw unsupportedField(where, `parts of type "${shown}": this server reads text only`);
      }
      if (typeof text !== "string")
        throw invalidRequest(`"${where}.text": expected a string`, where);
      return text;
    })
    .join("");
}

/**
 * The prompt of a conversation, with the beginning of the answer. A last message of the assistant's is that beginning:
 * the model goes on from it.
 */
export async function chatTokens(
  served: ServedModel,
  messages: readonly ChatMessage[],
  param: string = "messages",
  refuse: Refuse = contextExceeded,
): Promise<number[]> {
  return await textTokens(served, await chatText(served, messages), param, refuse);
}

/** How many tokens that would be, whether they fit or not. */
export async function chatTokenCount(
  served: ServedModel,
  messages: readonly ChatMessage[],
): Promise<number> {
  const { model } = served;
  const text = await chatText(served, messages);
  const [count, tokens] = await Promise.all([
    model.countTokens(text),
    model.tokenize(text.slice(0, 100)),
  ]);
  return hasTwoBos(tokens, await model.tokenize("")) ? count - 1 : count;
}

export async function chatText(
  { model }: ServedModel,
  messages: readonly ChatMessage[],
): Promise<string> {
  if (!model.info.hasChatTemplate) return messages.map(({ content }) => content).join("\n\n");
  const last = messages.at(-1);
  const begun = last?.role === "assistant" ? last.content : undefined;
  const asked = begun === undefined ? messages : messages.slice(0, -1);
  return (await model.applyTemplate(asked, { addGenerationPrompt: true })) + (begun ?? "");
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
