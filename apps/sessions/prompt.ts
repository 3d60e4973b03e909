// Turns a message's position in a conversation into the model's prompt tokens, for each mode. The whole path from the
// first message counts. A chat that does not fit is refused with both numbers, unless its settings let the oldest
// messages go (window.ts). Of a story that does not fit, the model sees the beginning and the latest part (slide.ts).
//
// The modes are one table: where a new message may be added, the meaning of regenerating, and how the path becomes a
// prompt.

import { type ContextCapacity, canBeLarger, trainedFor } from "../../src/base/context-advice.ts";
import { ContextError } from "../../src/base/errors.ts";
import type {
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  TokenEvent,
} from "../../src/index.ts";
import { isAnswered, openCalls, toTurns } from "./calls.ts";
import {
  type Message,
  type MessageRole,
  SessionError,
  type SessionMode,
  type ToolCall,
} from "./session.ts";
import type { SessionSettings, SessionTool } from "./settings.ts";
import { type Prompt, slide } from "./slide.ts";
import { latest } from "./window.ts";

/** The model that answers, under its name. The server puts its queue and its counters in between. */
export interface RunModel extends ContextCapacity {
  readonly name: string;
  chatPrompt(messages: readonly ChatMessage[], options: ChatPromptOptions): Promise<ChatPrompt>;
  textTokens(text: string): Promise<number[]>;
  /** Throws if `count` more generations would be refused. */
  checkCapacity(count: number): void;
  /** Resolves when the generation has started. */
  generate(tokens: readonly number[], options: GenerateOptions): Promise<RunGeneration>;
}

export type ChatPrompt = Omit<Prompt, "dropped">;

export interface ChatPromptOptions {
  tools: readonly SessionTool[];
  /** Whether a model that can think first does; undefined: the model's default. */
  thinking: boolean | undefined;
  schema: SessionSettings["schema"];
}

export interface RunGeneration {
  tokens(): AsyncIterable<TokenEvent>;
  readonly result: Promise<GenerationResult>;
}

/** A request, as the client sends it. */
export interface Asked {
  /** undefined: at the session's current message. null: before the first message. */
  parent?: string | null | undefined;
  /** The person's new text; undefined: none. */
  content?: string | undefined;
  /** Write another answer beside the existing one. */
  regenerate?: boolean | undefined;
  /** The role of the message (default "user"). An "assistant" message was written by hand. */
  role?: MessageRole | undefined;
  /** The answer to continue. */
  message?: string | undefined;
}

interface Mode {
  /** Throws if a message of this role may not follow `last`. */
  checkFollows(last: Message | undefined, role: MessageRole): void;
  /** Whether new text is required. */
  readonly needsContent: boolean;
  /** Whether a text that outgrows the context continues without its middle. */
  readonly slides: boolean;
  /** The part of a path that is answered again. */
  again(path: readonly Message[]): readonly Message[];
  tokens(
    model: RunModel,
    settings: SessionSettings,
    path: readonly PromptMessage[],
  ): Promise<ChatPrompt>;
}

export type PromptMessage = Pick<Message, "role" | "content"> &
  Partial<Pick<Message, "reasoning" | "calls">>;

const chat: Mode = {
  needsContent: true,
  slides: false,
  checkFollows(last, role) {
    const waiting = last === undefined ? [] : openCalls(last);
    if (waiting.length > 0) throw unanswered(last!, waiting);
    if ((last?.role ?? "assistant") !== role || (role === "assistant" && isAnswered(last))) return;
    const why =
      last === undefined
        ? "a conversation begins with the user's message"
        : `message "${last.id}" is the ${role}'s, too, and the two take turns. Give its own parent to write another version of it${role === "user" ? ', or "regenerate": true for an answer to it' : ""}`;
    throw new SessionError("invalid", `parent: ${why}`, "parent");
  },
  again(path) {
    const above = path.at(-1)?.role === "assistant" ? path.slice(0, -1) : path;
    const at = above.findLastIndex((message) => message.role === "user" || isAnswered(message));
    if (at >= 0) return above.slice(0, at + 1);
    throw new SessionError(
      "invalid",
      "regenerate: there is no question to answer again yet",
      "regenerate",
    );
  },
  tokens(model, { systemPrompt, summary, tools = [], thinking, schema }, path) {
    const before = summary && `What was said earlier, in short:\n${summary}`;
    const content = [systemPrompt, before].filter(Boolean).join("\n\n");
    const system: ChatMessage[] = content === "" ? [] : [{ role: "system", content }];
    return model.chatPrompt([...system, ...path.flatMap(toTurns)], { tools, thinking, schema });
  },
};

const story: Mode = {
  needsContent: false,
  slides: true,
  checkFollows() {},
  again: (path) => (path.at(-1)?.role === "assistant" ? path.slice(0, -1) : path),
  tokens: async (model, _, path) => ({
    tokens: await model.textTokens(path.map(({ content }) => content).join("")),
  }),
};

const modes: Readonly<Record<SessionMode, Mode>> = { chat, story };

/** The path to answer: the messages above the answer, without the new one. */
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
      'content: got "content" with "regenerate", which answers what is there. Leave one of them out',
      "content",
    );
  }
  if (content === undefined) {
    const last = path.at(-1);
    if (!needsContent || isAnswered(last)) return path;
    const waiting = last === undefined ? [] : openCalls(last);
    if (waiting.length > 0) throw unanswered(last!, waiting);
    throw new SessionError("invalid", "content: missing. Write a message", "content");
  }
  checkFollows(path.at(-1), role);
  return path;
}

function unanswered({ id }: Message, waiting: readonly ToolCall[]): SessionError {
  const names = waiting.map(({ name, id: call }) => `${name} (${call})`).join(", ");
  return new SessionError(
    "waiting",
    `message "${id}" has called ${names}, which wait${waiting.length === 1 ? "s" : ""} for a result. Give it or refuse the call first, or answer the question again`,
    "parent",
  );
}

export function slides(mode: SessionMode): boolean {
  return modes[mode].slides;
}

/** The error for a chat that does not fit. */
export function tooLong(
  { name, ...room }: ContextCapacity & Pick<RunModel, "name">,
  tokens: number,
  qualifier: string = "",
): ContextError {
  const { contextSize } = room;
  const larger = canBeLarger(room)
    ? "Load the model with a larger context, let"
    : `There is no larger one: ${trainedFor(room)}. Let`;
  return new ContextError(
    `this conversation has ${qualifier}${tokens} tokens, but the context of ${name} holds ${contextSize}, answer included. ${larger} the model read only the latest messages, or go on in a new chat with a summary. Nothing was cut or saved`,
  );
}

/** The prompt's tokens; checked to fit. */
export async function promptTokens(
  mode: SessionMode,
  model: RunModel,
  settings: SessionSettings,
  path: readonly PromptMessage[],
): Promise<Prompt> {
  if (!modes[mode].slides && settings.window) {
    return await latest(path, model, settings.maxTokens, (messages) =>
      modes[mode].tokens(model, settings, messages),
    );
  }
  const { tokens, reader, options } = await modes[mode].tokens(model, settings, path);
  if (tokens.length === 0) {
    throw new SessionError("invalid", "there is no text to continue yet. Write some", "content");
  }
  if (modes[mode].slides) return slide(tokens, model.contextSize, settings.maxTokens);
  if (tokens.length >= model.contextSize) {
    throw tooLong(model, tokens.length);
  }
  return { tokens, dropped: 0, reader, options };
}
