// An answer in the form of OpenAI's responses: a list of items (reasoning, message, function_call), and the events of a stream.

import type { GenerationResult, StopReason } from "../../../../src/index.ts";
import type { AnswerBlock, BlockEvent, ChatAnswer } from "../../chat-answer.ts";
import { newId } from "../../openai-fields.ts";
import type { ServerEvent } from "../../sse.ts";
import { cachedDetails, timingFields } from "../../timings.ts";

/** The request fields that the response repeats. */
export interface ResponseFacts {
  readonly model: string;
  readonly created: number;
  readonly instructions?: string | undefined;
  readonly max_output_tokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly top_p?: number | undefined;
  readonly effort?: string | null | undefined;
  readonly tools: readonly object[];
  readonly tool_choice: unknown;
  readonly parallel_tool_calls: boolean;
  readonly text?: { readonly format?: object | null | undefined } | undefined;
}

export type ResponseJson = Readonly<Record<string, unknown>> & { readonly status: string };

const prefixes: Readonly<Record<AnswerBlock["kind"], string>> = {
  reasoning: "rs_",
  content: "msg_",
  call: "fc_",
};

/** The response object, which is part of several events. */
export class ResponseObject {
  readonly #id = newId("resp_");
  readonly #facts: ResponseFacts;
  readonly #itemIds: string[] = [];
  #sequence = 0;

  constructor(facts: ResponseFacts) {
    this.#facts = facts;
  }

  /** The number of the next event. */
  next(): number {
    return this.#sequence++;
  }

  event(type: string, more: object): ServerEvent {
    return { name: type, data: { type, sequence_number: this.next(), ...more } };
  }

  begun(): object {
    return this.#object("in_progress", [], null, null);
  }

  ended(result: GenerationResult, answer: ChatAnswer): ResponseJson {
    const { stopReason, timings } = result;
    const status = statusOf(stopReason);
    const blocks = blocksOf(answer);
    const usage = {
      input_tokens: timings.promptTokens,
      input_tokens_details: cachedDetails(timings),
      output_tokens: timings.generatedTokens,
      output_tokens_details: { reasoning_tokens: answer.reasoningTokens },
      total_tokens: timings.promptTokens + timings.generatedTokens,
    };
    const details = status === "incomplete" ? { reason: "max_output_tokens" } : null;
    const output = blocks.map((block, at) =>
      this.item(block, at === blocks.length - 1 ? status : "completed"),
    );
    return { ...this.#object(status, output, usage, details), ...timingFields(timings) };
  }

  itemId({ index, kind }: AnswerBlock): string {
    this.#itemIds[index] ??= newId(prefixes[kind]);
    return this.#itemIds[index];
  }

  item(block: AnswerBlock, status: string): object {
    const { kind, text } = block;
    const id = this.itemId(block);
    if (kind === "call") {
      const { id: call_id, name } = block;
      return { type: "function_call", id, call_id, name, arguments: text, status };
    }
    const isBegun = status === "in_progress";
    if (kind === "content") {
      const content = isBegun ? [] : [textPart(text)];
      return { type: "message", id, status, role: "assistant", content };
    }
    const content = isBegun ? [] : [reasoningPart(text)];
    return { type: "reasoning", id, status, summary: [], content };
  }

  /** The events of one of the answer's blocks. */
  *events({ type, block, text }: BlockEvent, more: object): Generator<ServerEvent> {
    const at = { item_id: this.itemId(block), output_index: block.index };
    const names = eventNames[block.kind];
    const part = block.kind === "call" ? {} : { content_index: 0 };
    const logprobs = block.kind === "content" ? { logprobs: [] } : {};
    if (type === "open") {
      const item = this.item({ ...block, text: "" }, "in_progress");
      yield this.event("response.output_item.added", { output_index: block.index, item });
      const added = names.part?.("");
      if (added) yield this.event("response.content_part.added", { ...at, ...part, part: added });
    } else if (type === "delta") {
      yield this.event(`${names.text}.delta`, {
        ...at,
        ...part,
        delta: text,
        ...logprobs,
        ...more,
      });
    } else {
      const own = block.kind === "call" ? { arguments: block.text } : { text: block.text };
      yield this.event(`${names.text}.done`, { ...at, ...part, ...own, ...logprobs });
      const done = names.part?.(block.text);
      if (done) yield this.event("response.content_part.done", { ...at, ...part, part: done });
    }
  }

  /** The end of an item; the last one of an answer that was cut is incomplete. */
  itemDone(block: AnswerBlock, status: string): ServerEvent {
    const item = this.item(block, status);
    return this.event("response.output_item.done", { output_index: block.index, item });
  }

  #object(
    status: string,
    output: object[],
    usage: object | null,
    incomplete: object | null,
  ): ResponseJson {
    const facts = this.#facts;
    return {
      id: this.#id,
      object: "response",
      created_at: facts.created,
      status,
      error: null,
      incomplete_details: incomplete,
      instructions: facts.instructions ?? null,
      max_output_tokens: facts.max_output_tokens ?? null,
      model: facts.model,
      output,
      parallel_tool_calls: facts.parallel_tool_calls,
      previous_response_id: null,
      reasoning: { effort: facts.effort ?? null, summary: null },
      store: false,
      temperature: facts.temperature ?? null,
      text: { format: facts.text?.format ?? { type: "text" } },
      tool_choice: facts.tool_choice,
      tools: facts.tools,
      top_p: facts.top_p ?? null,
      truncation: "disabled",
      usage,
      metadata: {},
    };
  }
}

/** The status of a response that has ended. */
export function statusOf(reason: StopReason): "completed" | "incomplete" {
  return reason === "length" || reason === "context" ? "incomplete" : "completed";
}

/** An answer without anything in it is an empty message. */
export function blocksOf(answer: ChatAnswer): readonly AnswerBlock[] {
  const empty: AnswerBlock = { index: 0, kind: "content", text: "", id: "", name: "" };
  return answer.blocks.length === 0 ? [empty] : answer.blocks;
}

const textPart = (text: string): object => ({
  type: "output_text",
  text,
  annotations: [],
  logprobs: [],
});

const reasoningPart = (text: string): object => ({ type: "reasoning_text", text });

const eventNames: Readonly<
  Record<AnswerBlock["kind"], { text: string; part?: (text: string) => object }>
> = {
  content: { text: "response.output_text", part: textPart },
  reasoning: { text: "response.reasoning_text", part: reasoningPart },
  call: { text: "response.function_call_arguments" },
};
