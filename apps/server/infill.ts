// Fill-in-the-middle prompts, for models that were trained for it, in llama.cpp's form.
//
//   [REPOSITORY]myproject [SEPARATOR]file 1 ... [SEPARATOR]filename   context from other files, if there is any
//   [PREFIX]text before the gap [SUFFIX]text after it [MIDDLE]

import { ContextError } from "../../src/index.ts";
import type { ServedModel } from "./context.ts";
import { type ApiError, contextExceeded, notSupported } from "./errors.ts";

export interface Gap {
  prefix: string;
  suffix: string;
  /** The start of the text for the gap. */
  begun?: string | undefined;
  /** Other files of the project; if they do not fit, the first ones are left out. */
  extra?: readonly { filename?: string | undefined; text: string }[] | undefined;
}

/** 501, as in llama.cpp: the model was not trained for fill-in-the-middle. */
export function noFill(id: string): ApiError {
  return notSupported(
    `${id} does not support fill-in-the-middle: its vocabulary has no fim_pre, fim_suf and fim_mid tokens. Use a model that was trained for it, such as Qwen2.5-Coder`,
  );
}

/** `room`: tokens of the context that are left for the middle. */
export async function gapTokens(
  { id, model }: ServedModel,
  gap: Gap,
  room: number,
  param: string,
): Promise<number[]> {
  const { fillTokens: fill, contextSize, longestToken: longestPiece = 64 } = model.info;
  if (!fill) throw noFill(id);
  const tokens = async (text: string): Promise<number[]> => {
    try {
      return await model.tokenize(text, {
        addBos: false,
        parseSpecial: false,
        maxTokens: contextSize,
      });
    } catch (error) {
      if (!(error instanceof ContextError) || error.tokens === undefined) throw error;
      throw contextExceeded(error.tokens, model.info, param);
    }
  };
  const [prefix, suffix, begun, empty, extra] = await Promise.all([
    tokens(gap.prefix),
    tokens(gap.suffix),
    tokens(gap.begun ?? ""),
    model.tokenize(""), // BOS, if the model has one
    // Only the ends of files may fit, so no more than these are tokenized.
    extraTokens(gap.extra ?? [], fill, (text) =>
      model.tokenize(text.slice(-contextSize * longestPiece), {
        addBos: false,
        parseSpecial: false,
      }),
    ),
  ]);
  const own = [...empty, fill.prefix, ...prefix, ...begun, fill.suffix, ...suffix, fill.middle];
  const left = Math.max(0, contextSize - 1 - own.length - room);
  return left === 0 ? own : [...extra.slice(-left), ...own];
}

async function extraTokens(
  extra: NonNullable<Gap["extra"]>,
  { repository, separator }: NonNullable<ServedModel["model"]["info"]["fillTokens"]>,
  tokens: (text: string) => Promise<number[]>,
): Promise<number[]> {
  const parts: (number[] | Promise<number[]>)[] = [];
  if (repository !== undefined) parts.push([repository], tokens("myproject\n"));
  for (const { filename = "tmp", text } of extra) {
    if (separator !== undefined) parts.push([separator], tokens(`${filename}\n`));
    else parts.push(tokens("\n\n--- snippet ---\n\n"));
    parts.push(tokens(text));
  }
  if (separator !== undefined) parts.push([separator], tokens("filename\n"));
  return (await Promise.all(parts)).flat();
}
