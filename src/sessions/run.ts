// A run: one or more answers that are being written, whoever watches. It holds their text; runs.ts starts and saves
// it.
//
// Anybody can follow it with events(), from the start or from an earlier position. An event's id is how much of each
// answer's text was sent ("120" or, with two answers, "120.57"). So resuming after a lost connection needs no log of
// events: the rest of the text is the rest of the string.

import type { StopReason, TokenEvent } from "../api/api.ts";
import type { MessageState, MessageTimings, MessageTokens } from "./session.ts";
import type { MessageEnd } from "./tree.ts";

/** Live numbers of an answer while it is written. */
export interface LiveGauge {
  message: string;
  tokens: number;
  tokensPerSecond: number | null;
  msToFirstToken: number | null;
  /** Percentage of the limit from this model's last answer; null if that is not known. */
  percentOfLimit: number | null;
  boundBy: string | null;
}

export type RunEvent =
  | { name: "snapshot"; data: RunSnapshot }
  | { name: "delta"; data: { message: string; text: string } }
  | { name: "gauge"; data: LiveGauge }
  | { name: "warning"; data: { text: string } }
  | { name: "end"; data: AnswerEnd }
  | { name: "done"; data: { run: string } };

export interface RunSnapshot {
  run: string;
  session: string;
  messages: { id: string; content: string; state: MessageState }[];
}

export interface AnswerEnd {
  message: string;
  state: MessageState;
  stopReason: StopReason | null;
  error: string | null;
  tokens: MessageTokens | null;
  timings: MessageTimings | null;
}

/** The machine's limit, from a model's last answer. */
export interface KnownLimit {
  tokensPerSecond: number;
  boundBy: string;
}

/** Minimum time between two updates of an answer. */
const gaugeEveryMs = 250;

/** One answer. */
export class Answer {
  readonly messageId: string;
  /** For a continued answer, it starts with the existing text. */
  text: string;
  tokens = 0;
  readonly startedAt: number;
  firstTokenAt: number | undefined;
  lastTokenAt: number | undefined;
  end: MessageEnd | undefined;
  /** How much of the text is on disk. */
  savedLength: number;
  endSaved = false;
  /** It ended without any text and is removed. */
  isEmpty = false;

  constructor(messageId: string, text: string, startedAt: number) {
    this.messageId = messageId;
    this.text = text;
    this.savedLength = text.length;
    this.startedAt = startedAt;
  }

  push({ id, text }: TokenEvent, now: number): void {
    this.text += text;
    if (id < 0) return; // held-back text of earlier tokens
    this.tokens++;
    this.firstTokenAt ??= now;
    this.lastTokenAt = now;
  }

  get msToFirstToken(): number | null {
    return this.firstTokenAt === undefined ? null : this.firstTokenAt - this.startedAt;
  }

  /** Measured from the first token to the last: the time before the first belongs to the prompt. */
  get tokensPerSecond(): number | null {
    const ms = (this.lastTokenAt ?? 0) - (this.firstTokenAt ?? 0);
    return ms > 0 ? ((this.tokens - 1) * 1000) / ms : null;
  }
}

export class Run {
  readonly id: string;
  readonly sessionId: string;
  readonly modelName: string;
  readonly answers: readonly Answer[];
  /** The machine's limit, until an answer has ended. */
  limit: KnownLimit | undefined;
  endedAt: number | undefined;
  readonly #abort = new AbortController();
  readonly #now: () => number;
  #warning: string | null = null;
  #watchers: (() => void)[] = [];
  readonly #done: PromiseWithResolvers<void> = Promise.withResolvers<void>();

  constructor(
    facts: {
      id: string;
      sessionId: string;
      modelName: string;
      answers: readonly { id: string; content: string }[];
    },
    now: () => number,
  ) {
    this.id = facts.id;
    this.sessionId = facts.sessionId;
    this.modelName = facts.modelName;
    const started = now();
    this.answers = facts.answers.map(({ id, content }) => new Answer(id, content, started));
    this.#now = now;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Resolves when all answers have ended, in any way. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** Why saving fails, while it does; generation continues. */
  get warning(): string | null {
    return this.#warning;
  }

  set warning(text: string | null) {
    if (text === this.#warning) return;
    this.#warning = text;
    this.changed();
  }

  /** Ends within one token; the text so far is kept. */
  cancel(): void {
    this.#abort.abort();
  }

  /** Call when all answers have ended. */
  finish(): void {
    this.endedAt = this.#now();
    this.#done.resolve();
    this.changed();
  }

  /** Wakes the followers. */
  changed(): void {
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const wake of watchers) wake();
  }

  /**
   * Events from the position of `lastEventId`, or from a snapshot of everything so far. Ends after "done", or when
   * the signal aborts. A slow reader gets fewer and longer deltas; nothing is queued for it.
   */
  async *events(
    lastEventId: string | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<RunEvent & { id: string }> {
    const known = this.#positions(lastEventId);
    const sent = known ?? this.answers.map(({ text }) => text.length);
    if (!known) yield { id: sent.join("."), name: "snapshot", data: this.#snapshot(sent) };
    const view: View = {
      sent,
      gaugeAt: this.answers.map(() => 0),
      ended: this.answers.map(() => false),
      warning: null,
    };
    const wake = (): void => this.changed();
    signal.addEventListener("abort", wake);
    try {
      while (!signal.aborted) {
        const news = this.#news(view);
        for (const event of news) yield event;
        if (news.some(({ name }) => name === "done")) return;
        // Nothing was awaited since #news() looked, so no change can be missed in between.
        if (news.length === 0) await new Promise<void>((resolve) => this.#watchers.push(resolve));
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  /**
   * Events that the view has not seen yet; marks them as seen. An event's id is the position after it, not after all
   * of them.
   */
  #news(view: View): (RunEvent & { id: string })[] {
    const events: (RunEvent & { id: string })[] = [];
    const add = (event: RunEvent): void => void events.push({ id: view.sent.join("."), ...event });
    if (view.warning !== this.#warning) {
      view.warning = this.#warning;
      add({ name: "warning", data: { text: this.#warning ?? "" } });
    }
    for (const [at, answer] of this.answers.entries()) {
      const message = answer.messageId;
      const from = view.sent[at]!;
      if (answer.text.length > from) {
        view.sent[at] = answer.text.length;
        add({ name: "delta", data: { message, text: answer.text.slice(from) } });
      }
      const now = this.#now();
      const isNew = answer.lastTokenAt !== undefined && answer.lastTokenAt > view.gaugeAt[at]!;
      if (isNew && !answer.end && now - view.gaugeAt[at]! >= gaugeEveryMs) {
        view.gaugeAt[at] = now;
        add({ name: "gauge", data: this.#gauge(answer) });
      }
      if (answer.end && !view.ended[at]) {
        view.ended[at] = true;
        const { content: _, ...end } = answer.end;
        add({ name: "end", data: { message, ...end } });
      }
    }
    if (this.endedAt !== undefined) add({ name: "done", data: { run: this.id } });
    return events;
  }

  #gauge(answer: Answer): LiveGauge {
    const { tokensPerSecond } = answer;
    const { limit } = this;
    const known = limit !== undefined && tokensPerSecond !== null;
    return {
      message: answer.messageId,
      tokens: answer.tokens,
      tokensPerSecond,
      msToFirstToken: answer.msToFirstToken,
      percentOfLimit: known ? (100 * tokensPerSecond) / limit.tokensPerSecond : null,
      boundBy: known ? limit.boundBy : null,
    };
  }

  #snapshot(lengths: readonly number[]): RunSnapshot {
    return {
      run: this.id,
      session: this.sessionId,
      messages: this.answers.map(({ messageId, text, end }, at) => ({
        id: messageId,
        content: text.slice(0, lengths[at]),
        state: end?.state ?? "streaming",
      })),
    };
  }

  /** undefined: not an id of this run, so start over. */
  #positions(lastEventId: string | undefined): number[] | undefined {
    if (!lastEventId || !/^\d+(\.\d+)*$/.test(lastEventId)) return undefined;
    const positions = lastEventId.split(".").map(Number);
    const fits =
      positions.length === this.answers.length &&
      positions.every((position, at) => position <= this.answers[at]!.text.length);
    return fits ? positions : undefined;
  }
}

/** What one follower has seen. */
interface View {
  sent: number[];
  gaugeAt: number[];
  ended: boolean[];
  warning: string | null;
}
