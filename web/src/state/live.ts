// An answer while it is written: its text, its gauge, and its speed over time. One store per answer, updated once per
// animation frame, so that only the component of this answer renders again.

import type { Gauge } from "../api-types.ts";
import { FrameBatch } from "./frame.ts";
import { Store } from "./store.ts";

/** A point of the small chart: seconds since the first one, and tokens per second around then. */
export interface Sample {
  at: number;
  rate: number;
}

export interface Live {
  text: string;
  gauge: Gauge | null;
  samples: readonly Sample[];
}

const mostSamples = 160;

export class LiveAnswer {
  readonly store: Store<Live>;
  #text: string;
  #gauge: Gauge | null = null;
  #samples: Sample[] = [];
  #lastGauge: { at: number; tokens: number } | undefined;
  #startedAt = 0;
  readonly #batch: FrameBatch = new FrameBatch(() => this.#show());

  constructor(text: string) {
    this.#text = text;
    this.store = new Store<Live>({ text, gauge: null, samples: [] });
  }

  /** All text so far, including text that is not drawn yet. */
  get text(): string {
    return this.#text;
  }

  replace(text: string): void {
    this.#text = text;
    this.#batch.ask();
  }

  append(text: string): void {
    this.#text += text;
    this.#batch.ask();
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
    this.store.set({ text: this.#text, gauge: this.#gauge, samples: [...this.#samples] });
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
