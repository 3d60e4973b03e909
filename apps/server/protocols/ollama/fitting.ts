// Long conversations, as Ollama's clients expect them to be treated: unless `truncate` is false, the oldest messages are left out
// until the rest fits. The answer's headers say how many.

import type { ChatMessage } from "../../../../src/index.ts";
import type { ChatTurn } from "../../chat-turn.ts";
import type { ServedModel } from "../../context.ts";
import { ApiError, contextExceeded } from "../../errors.ts";

/** Tokens that are left for the answer, if the request does not say how many: at most this many, and at most a quarter of the context. */
const ROOM = 1024;

/** @param make Prepares the turn of these messages. @param wanted Tokens of the answer; undefined: any number. */
export async function fittingTurn(
  { model }: ServedModel,
  messages: readonly ChatMessage[],
  wanted: number | undefined,
  make: (messages: readonly ChatMessage[]) => Promise<ChatTurn>,
): Promise<ChatTurn> {
  const { contextSize } = model.info;
  const whole = await tried(make, messages);
  if (!(whole instanceof ApiError) && whole.tokens.length < contextSize) return whole;
  const most = contextSize - Math.min(wanted ?? ROOM, ROOM, Math.floor(contextSize / 4));
  // System messages and the last one always stay.
  const rest = messages.filter(({ role }) => role !== "system");
  const shortened = (left: number): ChatMessage[] => {
    const gone = new Set(rest.slice(0, left));
    return messages.filter((message) => !gone.has(message));
  };
  let [few, many] = [0, rest.length - 1]; // too few to leave out, and as many as is possible
  let found = many > 0 ? await tried(make, shortened(many)) : whole;
  if (found instanceof ApiError) throw found;
  if (found.tokens.length >= contextSize) {
    throw contextExceeded(found.tokens.length, model.info, "messages");
  }
  while (many - few > 1) {
    const middle = (few + many) >> 1;
    const turn = await tried(make, shortened(middle));
    if (turn instanceof ApiError || turn.tokens.length > most) few = middle;
    else [many, found] = [middle, turn];
  }
  return { ...found, headers: { ...found.headers, "x-lantern-dropped-messages": String(many) } };
}

/** The error, if the prompt is too long. */
async function tried(
  make: (messages: readonly ChatMessage[]) => Promise<ChatTurn>,
  messages: readonly ChatMessage[],
): Promise<ChatTurn | ApiError> {
  try {
    return await make(messages);
  } catch (error) {
    if (error instanceof ApiError && error.facts.code === "context_length_exceeded") return error;
    throw error;
  }
}
