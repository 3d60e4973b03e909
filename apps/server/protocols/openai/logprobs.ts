// Log-probabilities of tokens in OpenAI's two shapes; Ollama's list is that of chats.

import type { TokenEvent } from "../../../../src/index.ts";

function chatLogprob(text: string, logprob: number, bytes: readonly number[]): object {
  return { token: text, logprob: finite(logprob), bytes };
}

/** A list, as Ollama's answers have it; events without a token are left out. */
export function listOfLogprobs(events: readonly TokenEvent[]): object[] {
  return events
    .filter((event) => event.logprob !== undefined)
    .map((event) => ({
      ...chatLogprob(tokenText(event), event.logprob!, event.bytes ?? []),
      top_logprobs: (event.top ?? []).map(({ text, logprob, bytes }) =>
        chatLogprob(text, logprob, bytes),
      ),
    }));
}

/** The shape of chats. */
export function chatLogprobs(events: readonly TokenEvent[]): object {
  return { content: listOfLogprobs(events), refusal: null };
}

/** The older shape of completions: four lists of the same length. */
export function completionLogprobs(events: readonly TokenEvent[], offset: number): object {
  const tokens = events.filter((event) => event.logprob !== undefined);
  let at = offset;
  const text_offset = tokens.map((event) => {
    const start = at;
    at += event.text.length;
    return start;
  });
  return {
    tokens: tokens.map(tokenText),
    token_logprobs: tokens.map((event) => finite(event.logprob!)),
    top_logprobs: tokens.map((event) =>
      Object.fromEntries((event.top ?? []).map(({ text, logprob }) => [text, finite(logprob)])),
    ),
    text_offset,
  };
}

/** The token's own text; `event.text` is the text that became certain with it, which may be more or less. */
function tokenText(event: TokenEvent): string {
  return event.token ?? event.text;
}

/** JSON has no -Infinity: this is OpenAI's value for "practically never". */
function finite(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -9999;
}
