// Public types of conversations. Part of api.ts.

import type { ChatMessage, GenerateOptions } from "./generate.ts";
import type { SavedState } from "./state.ts";
import type {
  ChatGeneration,
  SchemaOptions,
  SchemaValue,
  SendOptions,
  ToolOptions,
} from "./tools.ts";

export interface ChatOptions extends GenerateOptions {
  system?: string | undefined;
  /** A conversation to continue. */
  messages?: readonly ChatMessage[] | undefined;
  /** More variables for the template, such as enable_thinking and reasoning_effort; a message's own override these. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

/** A conversation. Its past stays in the KV cache, so only new tokens are computed. */
export interface Chat {
  readonly messages: readonly ChatMessage[];
  /**
   * Sends a user message; with tools, the model may call them, and answers when it has their results (docs/library/tools.md). The answer joins
   * `messages` when it ends, even if it was aborted, its reasoning apart from its text. A message that fails (it does not fit, the template
   * refuses it, an answer is still running), or with an answer that is aborted before its first word, leaves the conversation unchanged.
   */
  send<S>(text: string, options: ToolOptions<S>): ChatGeneration;
  /** The answer is one JSON value of the schema, after any reasoning: `(await chat.send(text, { schema }).result).value`. */
  send<S extends object>(
    text: string,
    options: SchemaOptions<S>,
  ): ChatGeneration<SchemaValue<S, unknown>>;
  send(text: string, options?: SendOptions): ChatGeneration;
  /** Drops the last exchange; false when there is none. */
  undo(): boolean;
  /** Answers the last user message again. */
  regenerate<S>(options: ToolOptions<S>): ChatGeneration;
  regenerate<S extends object>(options: SchemaOptions<S>): ChatGeneration<SchemaValue<S, unknown>>;
  regenerate(options?: SendOptions): ChatGeneration;
  /** Replaces (or, with "", removes) the system message. */
  setSystem(text: string): void;
  /**
   * Writes the state of the last answer and all before it to a file: see Model.saveState(). After model.loadState(), a chat with the same
   * messages continues from there.
   */
  saveState(path: string): Promise<SavedState>;
  dispose(): void;
}
