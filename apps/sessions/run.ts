// A run: one or more answers that are being written, with or without followers. It holds their text; runs.ts starts and
// saves it.
//
// Any client can follow it with events(), from the start or from an earlier position. An event's id is how much of each
// answer was sent ("120" or, with two answers, "120.57"; answer.ts has the units). So resuming after a lost connection
// needs no log of events.

import type { StopReason } from "../../src/index.ts";
import { Answer, type Before, type Part, type PartReader } from "./answer.ts";
import type { MessageState, MessageTimings, MessageTokens, ToolCall } from "./session.ts";

/** Live numbers of an answer while it is written. */
export interface LiveGauge {
  message: string;
  tokens: number;
  tokensPerSecond: number | null;
  msToFirstToken: number | null;
  /** Percentage of the limit from this model's last answer; null if that is not known. */
  percentOfLimit: number | null;
  boundBy: string | null;
  /** The reasoning's part of it; null: none. */
  reasoning: { tokens: number; ms: number } | null;
}

export type RunEvent =
  | { name: "snapshot"; data: RunSnapshot }
  | { name: "delta"; data: { message: string; text: string } }
  | { name: "reasoning"; data: { message: string; text: string } }
  | { name: "call"; data: { message: string; index: number; id: string; name: string } }
  | { name: "arguments"; data: { message: string; index: number; text: string } }
  | { name: "gauge"; data: LiveGauge }
  | { name: "warning"; data: { text: string } }
  | { name: "end"; data: AnswerEnd }
  | { name: "done"; data: { run: string } };

export interface RunSnapshot {
  run: string;
  session: string;
  messages: {
    id: string;
    content: string;
    reasoning: string | null;
    calls: ToolCall[];
    state: MessageState;
  }[];
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
  #isWithdrawn = false;
  #watchers: (() => void)[] = [];
  readonly #done: PromiseWithResolvers<void> = Promise.withResolvers<void>();

  constructor(
    facts: {
      id: string;
      sessionId: string;
      modelName: string;
      answers: readonly ({ id: string } & Before)[];
      /** One for each answer; undefined: the text is the answer. */
      reader?: (() => PartReader) | undefined;
    },
    now: () => number,
  ) {
    this.id = facts.id;
    this.sessionId = facts.sessionId;
    this.modelName = facts.modelName;
    const started = now();
    this.answers = facts.answers.map(
      ({ id, ...before }) => new Answer(id, before, started, facts.reader?.()),
    );
    this.#now = now;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Resolves when all answers have ended, in any way. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** The reason while saving fails; generation continues. */
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

  /** Its session was deleted: its followers get no more events. */
  withdraw(): void {
    this.#isWithdrawn = true;
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
    const sent = known ?? this.answers.map(({ length }) => length);
    if (!known) yield { id: sent.join("."), name: "snapshot", data: this.#snapshot() };
    const view: View = {
      sent,
      gaugeAt: this.answers.map(() => 0),
      ended: this.answers.map(() => false),
      warning: null,
    };
    const wake = (): void => this.changed();
    signal.addEventListener("abort", wake);
    try {
      while (!signal.aborted && !this.#isWithdrawn) {
        const news = this.#news(view);
        for (const event of news) {
          if (this.#isWithdrawn) return;
          yield event;
        }
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
      for (const part of answer.length > from ? answer.since(from) : []) {
        view.sent[at]! += part.kind === "call" ? 1 : part.text.length;
        add(eventOf(message, part));
      }
      const now = this.#now();
      const isNew = answer.lastTokenAt !== undefined && answer.lastTokenAt > view.gaugeAt[at]!;
      if (isNew && !answer.end && now - view.gaugeAt[at]! >= gaugeEveryMs) {
        view.gaugeAt[at] = now;
        add({ name: "gauge", data: this.#gauge(answer) });
      }
      if (answer.end && !view.ended[at]) {
        view.ended[at] = true;
        const { state, stopReason, error, tokens, timings } = answer.end;
        add({ name: "end", data: { message, state, stopReason, error, tokens, timings } });
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
      reasoning:
        answer.reasoningMs === null
          ? null
          : { tokens: answer.reasoningTokens, ms: answer.reasoningMs },
    };
  }

  #snapshot(): RunSnapshot {
    return {
      run: this.id,
      session: this.sessionId,
      messages: this.answers.map(({ messageId, saved, end }) => {
        const { content, reasoning, calls } = saved;
        return { id: messageId, content, reasoning, calls, state: end?.state ?? "streaming" };
      }),
    };
  }

  /** undefined: not an id of this run, so start over. */
  #positions(lastEventId: string | undefined): number[] | undefined {
    if (!lastEventId || !/^\d+(\.\d+)*$/.test(lastEventId)) return undefined;
    const positions = lastEventId.split(".").map(Number);
    const fits =
      positions.length === this.answers.length &&
      positions.every((position, at) => position <= this.answers[at]!.length);
    return fits ? positions : undefined;
  }
}

const partEvents: {
  readonly [Kind in Part["kind"]]: (
    message: string,
    part: Extract<Part, { kind: Kind }>,
  ) => RunEvent;
} = {
  content: (message, { text }) => ({ name: "delta", data: { message, text } }),
  reasoning: (message, { text }) => ({ name: "reasoning", data: { message, text } }),
  call: (message, { index, id, name }) => ({ name: "call", data: { message, index, id, name } }),
  arguments: (message, { index, text }) => ({
    name: "arguments",
    data: { message, index, text },
  }),
};

function eventOf(message: string, part: Part): RunEvent {
  return (partEvents[part.kind] as (message: string, part: Part) => RunEvent)(message, part);
}

/** The position of one follower. */
interface View {
  sent: number[];
  gaugeAt: number[];
  ended: boolean[];
  warning: string | null;
}
