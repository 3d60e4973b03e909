// An answer while it is written: its reasoning, text and calls, its gauge, and its speed over time. One store per answer, updated once per
// animation frame, so that only the component of this answer renders again.

import type { Gauge, Message, ToolCall } from "../api-types.ts";
import { FrameBatch } from "./frame.ts";
import { Store } from "./store.ts";

/** A point of the small chart: seconds since the first one, and tokens per second around then. */
export interface Sample {
  at: number;
  rate: number;
}

/** The content of an answer. */
export interface Said {
  text: string;
  reasoning: string | null;
  calls: readonly ToolCall[];
}

export const nothingSaid: Said = { text: "", reasoning: null, calls: [] };

export function saidIn({ content, reasoning, calls }: Message): Said {
  return { text: content, reasoning, calls };
}

export interface Live extends Said {
  gauge: Gauge | null;
  samples: readonly Sample[];
}

const mostSamples = 160;

export class LiveAnswer {
  readonly store: Store<Live>;
  #said: Said;
  #gauge: Gauge | null = null;
  #samples: Sample[] = [];
  #lastGauge: { at: number; tokens: number } | undefined;
  #startedAt = 0;
  readonly #batch: FrameBatch = new FrameBatch(() => this.#show());

  constructor(said: Said) {
    this.#said = said;
    this.store = new Store<Live>({ ...said, gauge: null, samples: [] });
  }

  /** All text so far, including the part that is not drawn yet. */
  get said(): Said {
    return this.#said;
  }

  replace(said: Said): void {
    this.#said = said;
    this.#batch.ask();
  }

  append(text: string): void {
    this.replace({ ...this.#said, text: this.#said.text + text });
  }

  think(text: string): void {
    this.replace({ ...this.#said, reasoning: (this.#said.reasoning ?? "") + text });
  }

  call(id: string, name: string): void {
    const call = { id, name, arguments: "", state: "waiting", result: null, by: null } as const;
    this.replace({ ...this.#said, calls: [...this.#said.calls, call] });
  }

  callWith(index: number, text: string): void {
    const calls = this.#said.calls.map((call, at) =>
      at === index ? { ...call, arguments: call.arguments + text } : call,
    );
    this.replace({ ...this.#said, calls });
  }

  measure(gauge: Gauge, now: number): void {
    const last = this.#lastGauge;
    if (!last) this.#startedAt = now;
    else if (gauge.tokens > last.tokens && now > last.at) {
      const rate = ((gauge.tokens - last.tokens) * 1000) / (now - last.at);
      this.#samples.push({ at: (now - this.#startedAt) / 1000, rate });
      if (this.#samples.length > mostSamples) this.#samples = everySecond(this.#samples);
    }
    this.#lastGauge = { at: now, tokens: gauge.tokens };
    this.#gauge = gauge;
    this.#batch.ask();
  }

  /** The answer is complete: draw all of it now. */
  finish(): void {
    this.#batch.now();
  }

  #show(): void {
    this.store.set({ ...this.#said, gauge: this.#gauge, samples: [...this.#samples] });
  }
}

/** Half as many points, each the average of two. */
function everySecond(samples: readonly Sample[]): Sample[] {
  return samples.flatMap((sample, at) => {
    if (at % 2 === 0) return [];
    const before = samples[at - 1]!;
    return [{ at: sample.at, rate: (sample.rate + before.rate) / 2 }];
  });
}
