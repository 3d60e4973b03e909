// Reads a model's answer as it comes: reasoning, plain text and tool calls, told apart by the model's own format. Text that was
// given out is never taken back: text that may still become a marker is held until that is certain.

import type {
  AnswerFormat,
  AnswerTool,
  CallFormat,
  ReasoningMarks,
} from "../../api/answer-format.ts";
import type { CallContext } from "./calls/call-reader.ts";
import { callStarts, readCalls } from "./calls/calls.ts";
import { frameReaders } from "./frames.ts";
import { copyJson, NotJson } from "./json-value.ts";
import { type AnswerPart, AnswerSink, Trimmed } from "./sink.ts";
import { accept, acceptMarker, has, type Reading, Source, space, upTo } from "./source.ts";

export interface AnswerReaderOptions {
  readonly format: AnswerFormat;
  /** Tools that may be called; without any, calls are plain text. */
  readonly tools?: readonly AnswerTool[] | undefined;
  /** `inline`: reasoning stays in the text, with its marks; `both`: there, and apart from it. */
  readonly reasoning?: "apart" | "inline" | "both" | undefined;
  /** The state in which the prompt leaves the model (promptEnd). */
  readonly start?: AnswerStart | undefined;
  /** The text is one JSON value: a fence around it is left out. */
  readonly isJson?: boolean | undefined;
}

/** The end of the prompt. */
export interface AnswerStart {
  /** `open`: within reasoning; `closed`: after it. */
  readonly reasoning: "open" | "closed" | "unknown";
  /** The text that opened reasoning. */
  readonly opening: string;
  /** An answer that is continued: its text so far. */
  readonly before?: { readonly reasoning?: string; readonly content?: string };
}

const freshStart: AnswerStart = { reasoning: "unknown", opening: "" };

const noCalls: CallFormat = {
  section: { start: "", end: "" },
  call: { start: "", end: "" },
  separator: "",
  gap: "",
  form: { kind: "python" },
  endsReasoning: false,
};

export class AnswerReader {
  readonly #source = new Source();
  readonly #sink = new AnswerSink();
  readonly #reading: Reading<void>;
  readonly #options: AnswerReaderOptions;
  #isOver = false;

  constructor(options: AnswerReaderOptions) {
    this.#options = options;
    this.#reading = this.#read();
    this.#run();
  }

  /** Takes more text; returns the parts that it adds to the answer. */
  push(text: string): AnswerPart[] {
    this.#source.push(text);
    this.#run();
    return this.#sink.drain();
  }

  /** The text has ended; returns the part that was still held. */
  end(): AnswerPart[] {
    this.#source.end();
    this.#run();
    return this.#sink.drain();
  }

  /** Whether the text so far ends within reasoning. */
  get isReasoning(): boolean {
    return this.#sink.isReasoning;
  }

  #run(): void {
    if (!this.#isOver) this.#isOver = this.#reading.next().done === true;
  }

  get #tools(): readonly AnswerTool[] {
    return this.#options.tools ?? [];
  }

  /** Reasoning is given apart from the text. */
  get #isApart(): boolean {
    return this.#options.reasoning !== "inline";
  }

  /** Reasoning is part of the text. */
  get #isInline(): boolean {
    return this.#options.reasoning === "inline" || this.#options.reasoning === "both";
  }

  get #calls(): CallContext {
    const format = this.#options.format.calls ?? noCalls;
    return { source: this.#source, sink: this.#sink, format, tools: this.#tools };
  }

  *#read(): Reading<void> {
    const { format, start = freshStart } = this.#options;
    const { before } = start;
    const hasReasoning = format.reasoning !== undefined || format.frames !== undefined;
    if (before?.reasoning && hasReasoning && this.#isApart) this.#sink.reasoning(before.reasoning);
    if (before?.content) this.#sink.content(before.content);
    if (format.frames !== undefined) return yield* this.#readFrames();
    const { reasoning } = format;
    let isFresh = before?.content === undefined;
    if (reasoning !== undefined && isFresh) {
      const isOpen = start.reasoning === "open" || before?.reasoning !== undefined;
      if (isOpen) yield* this.#readReasoning(reasoning, start.opening);
      else if (start.reasoning === "unknown" || this.#isInline) {
        yield* this.#readOwnReasoning(reasoning);
      } else if (yield* this.#isMarkNext(reasoning.start)) yield* this.#readOwnReasoning(reasoning);
    }
    if (this.#options.isJson) return yield* this.#readJson();
    for (;;) {
      const isMore = yield* this.#readContent(isFresh);
      if (!isMore) return;
      isFresh = false;
    }
  }

  *#readFrames(): Reading<void> {
    const { format, start = freshStart } = this.#options;
    const isBegun = start.before?.reasoning !== undefined;
    const trimmed = new Trimmed((text) => this.#sink.reasoning(text), isBegun);
    const inside = start.before?.content !== undefined ? "content" : undefined;
    yield* frameReaders[format.frames!]({
      calls: this.#calls,
      hasTools: this.#tools.length > 0,
      reasoning: (text) => {
        if (this.#isInline) this.#sink.content(text);
        if (this.#isApart) trimmed.put(text);
      },
      mark: (text) => {
        if (this.#isInline) this.#sink.content(text);
      },
      inside: start.before?.reasoning !== undefined && inside === undefined ? "reasoning" : inside,
    });
  }

  *#isMarkNext(mark: string): Reading<boolean> {
    let spaces = 0;
    while ((yield* has(this.#source, spaces + 1)) && /\s/.test(this.#source.charAt(spaces)))
      spaces++;
    const core = mark.trim();
    while (this.#source.length < spaces + core.length && !this.#source.isEnded) {
      if (!core.startsWith(this.#source.rest.slice(spaces))) return false;
      yield;
    }
    return this.#source.rest.startsWith(core, spaces);
  }

  /** Reasoning that the model opens itself, if it does. */
  *#readOwnReasoning(reasoning: ReasoningMarks): Reading<void> {
    const source = this.#source;
    if (yield* this.#isMarkNext(reasoning.end)) {
      if (this.#isInline) return; // stays in the text
      yield* acceptMarker(source, reasoning.end);
      yield* space(source);
      return;
    }
    if (!(yield* this.#isMarkNext(reasoning.start))) return;
    yield* space(source);
    source.record();
    yield* acceptMarker(source, reasoning.start);
    // A model that repeats the mark.
    while (isSpecial(reasoning.start) && (yield* this.#isMarkNext(reasoning.start))) {
      yield* acceptMarker(source, reasoning.start);
    }
    yield* this.#readReasoning(reasoning, source.recorded());
  }

  /** Reads from after the opening mark to after the closing one. */
  *#readReasoning(reasoning: ReasoningMarks, opening: string): Reading<void> {
    const source = this.#source;
    const { content, calls } = this.#options.format;
    const end = reasoning.end.trim();
    const others: string[] = [];
    if (content !== undefined && content.start.trim() !== "") others.push(content.start.trim());
    if (calls?.endsReasoning && this.#tools.length > 0)
      others.push(...callStarts(calls, this.#tools));
    const isBegun = this.#options.start?.before?.reasoning !== undefined;
    const trimmed = new Trimmed((text) => this.#sink.reasoning(text), isBegun);
    let isOpened = false;
    const repeat = (text: string): void => {
      if (!this.#isInline) return;
      if (!isOpened) this.#sink.content(opening);
      isOpened = true;
      this.#sink.content(text);
    };
    const emit = (text: string): void => {
      if (this.#isApart) trimmed.put(text);
      repeat(text);
    };
    if (reasoning.isSpoken && this.#isApart) trimmed.put(opening);
    this.#sink.isReasoning = true;
    const stop = yield* upTo(source, [end, ...others], emit);
    this.#sink.isReasoning = false;
    if (stop !== end) return;
    if (this.#isInline) {
      repeat(source.take(end.length));
      return;
    }
    yield* accept(source, end);
    yield* space(source);
  }

  /** Plain text up to calls, other reasoning or the end. Says whether more may follow. */
  *#readContent(isFresh: boolean): Reading<boolean> {
    const source = this.#source;
    const { content, reasoning, calls, turnEnds } = this.#options.format;
    const context = this.#calls;
    const starts =
      calls === undefined || this.#tools.length === 0 ? [] : callStarts(calls, this.#tools);
    if (isFresh && calls !== undefined && starts.length === 0 && this.#tools.length > 0) {
      yield* this.#readUnmarkedCall(context);
    }
    const gap = calls?.gap ?? "";
    const gapped = gap.trim() === "" && gap !== "" ? starts.map((one) => gap + one) : [];
    const wrappers = [content?.start.trim(), content?.end.trim()].filter(
      (one) => !!one,
    ) as string[];
    const marks =
      reasoning !== undefined && !this.#isInline && isSpecial(reasoning.start)
        ? [reasoning.start.trim(), reasoning.end.trim()]
        : [];
    // Whitespace at the start is given only if text follows it.
    let held = source.isDone ? "" : yield* space(source);
    const emit = (text: string): void => {
      this.#sink.content(held + text);
      held = "";
    };
    for (;;) {
      const stop = yield* upTo(
        source,
        [...gapped, ...starts, ...wrappers, ...marks, ...turnEnds],
        emit,
      );
      if (stop === undefined) return false;
      if (turnEnds.includes(stop)) {
        yield* upTo(source, [], () => {});
        return false;
      }
      if (wrappers.includes(stop)) {
        source.take(stop.length);
        held = "";
      } else if (marks.includes(stop)) {
        if (stop === marks[1]) source.take(stop.length);
        else yield* this.#readOwnReasoning(reasoning!);
      } else {
        if (gapped.includes(stop)) source.take(gap.length);
        const text = yield* readCalls(context);
        if (text === "") return !source.isDone;
        // No call: its first character is text, the rest is looked at again.
        emit(text);
      }
    }
  }

  /** Calls without any mark (Llama 3): JSON at the start of the answer that names a tool. */
  *#readUnmarkedCall(context: CallContext): Reading<void> {
    const { source, sink, tools } = context;
    const { form } = context.format;
    if (form.kind !== "json" || form.nameKey === undefined) return;
    if (!(yield* this.#isMarkNext("{"))) return;
    // It is a call once its name is known; until then everything is held.
    const head = new RegExp(`^\\s*\\{[^{}]*?"${form.nameKey}"\\s*:\\s*"([^"]*)"`);
    for (;;) {
      const name = head.exec(source.rest)?.[1];
      if (name !== undefined) {
        if (!tools.some((tool) => tool.name === name)) return;
        break;
      }
      if (source.isEnded || source.length > 512) return;
      yield;
    }
    sink.content(yield* readCalls(context));
  }

  *#readJson(): Reading<void> {
    const source = this.#source;
    const { content } = this.#options.format;
    yield* space(source);
    if (content !== undefined) yield* acceptMarker(source, content.start);
    if (yield* accept(source, "```json")) yield* space(source);
    try {
      yield* copyJson(source, (text) => this.#sink.content(text));
      yield* upTo(source, [], () => {});
    } catch (error) {
      if (!(error instanceof NotJson)) throw error;
      yield* upTo(source, [], (text) => this.#sink.content(text));
    }
  }
}

/** Marks that no ordinary text has: they count wherever they stand. */
const isSpecial = (mark: string): boolean => /[|[\]]/.test(mark);

/** The state in which a prompt leaves the model. */
export function promptEnd(prompt: string, format: AnswerFormat): AnswerStart {
  const { reasoning } = format;
  if (reasoning === undefined) return freshStart;
  const text = prompt.trimEnd();
  const start = reasoning.start.trim();
  if (start !== "" && text.endsWith(start)) {
    return { reasoning: "open", opening: prompt.slice(text.length - start.length) };
  }
  return text.endsWith(reasoning.end.trim()) ? { reasoning: "closed", opening: "" } : freshStart;
}
