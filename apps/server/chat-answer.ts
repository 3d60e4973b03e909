// An answer of a chat: its reasoning, text and tool calls, streamed and as a whole. Every protocol writes it in its own shape.

import { AnswerReader, type AnswerReaderOptions, type TokenEvent } from "../../src/index.ts";
import { newId } from "./openai-fields.ts";

/** A piece of an answer. Calls have an id, the model's own or a new one. */
export type ChatPart =
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "content"; readonly text: string }
  | { readonly kind: "call"; readonly index: number; readonly id: string; readonly name: string }
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

/** A part of an answer with a beginning and an end. */
export interface AnswerBlock {
  /** Its index in the answer. */
  readonly index: number;
  readonly kind: "reasoning" | "content" | "call";
  /** The text, or a call's arguments as JSON text. */
  text: string;
  /** The id of a call; "" otherwise. */
  readonly id: string;
  readonly name: string;
}

/** An event of a block while the answer is streamed. */
export interface BlockEvent {
  readonly type: "open" | "delta" | "close";
  readonly block: AnswerBlock;
  /** The text of a delta. */
  readonly text: string;
}

/** The fields of a generation's event that are read: text that was held back until the end comes without a token (-1). */
type Written = Pick<TokenEvent, "id" | "text">;

export class ChatAnswer {
  readonly blocks: AnswerBlock[] = [];
  #reasoningTokens = 0;
  /** Tokens that may turn out to be the mark that opens reasoning. */
  #undecided = 0;
  readonly #reader: AnswerReader | undefined;
  readonly #idPrefix: string;

  /** @param plan undefined: the text is the answer itself. */
  constructor(plan: AnswerReaderOptions | undefined, idPrefix: string = "call_") {
    this.#reader = plan && new AnswerReader(plan);
    this.#idPrefix = idPrefix;
  }

  /** A whole answer. */
  static of(
    plan: AnswerReaderOptions | undefined,
    tokens: readonly Written[],
    idPrefix?: string,
  ): ChatAnswer {
    const answer = new ChatAnswer(plan, idPrefix);
    for (const token of tokens) answer.push(token);
    answer.end();
    return answer;
  }

  /** Tokens of reasoning, with its marks. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  /** One more token: returns the parts that it adds. */
  push({ id, text }: Written): ChatPart[] {
    const reader = this.#reader;
    if (reader === undefined) return text === "" ? [] : this.#read([{ kind: "content", text }]);
    const wasReasoning = reader.isReasoning;
    const parts = this.#read(reader.push(text));
    if (id >= 0) this.#count(wasReasoning || reader.isReasoning, parts.length > 0);
    return parts;
  }

  #count(isReasoning: boolean, isText: boolean): void {
    if (isReasoning) {
      this.#reasoningTokens += this.#undecided + 1;
      this.#undecided = 0;
    } else this.#undecided = isText ? 0 : this.#undecided + 1;
  }

  /** The text that was held back until now. */
  end(): ChatPart[] {
    return this.#reader === undefined ? [] : this.#read(this.#reader.end());
  }

  get hasCalls(): boolean {
    return this.blocks.some(({ kind }) => kind === "call");
  }

  get calls(): AnswerBlock[] {
    return this.blocks.filter(({ kind }) => kind === "call");
  }

  /** All text of a kind. */
  text(kind: "reasoning" | "content"): string {
    return this.blocks.map((block) => (block.kind === kind ? block.text : "")).join("");
  }

  #read(parts: ReturnType<AnswerReader["push"]>): ChatPart[] {
    const read: ChatPart[] = [];
    for (const part of parts) {
      // An id that comes late is left out: the one that was given first stays.
      if (part.kind === "id") continue;
      if (part.kind === "call") {
        const id = part.id === "" ? newId(this.#idPrefix) : part.id;
        this.#open("call", id, part.name);
        read.push({ ...part, id });
        continue;
      }
      const last = this.blocks.at(-1);
      if (part.kind === "arguments") last!.text += part.text;
      else if (last?.kind === part.kind) last.text += part.text;
      else this.#open(part.kind, "", "").text = part.text;
      read.push(part);
    }
    return read;
  }

  #open(kind: AnswerBlock["kind"], id: string, name: string): AnswerBlock {
    const block = { index: this.blocks.length, kind, text: "", id, name };
    this.blocks.push(block);
    return block;
  }
}

/** The arguments of a call as an object; undefined if the answer ended within them. */
export function argumentsOf({ text }: AnswerBlock): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Follows the blocks of an answer, for protocols that mark where each begins and ends. */
export class BlockEvents {
  readonly #answer: ChatAnswer;
  #open: AnswerBlock | undefined;
  #opened = 0;

  constructor(answer: ChatAnswer) {
    this.#answer = answer;
  }

  get opened(): number {
    return this.#opened;
  }

  *push(token: Written): Generator<BlockEvent> {
    yield* this.#follow(this.#answer.push(token));
  }

  *end(): Generator<BlockEvent> {
    yield* this.#follow(this.#answer.end());
    yield* this.#close();
  }

  *#follow(parts: readonly ChatPart[]): Generator<BlockEvent> {
    for (const part of parts) {
      const kind = part.kind === "arguments" ? "call" : part.kind;
      if (part.kind === "call" || this.#open?.kind !== kind) {
        yield* this.#close();
        this.#open = this.#answer.blocks[this.#opened++]!;
        yield { type: "open", block: this.#open, text: "" };
      }
      if (part.kind !== "call") yield { type: "delta", block: this.#open!, text: part.text };
    }
  }

  *#close(): Generator<BlockEvent> {
    if (this.#open !== undefined) yield { type: "close", block: this.#open, text: "" };
    this.#open = undefined;
  }
}
