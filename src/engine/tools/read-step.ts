// One generation of a chat's answer, told apart into reasoning, text and calls as it comes. Every answer is made of such steps: one
// (answer-alone.ts), or as many as the calls of tools need (answer-with-tools.ts).

import type { AnswerFormat } from "../../api/answer-format.ts";
import type {
  AnswerEvent,
  ChatAnswer,
  ChatMessage,
  GenerateOptions,
  Generation,
  GenerationResult,
  ModelInfo,
  TokenEvent,
  ToolCall,
} from "../../api/api.ts";
import type { ContextCapacity } from "../../base/context-advice.ts";
import type { RenderedPrompt } from "../../base/rendered-prompt.ts";
import type { AnswerReader } from "../../chat/answer/answer-reader.ts";
import type { AnswerPart } from "../../chat/answer/sink.ts";
import type { GrammarProblem } from "./call-grammar.ts";

/** The part of a model that answers need. */
export interface AnsweringModel {
  readonly info: Pick<ModelInfo, "name"> & ContextCapacity;
  answerFormat(): Promise<AnswerFormat | undefined>;
  /** The prompt of a conversation, with these functions offered; undefined: it was aborted. */
  render(
    messages: readonly ChatMessage[],
    offered: readonly object[],
    signal: AbortSignal,
  ): Promise<RenderedPrompt | undefined>;
  generate(prompt: RenderedPrompt | undefined, options: GenerateOptions): Generation;
  readonly grammarProblem: GrammarProblem;
}

/** The events of an answer: for events(), and for tokens(). */
export type EmittedEvent = AnswerEvent | { readonly kind: "token"; readonly token: TokenEvent };

export interface EndedAnswer {
  readonly answer: ChatAnswer<unknown>;
  /** The conversation with the answer; as it was asked, if nothing was said. */
  readonly messages: ChatMessage[];
}

export interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly WrittenCall[];
  readonly result: GenerationResult;
}

interface Step {
  readonly prompt: RenderedPrompt | undefined;
  /** undefined: all that the model writes is text. */
  readonly reader: AnswerReader | undefined;
  /** The answer's first is 1. */
  readonly step: number;
  readonly generate: GenerateOptions;
  readonly signal: AbortSignal;
  readonly emit: (event: EmittedEvent) => void;
}

export async function readStep(
  model: AnsweringModel,
  { prompt, reader, step, generate, signal, emit }: Step,
): Promise<Said> {
  let content = "";
  let reasoning = "";
  const calls: WrittenCall[] = [];
  /** The text that these parts add. */
  const read = (parts: readonly AnswerPart[]): string => {
    const before = content.length;
    for (const part of parts) {
      if (part.kind === "content") content += part.text;
      else if (part.kind === "reasoning") reasoning += part.text;
      if (part.kind === "content" || part.kind === "reasoning") {
        if (part.text !== "") emit(part);
      } else if (part.kind === "call") {
        const call = new WrittenCall(part.name, part.id || callId(step, part.index), step);
        calls.push(call);
        emit({ kind: "call", id: call.id, name: call.name });
      } else if (part.kind === "arguments") {
        const call = calls[part.index]!;
        call.text += part.text;
        emit({ kind: "arguments", id: call.id, text: part.text });
      }
      // An id that comes late is left out: the one that was given first stays.
    }
    return content.slice(before);
  };
  const generation = model.generate(prompt, { ...generate, signal });
  for await (const event of generation.tokens()) {
    const parts = reader?.push(event.text) ?? [{ kind: "content" as const, text: event.text }];
    emit({ kind: "token", token: { ...event, text: read(parts) } });
  }
  const rest = reader ? read(reader.end()) : "";
  if (rest !== "") emit({ kind: "token", token: { id: -1, text: rest } });
  const result = await generation.result;
  // Aborted before it had a prompt: the substitute prompt is not reported.
  const own = prompt === undefined ? { ...result, promptTokenIds: [] } : result;
  return { content, reasoning, calls, result: own };
}

/** The message of a step; undefined: it was aborted before it said anything. Templates expect arguments as an object. */
export function stepMessage({ content, reasoning, calls, result }: Said): ChatMessage | undefined {
  const isEmpty = content === "" && reasoning === "" && calls.length === 0;
  if (isEmpty && result.stopReason === "aborted") return undefined;
  const tool_calls = calls.map((call) => ({
    id: call.id,
    type: "function" as const,
    function: { name: call.name, arguments: call.parsed()?.value ?? {} },
  }));
  return {
    role: "assistant",
    content,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(tool_calls.length > 0 && { tool_calls }),
  };
}

/** Nine letters and digits, as Mistral's templates want them. */
function callId(step: number, index: number): string {
  return `call${String(step * 256 + index).padStart(5, "0")}`;
}

/** A call as the model wrote it. */
export class WrittenCall {
  readonly name: string;
  readonly id: string;
  readonly step: number;
  /** The arguments: JSON, if the model wrote them well. */
  text = "";

  constructor(name: string, id: string, step: number) {
    this.name = name;
    this.id = id;
    this.step = step;
  }

  /** undefined: it is no JSON. */
  parsed(): { value: unknown } | undefined {
    try {
      return { value: this.text.trim() === "" ? {} : (JSON.parse(this.text) as unknown) };
    } catch {
      return undefined;
    }
  }

  asCall(args: unknown = this.parsed()?.value ?? {}): ToolCall {
    return { id: this.id, name: this.name, arguments: args, step: this.step };
  }
}
