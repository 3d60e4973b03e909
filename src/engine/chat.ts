// The public Chat: a conversation on the caller's thread. A plain message is one generation; with tools, or with a schema that the
// answer must follow, src/engine/tools/ puts an answer together from generations.

import type {
  AnswerEvent,
  Chat,
  ChatMessage,
  ChatOptions,
  GenerateOptions,
  Generation,
  GenerationResult,
  Model,
  SavedState,
  SchemaGeneration,
  SchemaOptions,
  SchemaResult,
  SchemaValue,
  ToolAnswer,
  ToolGeneration,
  ToolOptions,
} from "../api/api.ts";
import { DisposedError, UsageError } from "../base/errors.ts";
import { isOfTools, shownConversation } from "../chat/answer/generic.ts";
import {
  checkCount,
  checkedMessages,
  checkOptions,
  checkText,
  wrongArgument,
} from "./arguments.ts";
import { startGeneration, startStream } from "./generation.ts";
import { grammarSource } from "./grammar-options.ts";
import type { Prompt } from "./protocol.ts";
import { answerWithSchema } from "./tools/answer-with-schema.ts";
import { type AnsweringModel, answerWithTools } from "./tools/answer-with-tools.ts";
import type { ForcedCall } from "./tools/call-grammar.ts";
import { type ReadyTool, readySchema, readyTools } from "./tools/tool-set.ts";

/** The part of a model that chats need. */
export interface ChatModel
  extends Pick<Model, "answerFormat" | "applyTemplate" | "checkGrammar" | "saveState"> {
  readonly info: Pick<Model["info"], "name">;
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

  send<S>(text: string, options: ToolOptions<S>): ToolGeneration;
  send<S extends object>(
    text: string,
    options: SchemaOptions<S>,
  ): SchemaGeneration<SchemaValue<S, unknown>>;
  send(text: string, options?: GenerateOptions): Generation;
  send(
    text: string,
    options: GenerateOptions | ToolOptions<unknown> | SchemaOptions<object> = {},
  ): AnyAnswer {
    checkText(text, "send(): text");
    checkOptions("send()", options);
    const { schema } = options as { schema?: unknown };
    if (schema !== undefined && !("tools" in options)) {
      return this.#answerWithSchema(
        [...this.#messages, { role: "user", content: text }],
        options as SchemaOptions<object>,
      );
    }
    return this.#start("send()", [...this.#messages, { role: "user", content: text }], options);
  }

  undo(): boolean {
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) return false;
    this.#messages = this.#messages.slice(0, at);
    return true;
  }

  regenerate<S>(options: ToolOptions<S>): ToolGeneration;
  regenerate(options?: GenerateOptions): Generation;
  regenerate(options: GenerateOptions | ToolOptions<unknown> = {}): AnyAnswer {
    checkOptions("regenerate()", options);
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) throw new UsageError("regenerate(): there is no question to answer again yet");
    return this.#start("regenerate()", this.#messages.slice(0, at + 1), options);
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

  #start(
    call: string,
    asked: ChatMessage[],
    options: GenerateOptions | ToolOptions<unknown>,
  ): AnyAnswer {
    if (this.#disposed) throw new DisposedError("the chat");
    if (!("tools" in options)) return this.#answer(asked, options);
    return this.#answerWithTools(call, asked, options);
  }

  #answer(asked: ChatMessage[], options: GenerateOptions): Generation {
    if (this.#answering) return startGeneration(stillAnswering, undefined);
    const end = this.#begin(asked);
    const generation = this.#generate(asked, { ...this.#defaults, ...options });
    generation.result.then(
      (result) => {
        this.#tokens = tokensOf(result);
        const { text, stopReason } = result;
        const unanswered = stopReason === "aborted" && text === "";
        end(unanswered ? undefined : [...asked, { role: "assistant", content: text }]);
      },
      () => end(undefined), // the caller sees the error on the generation; the failed message is dropped
    );
    return generation;
  }

  #generate(asked: readonly ChatMessage[], options: GenerateOptions): Generation {
    const run = (messages: readonly ChatMessage[], how: GenerateOptions): Generation =>
      this.#model.run(
        { kind: "messages", messages: [...messages], variables: this.#variables },
        how,
      );
    if (!asked.some(isOfTools)) return run(asked, options);
    // A template that knows no tools is shown earlier calls in another form.
    return startGeneration(async (emit, signal) => {
      const format = await this.#model.answerFormat();
      const shown = format && shownConversation(format, asked, [], false);
      const generation = run(shown?.messages ?? asked, { ...options, signal });
      for await (const event of generation.tokens()) emit(event);
      return await generation.result;
    }, options.signal);
  }

  #answerWithTools(
    call: string,
    asked: ChatMessage[],
    options: ToolOptions<unknown>,
  ): ToolGeneration {
    const { tools, maxSteps, toolTimeoutMs, maxToolText, onCall, variables, signal, ...more } =
      options;
    const { toolChoice, ...own } = more;
    const ready = readyTools(tools, call);
    const forced = forcedCall(toolChoice, ready, call);
    const all: GenerateOptions = { ...this.#defaults, ...own };
    if (grammarSource(all) !== undefined) {
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
    if (this.#answering) return toolGeneration(stillAnswering, undefined);
    const end = this.#begin(asked);
    const model = this.#answerer(variables);
    return toolGeneration(async (emit, either) => {
      try {
        const ended = await answerWithTools(model, asked, {
          tools: ready,
          forced,
          maxSteps: maxSteps ?? 8,
          timeoutMs: Math.min(toolTimeoutMs ?? 60_000, longestTimeoutMs),
          maxText: maxToolText ?? 16_384,
          onCall,
          generate: all,
          signal: either,
          emit,
        });
        this.#tokens = tokensOf(ended.answer.steps.at(-1)!);
        end(ended.messages.length === asked.length ? undefined : ended.messages);
        return ended.answer;
      } catch (error) {
        end(undefined);
        throw error;
      }
    }, signal);
  }

  #answerWithSchema(
    asked: ChatMessage[],
    options: SchemaOptions<object>,
  ): SchemaGeneration<unknown> {
    if (this.#disposed) throw new DisposedError("the chat");
    const { schema, variables, signal, ...own } = options;
    const ready = readySchema(schema, "send(): schema");
    if (this.#answering) return startGeneration<SchemaResult<unknown>>(stillAnswering, undefined);
    const end = this.#begin(asked);
    const model = this.#answerer(variables);
    return startGeneration(async (emit, either) => {
      try {
        const generate = { ...this.#defaults, ...own };
        const request = { schema: ready, generate, signal: either, emit };
        const result = await answerWithSchema(model, asked, request);
        this.#tokens = tokensOf(result);
        const { text: content, reasoning } = result;
        const thought = reasoning === "" ? {} : { reasoning_content: reasoning };
        end([...asked, { role: "assistant", content, ...thought }]);
        return result;
      } catch (error) {
        end(undefined);
        throw error;
      }
    }, signal);
  }

  /** The model as answers of several parts need it. */
  #answerer(variables: Readonly<Record<string, unknown>> | undefined): AnsweringModel {
    return {
      name: this.#model.info.name,
      answerFormat: () => this.#model.answerFormat(),
      render: (messages, tools, signal) =>
        this.#model.applyTemplate(messages, {
          tools,
          signal,
          variables: { ...this.#variables, ...variables },
        }),
      grammarProblem: async (grammar) => {
        try {
          await this.#model.checkGrammar({ grammar });
          return undefined;
        } catch (error) {
          if (error instanceof UsageError) return error.message;
          throw error;
        }
      },
      generate: (prompt, how) =>
        this.#model.run({ kind: "text", prompt, addBos: true, isRendered: true }, how),
    };
  }

  /** An answer begins; the result ends it, with the messages then, or undefined: nothing was said. */
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

type AnyAnswer = Generation | ToolGeneration | SchemaGeneration<unknown>;

/** The longest that a timer takes. */
const longestTimeoutMs = 2 ** 31 - 1;

const tokensOf = ({ promptTokenIds, tokenIds }: GenerationResult): number[] => [
  ...promptTokenIds,
  ...tokenIds,
];

function toolGeneration(
  start: Parameters<typeof startStream<AnswerEvent, ToolAnswer>>[0],
  signal: AbortSignal | undefined,
): ToolGeneration {
  const { events, result } = startStream(start, signal);
  async function* text(): AsyncGenerator<string> {
    for await (const event of events()) if (event.kind === "content") yield event.text;
  }
  return { events, result, [Symbol.asyncIterator]: text };
}

/** Refused before the conversation changes: a second question would lose the first one's answer. */
function stillAnswering(): Promise<never> {
  const error = new UsageError(
    "this chat is still answering. Wait for the answer, or abort it before sending again",
  );
  return Promise.reject(error);
}
