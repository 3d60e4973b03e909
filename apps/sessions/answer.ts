// One answer while it is written: its reasoning, text and calls, as a list of parts that only grows. A position is a
// number of units: the letters (UTF-16) of all parts, and one for the start of each call. So a client that lost the
// connection continues from a number.

import type { AnswerPart, TokenEvent } from "../../src/index.ts";
import { newId } from "./ids.ts";
import type { MessageTimings, MessageTokens, ToolCall } from "./session.ts";
import type { AnswerText, MessageEnd } from "./tree.ts";

/** Tells reasoning and calls from text, by the model's own format. */
export interface PartReader {
  push(text: string): AnswerPart[];
  end(): AnswerPart[];
}

export type Part =
  | { kind: "content" | "reasoning"; text: string }
  | { kind: "call"; index: number; id: string; name: string }
  | { kind: "arguments"; index: number; text: string };

/** An answer that is to be continued: its text so far, and its token counts. */
export interface Before extends Pick<AnswerText, "content" | "raw"> {
  readonly tokens?: MessageTokens | null;
  readonly timings?: MessageTimings | null;
}

const size = (part: Part): number => (part.kind === "call" ? 1 : part.text.length);

export class Answer {
  readonly messageId: string;
  readonly startedAt: number;
  tokens = 0;
  reasoningTokens = 0;
  firstTokenAt: number | undefined;
  lastTokenAt: number | undefined;
  end: MessageEnd | undefined;
  /** How much of it is on disk, in units. */
  savedLength: number;
  endSaved = false;
  /** It ended without any text and is removed. */
  isEmpty = false;
  readonly before: Before;
  readonly #reader: PartReader | undefined;
  readonly #parts: Part[] = [];
  #raw = "";
  #length = 0;
  #reasoningFrom: number | undefined;
  #reasoningTo = 0;

  constructor(
    messageId: string,
    before: Before,
    startedAt: number,
    reader: PartReader | undefined = undefined,
  ) {
    this.messageId = messageId;
    this.before = before;
    this.startedAt = startedAt;
    this.#reader = reader;
    this.#read(before.raw ?? before.content);
    this.savedLength = this.#length;
  }

  push({ id, text }: TokenEvent, now: number): void {
    this.#read(text);
    if (id < 0) return; // held-back text of earlier tokens
    this.tokens++;
    this.firstTokenAt ??= now;
    this.lastTokenAt = now;
    if (this.#parts.at(-1)?.kind !== "reasoning") return;
    this.reasoningTokens++;
    this.#reasoningFrom ??= now;
    this.#reasoningTo = now;
  }

  /** The model has ended: adds the text that the reader held back. */
  close(): void {
    this.#add(this.#reader?.end() ?? []);
  }

  /** Its position, in units. */
  get length(): number {
    return this.#length;
  }

  /** The plain text. */
  get text(): string {
    return this.#textOf("content");
  }

  get saved(): AnswerText {
    const content = this.text;
    return {
      content,
      reasoning: this.#textOf("reasoning") || null,
      calls: this.#calls(),
      raw: this.#raw === content ? null : this.#raw,
    };
  }

  /** Parts from a position on; the first may be the rest of one. */
  since(from: number): Part[] {
    const rest: Part[] = [];
    let at = 0;
    for (const part of this.#parts) {
      const skipped = Math.max(0, from - at);
      at += size(part);
      if (at <= from) continue;
      rest.push(part.kind === "call" ? part : { ...part, text: part.text.slice(skipped) });
    }
    return rest;
  }

  get reasoningMs(): number | null {
    return this.#reasoningFrom === undefined ? null : this.#reasoningTo - this.#reasoningFrom;
  }

  get msToFirstToken(): number | null {
    return this.firstTokenAt === undefined ? null : this.firstTokenAt - this.startedAt;
  }

  /** Measured from the first token to the last: the time before the first belongs to the prompt. */
  get tokensPerSecond(): number | null {
    const ms = (this.lastTokenAt ?? 0) - (this.firstTokenAt ?? 0);
    return ms > 0 ? ((this.tokens - 1) * 1000) / ms : null;
  }

  #read(text: string): void {
    if (text === "") return;
    this.#raw += text;
    this.#add(this.#reader ? this.#reader.push(text) : [{ kind: "content", text }]);
  }

  #add(parts: readonly AnswerPart[]): void {
    for (const part of parts) {
      if (part.kind === "id") continue; // the call has been given one
      const last = this.#parts.at(-1);
      if (part.kind === "call") {
        this.#parts.push({ ...part, id: part.id === "" ? newId("call") : part.id });
      } else if (last?.kind === part.kind) {
        last.text += part.text;
      } else this.#parts.push({ ...part });
      this.#length += size(part);
    }
  }

  #textOf(kind: "content" | "reasoning"): string {
    let text = "";
    for (const part of this.#parts) if (part.kind === kind) text += part.text;
    return text;
  }

  #calls(): ToolCall[] {
    const calls: ToolCall[] = [];
    for (const part of this.#parts) {
      if (part.kind === "call") {
        const { id, name } = part;
        calls.push({ id, name, arguments: "", state: "waiting", result: null, by: null });
      } else if (part.kind === "arguments") calls[part.index]!.arguments += part.text;
    }
    return calls;
  }
}
