// The public Chat: a conversation on the caller's thread. src/engine/tools/ makes its answers: of one generation, or with tools of
// several; a caller gets the same kind of answer either way.

import type {
  AnswerEvent,
  Chat,
  ChatAnswer,
  ChatGeneration,
  ChatMessage,
  ChatOptions,
  GenerateOptions,
  Generation,
  Model,
  SavedState,
  SchemaOptions,
  SchemaValue,
  SendOptions,
  TokenEvent,
  ToolOptions,
} from "../api/api.ts";
import { wrongArgument } from "../base/arguments.ts";
import { AbortedError, DisposedError, UsageError } from "../base/errors.ts";
import { givenOptions } from "../base/options.ts";
import { checkCount, checkedMessages, checkOptions, checkText } from "./arguments.ts";
import { startStream } from "./generation.ts";
import { grammarSource } from "./grammar-options.ts";
import type { Prompt } from "./protocol.ts";
import { answerAlone } from "./tools/answer-alone.ts";
import { answerWithTools } from "./tools/answer-with-tools.ts";
import type { ForcedCall } from "./tools/call-grammar.ts";
import type { AnsweringModel, EmittedEvent, EndedAnswer } from "./tools/read-step.ts";
import { type ReadyTool, readySchema, readyTools } from "./tools/tool-set.ts";

/** The part of a model that chats need. */
export interface ChatModel
  extends Pick<Model, "answerFormat" | "applyTemplate" | "checkGrammar" | "saveState"> {
  readonly info: AnsweringModel["info"];
  run(prompt: Prompt, options: GenerateOptions): Generation;
}

export class EngineChat implements Chat {
  readonly #model: ChatModel;
  readonly #defaults: GenerateOptions;
  readonly #variables: Readonly<Record<string, unknown>>;
  #messages: ChatMessage[];
  #answering = false;
  #disposed = false;
  /** The tokens of the last answer and all before it. */
  #tokens: readonly number[] | undefined;

  constructor(model: ChatModel, options: ChatOptions) {
    checkOptions("chat()", options);
    const { system, messages, variables = {}, ...defaults } = options;
    this.#variables = checkedVariables(variables);
    this.#model = model;
    this.#defaults = defaults;
    this.#messages = messages === undefined ? [] : checkedMessages(messages);
    if (system !== undefined) this.setSystem(system);
  }

  get messages(): readonly ChatMessage[] {
    return this.#messages;
  }

  send<S>(text: string, options: ToolOptions<S>): ChatGeneration;
  send<S extends object>(
    text: string,
    options: SchemaOptions<S>,
  ): ChatGeneration<SchemaValue<S, unknown>>;
  send(text: string, options?: SendOptions): ChatGeneration;
  send(text: string, options: AnyOptions = {}): ChatGeneration<never> {
    checkText(text, "send(): text");
    checkOptions("send()", options);
    return this.#answer("send()", [...this.#messages, { role: "user", content: text }], options);
  }

  undo(): boolean {
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) return false;
    this.#messages = this.#messages.slice(0, at);
    return true;
  }

  regenerate<S>(options: ToolOptions<S>): ChatGeneration;
  regenerate<S extends object>(options: SchemaOptions<S>): ChatGeneration<SchemaValue<S, unknown>>;
  regenerate(options?: SendOptions): ChatGeneration;
  regenerate(options: AnyOptions = {}): ChatGeneration<never> {
    checkOptions("regenerate()", options);
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) throw new UsageError("regenerate(): there is no question to answer again yet");
    return this.#answer("regenerate()", this.#messages.slice(0, at + 1), options);
  }

  setSystem(text: string): void {
    checkText(text, "system");
    const rest = this.#messages.filter((message) => message.role !== "system");
    this.#messages = text ? [{ role: "system", content: text }, ...rest] : rest;
  }

  async saveState(path: string): Promise<SavedState> {
    if (!this.#tokens) throw new UsageError("saveState(): this chat has no answer yet");
    return await this.#model.saveState(path, { tokens: this.#tokens });
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
  }

  #answer(call: string, asked: ChatMessage[], options: AnyOptions): ChatGeneration<never> {
    if (this.#disposed) throw new DisposedError("the chat");
    const { variables, signal = this.#defaults.signal } = options;
    const answer =
      "tools" in options
        ? this.#withTools(call, asked, options)
        : this.#alone(call, asked, options as SendOptions);
    if (this.#answering) return chatGeneration(stillAnswering, undefined);
    const end = this.#begin(asked);
    const model = this.#answerer(variables);
    return chatGeneration(async (emit, either) => {
      try {
        const ended = await answer(model, emit, either);
        const isSaid = ended.messages.length > asked.length;
        if (isSaid) this.#tokens = tokensOf(ended.answer);
        end(isSaid ? ended.messages : undefined);
        return ended.answer as ChatAnswer<never>;
      } catch (error) {
        end(undefined);
        throw error;
      }
    }, signal);
  }

  #withTools(call: string, asked: ChatMessage[], options: ToolOptions<unknown>): StartAnswer {
    const { tools, maxSteps, toolTimeoutMs, maxToolText, onCall, ...more } = options;
    const { toolChoice, variables: _v, signal: _s, ...own } = more;
    const ready = readyTools(tools, call);
    const forced = forcedCall(toolChoice, ready, call);
    const generate: GenerateOptions = { ...this.#defaults, ...givenOptions(own) };
    if (grammarSource(generate) !== undefined) {
      throw new UsageError(
        `${call}: got tools and a grammar, expected one of them: calls have a grammar of their own`,
      );
    }
    checkCount(`${call}: maxSteps`, maxSteps, 1);
    checkCount(`${call}: toolTimeoutMs`, toolTimeoutMs, 1);
    checkCount(`${call}: maxToolText`, maxToolText, 1);
    if (onCall !== undefined && typeof onCall !== "function") {
      throw wrongArgument(`${call}: onCall`, onCall, "a function");
    }
    const limits = {
      maxSteps: maxSteps ?? 8,
      timeoutMs: Math.min(toolTimeoutMs ?? 60_000, longestTimeoutMs),
      maxText: maxToolText ?? 16_384,
    };
    return (model, emit, signal) =>
      answerWithTools(model, asked, {
        ...{ ...limits, tools: ready, forced, onCall, generate, signal, emit },
      });
  }

  #alone(call: string, asked: ChatMessage[], options: SendOptions): StartAnswer {
    const { schema: given, variables: _v, signal: _s, ...own } = options;
    const schema = given === undefined ? undefined : readySchema(given, `${call}: schema`);
    const generate = { ...this.#defaults, ...givenOptions(own) };
    return (model, emit, signal) => answerAlone(model, asked, { schema, generate, signal, emit });
  }

  /** The model as answers need it. */
  #answerer(variables: Readonly<Record<string, unknown>> | undefined): AnsweringModel {
    return {
      info: this.#model.info,
      answerFormat: () => this.#model.answerFormat(),
      render: async (messages, tools, signal) => {
        const all = { ...this.#variables, ...variables };
        try {
          return await this.#model.applyTemplate(messages, { tools, signal, variables: all });
        } catch (error) {
          if (error instanceof AbortedError) return undefined;
          throw error;
        }
      },
      grammarProblem: async (grammar) => {
        try {
          await this.#model.checkGrammar({ grammar });
          return undefined;
        } catch (error) {
          if (error instanceof UsageError) return error.message;
          throw error;
        }
      },
      // Aborted before it had a prompt: any gets the same result.
      generate: (prompt, how) =>
        prompt === undefined
          ? this.#model.run({ kind: "tokens", tokens: [0] }, how)
          : this.#model.run({ kind: "text", prompt, addBos: true, isRendered: true }, how),
    };
  }

  /** Begins an answer. The result ends it, with the messages then, or undefined if nothing was said. */
  #begin(asked: ChatMessage[]): (messages: ChatMessage[] | undefined) => void {
    const before = this.#messages;
    this.#messages = asked;
    this.#answering = true;
    return (messages) => {
      this.#answering = false;
      // Only if the conversation was not rolled back meanwhile.
      if (this.#messages === asked) this.#messages = messages ?? before;
    };
  }
}

function checkedVariables(given: unknown): Readonly<Record<string, unknown>> {
  if (typeof given === "object" && given !== null && !Array.isArray(given)) return { ...given };
  throw wrongArgument("chat(): variables", given, "an object");
}

/** The option toolChoice, checked. */
function forcedCall(choice: unknown, tools: readonly ReadyTool[], call: string): ForcedCall {
  if (choice === undefined || choice === "auto") return undefined;
  if (choice === "required" && tools.length > 0) return "required";
  const { name } = Object(choice) as { name?: unknown };
  const named = tools.find((tool) => tool.name === name);
  if (named !== undefined) return { name: named.name };
  throw wrongArgument(
    `${call}: toolChoice`,
    choice,
    '"auto", "required" or { name } of one of the tools',
  );
}

type AnyOptions = SendOptions | ToolOptions<unknown> | SchemaOptions<object>;

/** Begins an answer whose options are checked. */
type StartAnswer = (
  model: AnsweringModel,
  emit: (event: EmittedEvent) => void,
  signal: AbortSignal,
) => Promise<EndedAnswer>;

/** The longest that a timer takes. */
const longestTimeoutMs = 2 ** 31 - 1;

const tokensOf = ({ promptTokenIds, tokenIds }: ChatAnswer<unknown>): number[] => [
  ...promptTokenIds,
  ...tokenIds,
];

function chatGeneration(
  start: Parameters<typeof startStream<EmittedEvent, ChatAnswer<never>>>[0],
  signal: AbortSignal | undefined,
): ChatGeneration<never> {
  const { events: all, result } = startStream(start, signal);
  async function* tokens(): AsyncGenerator<TokenEvent> {
    for await (const event of all()) if (event.kind === "token") yield event.token;
  }
  async function* events(): AsyncGenerator<AnswerEvent> {
    for await (const event of all()) if (event.kind !== "token") yield event;
  }
  async function* text(): AsyncGenerator<string> {
    for await (const event of all()) if (event.kind === "content") yield event.text;
  }
  return { events, tokens, result, [Symbol.asyncIterator]: text };
}

/** Refused before the conversation changes: a second question would lose the first one's answer. */
function stillAnswering(): Promise<never> {
  const error = new UsageError(
    "this chat is still answering. Wait for the answer, or abort it before sending again",
  );
  return Promise.reject(error);
}
