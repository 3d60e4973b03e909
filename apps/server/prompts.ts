// The prompts of a request in llama.cpp's forms, for /completion, /v1/completions and embeddings: a text, token ids,
// both mixed in one list, an object with a `prompt_string` (and, of a rendered prompt, its `template`), or a list of these for several answers. inputs.ts checks
// them.

import type { ServedModel } from "./context.ts";
import {
  inputList,
  isPromptList,
  type Piece,
  type PromptInput,
  type PromptOne,
  promptText,
} from "./inputs.ts";
import { type TextOptions, textTokens } from "./prompt.ts";

/** A prompt's tokens, and its text if it was given as text. */
export interface TextPrompt {
  text: string | undefined;
  tokens: readonly number[];
}

/** Each prompt of the field; `isList` if it asks for a list of answers. `parseSpecial`: whether special tokens in texts count. */
export async function readPrompts(
  served: ServedModel,
  input: PromptInput,
  parseSpecial: boolean,
): Promise<{ prompts: TextPrompt[]; isList: boolean }> {
  const read = async (one: PromptOne): Promise<TextPrompt> => {
    const given = promptText(one);
    const text = typeof given === "object" ? given.text : given;
    return { text, tokens: await promptTokens(served, one, { parseSpecial }) };
  };
  return { prompts: await Promise.all(inputList(input).map(read)), isList: isPromptList(input) };
}

/** The tokens of a text, or of a list of ids and texts, of which only a text at the start gets BOS. */
export async function promptTokens(
  served: ServedModel,
  prompt: PromptOne,
  options: TextOptions,
): Promise<number[]> {
  const text = promptText(prompt);
  if (text !== undefined) return await textTokens(served, text, options);
  const pieces = prompt as readonly Piece[];
  if (pieces.every((one) => typeof one === "number")) return pieces as number[];
  const { contextSize } = served.model.info;
  const { parseSpecial = true } = options;
  const how = { addBos: false, parseSpecial, maxTokens: contextSize };
  const read = async (one: Piece, at: number): Promise<number[]> => {
    if (typeof one === "number") return [one];
    if (at === 0) return await textTokens(served, one, options);
    return await served.model.tokenize(one, how);
  };
  return (await Promise.all(pieces.map(read))).flat();
}
