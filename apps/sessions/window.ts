// Selects the messages of a chat that has outgrown the context that the model still reads: the latest, from a question on.
// Whole turns are left out, so that the template's marks stay in pairs; the system prompt and a summary are always read.
//
// The cut moves by several turns at a time: between two cuts the prompt only grows at its end, so that the KV cache holds all
// but the new tokens.

import { type ContextCapacity, contextAdvice } from "../../src/base/context-advice.ts";
import { ContextError } from "../../src/base/errors.ts";
import type { MessageRole } from "./session.ts";
import type { Prompt } from "./slide.ts";

type Read = Omit<Prompt, "dropped">;
type Turn = { readonly role: MessageRole };

/** The largest fraction of the context that is kept free for the answer. */
const capacityShare = 1 / 4;
/** Turns that leave together, if enough others stay. */
const turnsAtOnce = 4;

/** `wanted`: the most tokens of the answer. Throws the reader's own error if not even the last turn fits. */
export async function latest<M extends Turn>(
  path: readonly M[],
  model: ContextCapacity,
  wanted: number | undefined,
  read: (messages: readonly M[]) => Promise<Read>,
): Promise<Prompt> {
  const { contextSize } = model;
  const room = Math.min(wanted ?? Infinity, Math.max(1, Math.floor(contextSize * capacityShare)));
  const fits = async (from: number): Promise<Read | undefined> => {
    try {
      const found = await read(path.slice(from));
      return found.tokens.length + room <= contextSize ? found : undefined;
    } catch (error) {
      if (error instanceof ContextError) return undefined;
      throw error;
    }
  };
  const whole = await fits(0);
  if (whole) return { ...whole, dropped: 0 };
  const questions = path.flatMap(({ role }, at) => (role === "user" && at > 0 ? [at] : []));
  const largeSteps = questions.filter((_, at) => (at + 1) % turnsAtOnce === 0);
  const found = (await first(largeSteps, fits)) ?? (await first(questions, fits));
  if (found) return { ...found.prompt, dropped: await tokensBefore(found.from, path, read) };
  const last = questions.at(-1) ?? 0;
  const only = await read(path.slice(last)); // throws if the last turn alone is too long
  if (only.tokens.length < contextSize) {
    return { ...only, dropped: await tokensBefore(last, path, read) };
  }
  throw new ContextError(
    `the last message has ${only.tokens.length} tokens with what is always read, but the context holds ${contextSize}, answer included. ${contextAdvice(model, "load the model with a larger context")}. Nothing was cut or saved`,
  );
}

/** The earliest of these positions from which all fits: by halves, since later ones only become shorter. */
async function first(
  places: readonly number[],
  fits: (from: number) => Promise<Read | undefined>,
): Promise<{ from: number; prompt: Read } | undefined> {
  let found: { from: number; prompt: Read } | undefined;
  for (let low = 0, high = places.length; low < high; ) {
    const middle = (low + high) >> 1;
    const prompt = await fits(places[middle]!);
    if (prompt) {
      found = { from: places[middle]!, prompt };
      high = middle;
    } else low = middle + 1;
  }
  return found;
}

/** The approximate number of tokens that were left out: at least one for each message, if they are too long to be counted. */
async function tokensBefore<M extends Turn>(
  from: number,
  path: readonly M[],
  read: (messages: readonly M[]) => Promise<Read>,
): Promise<number> {
  if (from === 0) return 0;
  const counted = await read(path.slice(0, from)).catch((error: unknown) => {
    if (error instanceof ContextError) return undefined;
    throw error;
  });
  return counted?.tokens.length ?? from;
}
