// The summary of a chat: written by the model of the chat, of the newest part that fits into its context, for a new chat that
// continues it. The old chat is not changed.

import { canBeLarger, trainedFor } from "../../src/base/context-advice.ts";
import { ContextError } from "../../src/base/errors.ts";
import { Answer } from "./answer.ts";
import type { ChatPrompt, PromptMessage, RunModel } from "./prompt.ts";
import { type Session, SessionError } from "./session.ts";
import { toGenerateOptions } from "./settings.ts";

export interface Summary {
  text: string;
  /** Letters of the chat's beginning that the model could not read. */
  unread: number;
}

const wanted =
  "Summarise this conversation for somebody who continues it: what it is about, facts and names, what was decided, and what is still open. Write only the summary, in the language of the conversation.";

const mostTokens = 500;
/** The largest fraction of the context for it. */
const share = 1 / 4;

export async function summarise(
  { settings }: Session,
  path: readonly PromptMessage[],
  model: RunModel,
  signal: AbortSignal,
): Promise<Summary> {
  const said = path.map(
    ({ role, content }) => `${role === "user" ? "User" : "Answer"}: ${content}`,
  );
  const text = [...(settings.summary ? [`Earlier: ${settings.summary}`] : []), ...said].join(
    "\n\n",
  );
  if (text === "") throw new SessionError("invalid", "there is nothing to summarise yet");
  const maxTokens = Math.min(mostTokens, Math.max(1, Math.floor(model.contextSize * share)));
  const { prompt, length } = await longestEnd(text, model, model.contextSize - maxTokens);
  const { seed: _, maxTokens: _m, ...sampling } = toGenerateOptions(settings);
  const options = { ...sampling, ...prompt.options, maxTokens, signal };
  const generation = await model.generate(prompt.tokens, options);
  const answer = new Answer("", { content: "", raw: null }, 0, prompt.reader?.());
  for await (const event of generation.tokens()) answer.push(event, 0);
  await generation.result;
  answer.close();
  signal.throwIfAborted();
  const summary = answer.text.trim();
  if (summary !== "") return { text: summary, unread: text.length - length };
  throw new SessionError(
    "invalid",
    `${model.name} wrote no summary. Try again, or begin a new chat and say what matters`,
  );
}

/** The longest end of a text that fits, in a prompt that asks for its summary. */
async function longestEnd(
  text: string,
  model: RunModel,
  room: number,
): Promise<{ prompt: ChatPrompt; length: number }> {
  const ask = async (length: number): Promise<ChatPrompt | undefined> => {
    const content = `${wanted}\n\n${text.slice(text.length - length)}`;
    const none = { tools: [], thinking: false, schema: undefined };
    try {
      const prompt = await model.chatPrompt([{ role: "user", content }], none);
      return prompt.tokens.length <= room ? prompt : undefined;
    } catch (error) {
      if (error instanceof ContextError) return undefined;
      throw error;
    }
  };
  let found: { prompt: ChatPrompt; length: number } | undefined;
  // By halves; a few letters more or less do not matter.
  for (let low = 1, high = text.length, at = high; low <= high; at = (low + high) >> 1) {
    const prompt = await ask(at);
    if (prompt) {
      found = { prompt, length: at };
      low = at + Math.max(1, text.length >> 8);
    } else high = at - 1;
  }
  if (found) return found;
  throw new ContextError(
    `the context of ${model.name} holds ${model.contextSize} tokens, too few for a summary. ${canBeLarger(model) ? "Load the model with a larger context" : `There is no larger one: ${trainedFor(model)}. Begin a new chat without one`}`,
  );
}
