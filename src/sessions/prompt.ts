// From a place in a conversation to the tokens that the model reads, for each mode. The whole path from the first message
// counts: a chat that does not fit is refused with both numbers, never cut; of a story the model then sees the beginning
// and the latest part (slide.ts).
//
// Modes are one table: where a new message may stand, what "again" means, and how the path becomes a prompt.

import type { ChatMessage, GenerateOptions, GenerationResult, TokenEvent } from "../api/api.ts";
import { ContextError } from "../base/errors.ts";
import { type Message, type MessageRole, SessionError, type SessionMode } from "./session.ts";
import type { SessionSettings } from "./settings.ts";
import { type Prompt, slide } from "./slide.ts";

/** What answers: a model under a name. The server puts its queue and its counters in between. */
export interface RunModel {
  readonly name: string;
  readonly contextSize: number;
  chatTokens(messages: readonly ChatMessage[]): Promise<number[]>;
  textTokens(text: string): Promise<number[]>;
  /** Throws when `count` more generations would be refused. */
  checkRoom(count: number): void;
  /** Resolves when the generation has begun. */
  generate(tokens: readonly number[], options: GenerateOptions): Promise<RunGeneration>;
}

export interface RunGeneration {
  tokens(): AsyncIterable<TokenEvent>;
  readonly result: Promise<GenerationResult>;
}

/** What is asked for, as it comes from outside. */
export interface Asked {
  /** undefined: where the session stands. null: before the first message. */
  parent?: string | null | undefined;
  /** What the person wrote; undefined: nothing new. */
  content?: string | undefined;
  /** Another answer beside the one there is. */
  regenerate?: boolean | undefined;
  /** Whose message it is (default "user"). An "assistant" one was written by hand. */
  role?: MessageRole | undefined;
  /** An answer that is to go on where it ended. */
  message?: string | undefined;
}

interface Mode {
  /** Throws when a message of this role may not follow `last`. */
  checkFollows(last: Message | undefined, role: MessageRole): void;
  /** Whether something new must have been written. */
  readonly needsContent: boolean;
  /** Whether a text that outgrows the context goes on without its middle. */
  readonly slides: boolean;
  /** Of a path, the part that is answered again. */
  again(path: readonly Message[]): readonly Message[];
  tokens(
    model: RunModel,
    settings: SessionSettings,
    path: readonly PromptMessage[],
  ): Promise<number[]>;
}

export type PromptMessage = Pick<Message, "role" | "content">;

const chat: Mode = {
  needsContent: true,
  slides: false,
  checkFollows(last, role) {
    if ((last?.role ?? "assistant") !== role) return;
    const why =
      last === undefined
        ? "a conversation begins with the user's message"
        : `message "${last.id}" is the ${role}'s, too, and the two take turns. Give its own parent to write another version of it${role === "user" ? ', or "regenerate": true for an answer to it' : ""}`;
    throw new SessionError("invalid", `parent: ${why}`, "parent");
  },
  again(path) {
    const at = path.findLastIndex(({ role }) => role === "user");
    if (at >= 0) return path.slice(0, at + 1);
    throw new SessionError("invalid", "regenerate: nothing was asked yet", "regenerate");
  },
  tokens(model, { systemPrompt }, path) {
    const system: ChatMessage[] = systemPrompt ? [{ role: "system", content: systemPrompt }] : [];
    const turns = path.map(({ role, content }): ChatMessage => ({ role, content }));
    return model.chatTokens([...system, ...turns]);
  },
};

const story: Mode = {
  needsContent: false,
  slides: true,
  checkFollows() {},
  again: (path) => (path.at(-1)?.role === "assistant" ? path.slice(0, -1) : path),
  tokens: (model, _, path) => model.textTokens(path.map(({ content }) => content).join("")),
};

const modes: Readonly<Record<SessionMode, Mode>> = { chat, story };

/** The path that is answered: what stands above the answer, without what is new. */
export function askedPath(
  mode: SessionMode,
  path: readonly Message[],
  { content, regenerate, role = "user" }: Asked,
): readonly Message[] {
  const { needsContent, checkFollows, again } = modes[mode];
  if (regenerate) {
    if (content === undefined) return again(path);
    throw new SessionError(
      "invalid",
      'content: "regenerate" answers what is there. Leave one of them out',
      "content",
    );
  }
  if (content === undefined) {
    if (!needsContent) return path;
    throw new SessionError("invalid", "content: missing. Write something to answer", "content");
  }
  checkFollows(path.at(-1), role);
  return path;
}

export function slides(mode: SessionMode): boolean {
  return modes[mode].slides;
}

/** A chat that does not fit. */
export function tooLong(
  { name, contextSize }: Pick<RunModel, "name" | "contextSize">,
  tokens: number,
  qualifier: string = "",
): ContextError {
  return new ContextError(
    `this conversation has ${qualifier}${tokens} tokens, but the context of ${name} holds ${contextSize}, answer included. Go back to an earlier message, or load the model with a larger context. Nothing was cut or saved`,
  );
}

/** The prompt's tokens, which fit. */
export async function promptTokens(
  mode: SessionMode,
  model: RunModel,
  settings: SessionSettings,
  path: readonly PromptMessage[],
): Promise<Prompt> {
  const tokens = await modes[mode].tokens(model, settings, path);
  if (tokens.length === 0) {
    throw new SessionError("invalid", "there is no text to continue yet: write some", "content");
  }
  if (modes[mode].slides) return slide(tokens, model.contextSize, settings.maxTokens);
  if (tokens.length >= model.contextSize) {
    throw tooLong(model, tokens.length);
  }
  return { tokens, dropped: 0 };
}
