// llama.cpp's counters under its names, which dashboards for its server read. Averages are over the time since the
// last scrape, as in llama.cpp.

import type { EngineStatus, Timings } from "../../src/index.ts";
import type { AdmissionQueue } from "./queue.ts";

interface Total {
  tokens: number;
  ms: number;
}

export class LlamacppMetrics {
  readonly #prompt: Total = { tokens: 0, ms: 0 };
  readonly #predicted: Total = { tokens: 0, ms: 0 };
  /** Since the last scrape. */
  #promptLately: Total = { tokens: 0, ms: 0 };
  #predictedLately: Total = { tokens: 0, ms: 0 };
  readonly #drafts = { drafted: 0, accepted: 0, batches: 0 };
  #cached = 0;
  #longest = 0;

  /** Counts a generation that has ended. */
  count(timings: Timings): void {
    const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs } = timings;
    add(this.#prompt, promptTokens - cachedTokens, promptMs);
    add(this.#promptLately, promptTokens - cachedTokens, promptMs);
    add(this.#predicted, generatedTokens, generatedMs);
    add(this.#predictedLately, generatedTokens, generatedMs);
    this.#drafts.drafted += timings.speculation?.drafted ?? 0;
    this.#drafts.accepted += timings.speculation?.accepted ?? 0;
    this.#drafts.batches += timings.speculation?.draftedBatches ?? 0;
    this.#cached += cachedTokens;
    this.#longest = Math.max(this.#longest, promptTokens + generatedTokens);
  }

  /** Counts prompts that are only read (embeddings). */
  countEmbedded(tokens: number): void {
    this.#prompt.tokens += tokens;
  }

  /** The Prometheus text; `statuses` are those of the models. */
  read(queue: AdmissionQueue, statuses: readonly EngineStatus[]): string {
    const batches = sum(statuses, ({ batches }) => batches);
    const busy = sum(statuses, ({ batchSequences }) => batchSequences);
    const rates = [this.#promptLately, this.#predictedLately].map(perSecond);
    this.#promptLately = { tokens: 0, ms: 0 };
    this.#predictedLately = { tokens: 0, ms: 0 };
    const counters: [string, string, number][] = [
      [
        "prompt_tokens_total",
        "Prompt tokens computed, cached ones not counted.",
        this.#prompt.tokens,
      ],
      ["prompt_tokens_cached_total", "Prompt tokens taken from the cache.", this.#cached],
      ["prompt_seconds_total", "Time spent on prompts.", this.#prompt.ms / 1000],
      ["tokens_predicted_total", "Tokens generated.", this.#predicted.tokens],
      ["tokens_predicted_seconds_total", "Time spent on generation.", this.#predicted.ms / 1000],
      ["n_decode_total", "Batches computed.", batches],
      ["n_tokens_max", "Longest sequence so far, prompt and generation.", this.#longest],
      ["spec_decode_num_draft_tokens_total", "Drafted tokens.", this.#drafts.drafted],
      ["spec_decode_num_accepted_tokens_total", "Drafted tokens taken.", this.#drafts.accepted],
      ["spec_decode_num_drafts_total", "Drafts verified.", this.#drafts.batches],
    ];
    const gauges: [string, string, number][] = [
      ["prompt_tokens_seconds", "Prompt tokens per second since the last reading.", rates[0]!],
      [
        "predicted_tokens_seconds",
        "Generated tokens per second since the last reading.",
        rates[1]!,
      ],
      ["requests_processing", "Generations that run.", queue.running],
      ["requests_deferred", "Generations that wait.", queue.waiting],
      ["n_busy_slots_per_decode", "Sequences in a batch, on average.", busy / Math.max(1, batches)],
    ];
    return linesOf("counter", counters) + linesOf("gauge", gauges);
  }
}

function linesOf(type: string, items: readonly [string, string, number][]): string {
  return items
    .map(([name, help, value]) => {
      const full = `llamacpp:${name}`;
      return `# HELP ${full} ${help}\n# TYPE ${full} ${type}\n${full} ${value}\n`;
    })
    .join("");
}

function add(total: Total, tokens: number, ms: number): void {
  total.tokens += tokens;
  total.ms += ms;
}

function perSecond({ tokens, ms }: Total): number {
  return ms > 0 ? (tokens * 1000) / ms : 0;
}

function sum<T>(list: readonly T[], of: (one: T) => number): number {
  return list.reduce((total, one) => total + of(one), 0);
}
