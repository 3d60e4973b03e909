// The prompts of a request in llama.cpp's forms, for /completion, /v1/completions and embeddings: a text, token ids,
// both mixed in one list, an object with a `prompt_string`, or a list of these for several answers. inputs.ts checks
// them.

import type { ServedModel } from "./context.ts";
import { inputList, isPromptList, type Piece, type PromptInput, type PromptOne } from "./inputs.ts";
import { textTokens } from "./prompt.ts";

/** A prompt's tokens, and its text if it was given as text. */
export interface TextPrompt {
  text: string | undefined;
  tokens: readonly number[];
}

/** Each prompt of the field; `isList` if it asks for a list of answers. */
export async function readPrompts(
  served: ServedModel,
  input: PromptInput,
): Promise<{ prompts: TextPrompt[]; isList: boolean }> {
  const prompts = await Promise.all(inputList(input).map((one) => readPrompt(served, one)));
  return { prompts, isList: isPromptList(input) };
}

async function readPrompt(served: ServedModel, prompt: PromptOne): Promise<TextPrompt> {
  if (typeof prompt === "string") return { text: prompt, tokens: await textTokens(served, prompt) };
  if (!Array.isArray(prompt)) return await readPrompt(served, prompt.prompt_string);
  return { text: undefined, tokens: await promptTokens(served, prompt) };
}

/** The tokens of a list of ids and texts; only a text at the start gets BOS. `param`: the field that it comes from. */
export async function promptTokens(
  served: ServedModel,
  prompt: PromptOne,
  param: string = "prompt",
): Promise<number[]> {
  if (typeof prompt === "string") return await textTokens(served, prompt, param);
  if (!Array.isArray(prompt)) return await textTokens(served, prompt.prompt_string, param);
  if (prompt.every((one) => typeof one === "number")) return prompt;
  const { contextSize } = served.model.info;
  const read = async (one: Piece, at: number): Promise<number[]> => {
    if (typeof one === "number") return [one];
    if (at === 0) return await textTokens(served, one, param);
    return await served.model.tokenize(one, { addBos: false, maxTokens: contextSize });
  };
  return (await Promise.all(prompt.map(read))).flat();
}
