// Counters, gauges and histograms in Prometheus' text format. `createMetrics` lists all of them, one line each. Names
// start with lantern_; llama.cpp's own names are in llamacpp-metrics.ts. Nothing here contains a prompt, a key or an
// address.

import { LlamacppMetrics } from "./llamacpp-metrics.ts";

type Labels = Readonly<Record<string, string | number>>;

/** A metric that /metrics prints. `byModel`: with a label that names the model; otherwise all models are one. */
interface Instrument {
  text(byModel: boolean): string;
}

/** Values by labels; each model has its own. */
class ByLabels<T> {
  readonly #values = new Map<string, { labels: Labels; model: string | undefined; value: T }>();

  get(labels: Labels, model: string | undefined): T | undefined {
    return this.#values.get(keyOf(labels, model))?.value;
  }

  set(labels: Labels, model: string | undefined, value: T): void {
    this.#values.set(keyOf(labels, model), { labels, model, value });
  }

  /** With the model as a label, or joined over the models: the later value goes into the earlier. */
  read(byModel: boolean, join: (before: T, value: T) => T): [Labels, T][] {
    if (byModel) {
      return [...this.#values.values()].map(({ labels, model, value }) => [
        model === undefined ? labels : { ...labels, model },
        value,
      ]);
    }
    const joined = new Map<string, [Labels, T]>();
    for (const { labels, value } of this.#values.values()) {
      const before = joined.get(labelText(labels));
      joined.set(labelText(labels), [labels, before ? join(before[1], value) : value]);
    }
    return [...joined.values()];
  }
}

function keyOf(labels: Labels, model: string | undefined): string {
  return labelText(model === undefined ? labels : { ...labels, model });
}

class Counter implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #values = new ByLabels<number>();

  constructor(name: string, help: string) {
    this.#name = name;
    this.#help = help;
  }

  add(amount: number = 1, labels: Labels = {}, model?: string): void {
    this.#values.set(labels, model, (this.#values.get(labels, model) ?? 0) + amount);
  }

  text(byModel: boolean): string {
    const lines = this.#values
      .read(byModel, (before, value) => before + value)
      .map(([labels, value]) => `${this.#name}${labelText(labels)} ${value}\n`);
    const all = lines.length > 0 ? lines.join("") : `${this.#name} 0\n`;
    return `${head(this.#name, this.#help, "counter")}${all}`;
  }
}

/** A current value, or one for each of several labels. */
export interface GaugeReading {
  name: string;
  help: string;
  /** Default "gauge". */
  type?: "gauge" | "counter";
  values: readonly { value: number; labels?: Labels }[];
}

interface Observed {
  /** Not cumulative; the last bucket has no upper bound. */
  readonly counts: readonly number[];
  readonly sum: number;
}

class Histogram implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  readonly #none: Observed;
  readonly #values = new ByLabels<Observed>();

  constructor(name: string, help: string, bounds: readonly number[]) {
    this.#name = name;
    this.#help = help;
    this.#bounds = bounds;
    this.#none = { counts: new Array<number>(bounds.length + 1).fill(0), sum: 0 };
  }

  observe(value: number, model?: string): void {
    const found = this.#bounds.findIndex((bound) => value <= bound);
    const at = found < 0 ? this.#bounds.length : found;
    const before = this.#values.get({}, model) ?? this.#none;
    const counts = before.counts.with(at, before.counts[at]! + 1);
    this.#values.set({}, model, { counts, sum: before.sum + value });
  }

  text(byModel: boolean): string {
    const read = this.#values.read(byModel, (before, value) => ({
      counts: before.counts.map((count, at) => count + value.counts[at]!),
      sum: before.sum + value.sum,
    }));
    const all = read.length > 0 ? read : [[{}, this.#none] as [Labels, Observed]];
    const lines = all.map(([labels, { counts, sum }]) => this.#lines(labels, counts, sum));
    return `${head(this.#name, this.#help, "histogram")}${lines.join("")}`;
  }

  #lines(labels: Labels, counts: readonly number[], sum: number): string {
    let total = 0;
    const buckets = counts.map((count, at) => {
      total += count;
      const le = this.#bounds[at] ?? "+Inf";
      return `${this.#name}_bucket${labelText({ ...labels, le })} ${total}\n`;
    });
    const own = labelText(labels);
    return `${buckets.join("")}${this.#name}_sum${own} ${sum}\n${this.#name}_count${own} ${total}\n`;
  }
}

/** The last value, by labels. */
class Last implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #values = new ByLabels<number>();

  constructor(name: string, help: string) {
    this.#name = name;
    this.#help = help;
  }

  set(value: number, labels: Labels = {}, model?: string): void {
    this.#values.set(labels, model, value);
  }

  text(byModel: boolean): string {
    const read = this.#values.read(byModel, (_, value) => value);
    if (read.length === 0) return "";
    const lines = read.map(([labels, value]) => `${this.#name}${labelText(labels)} ${value}\n`);
    return `${head(this.#name, this.#help, "gauge")}${lines.join("")}`;
  }
}

export interface Metrics {
  readonly requests: Counter;
  readonly promptTokens: Counter;
  readonly cachedTokens: Counter;
  readonly generatedTokens: Counter;
  readonly embeddedTexts: Counter;
  readonly aborted: Counter;
  readonly queueSeconds: Histogram;
  readonly draftedTokens: Counter;
  readonly acceptedTokens: Counter;
  readonly firstTokenSeconds: Histogram;
  readonly tokenSeconds: Histogram;
  readonly limitRatio: Last;
  /** The same four for the lines of batches: no client waits for those. */
  readonly batchQueueSeconds: Histogram;
  readonly batchFirstTokenSeconds: Histogram;
  readonly batchTokenSeconds: Histogram;
  readonly batchLimitRatio: Last;
  readonly llamacpp: LlamacppMetrics;
}

const secondBounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60];
const tokenBounds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2];

export function createMetrics(): Metrics {
  return {
    requests: new Counter("lantern_requests_total", "Requests, by route, method and status."),
    promptTokens: new Counter("lantern_prompt_tokens_total", "Tokens of prompts, cached included."),
    cachedTokens: new Counter(
      "lantern_cached_tokens_total",
      "Tokens of prompts whose keys and values were still in the cache.",
    ),
    generatedTokens: new Counter("lantern_generated_tokens_total", "Tokens generated."),
    draftedTokens: new Counter(
      "lantern_drafted_tokens_total",
      "Tokens that were drafted and verified (docs/use/speculation.md).",
    ),
    acceptedTokens: new Counter(
      "lantern_accepted_tokens_total",
      "Of drafted tokens, those that became part of a text.",
    ),
    embeddedTexts: new Counter("lantern_embedded_texts_total", "Texts embedded or ranked."),
    aborted: new Counter(
      "lantern_aborted_total",
      "Generations that ended because the client disconnected or the server stopped.",
    ),
    queueSeconds: new Histogram(
      "lantern_queue_seconds",
      "Time that generations waited for their turn.",
      secondBounds,
    ),
    firstTokenSeconds: new Histogram(
      "lantern_time_to_first_token_seconds",
      "From the request to its first token, waiting included.",
      secondBounds,
    ),
    tokenSeconds: new Histogram(
      "lantern_time_per_token_seconds",
      "Time per token after the first, one value per generation.",
      tokenBounds,
    ),
    limitRatio: new Last(
      "lantern_limit_ratio",
      "Speed of the last generation as a fraction of what this machine's hardware allows, 0 to 1.",
    ),
    batchQueueSeconds: new Histogram(
      "lantern_batch_queue_seconds",
      "Time that lines of batches waited for their turn after they were begun.",
      secondBounds,
    ),
    batchFirstTokenSeconds: new Histogram(
      "lantern_batch_time_to_first_token_seconds",
      "From the beginning of a batch's line to its first token.",
      secondBounds,
    ),
    batchTokenSeconds: new Histogram(
      "lantern_batch_time_per_token_seconds",
      "Time per token after the first, one value per line of a batch.",
      tokenBounds,
    ),
    batchLimitRatio: new Last(
      "lantern_batch_limit_ratio",
      "Speed of a batch's last line as a fraction of what this machine's hardware allows, 0 to 1.",
    ),
    llamacpp: new LlamacppMetrics(),
  };
}

/** For the lines of batches: their times are apart from those of clients, their tokens are counted with them. */
export function backgroundMetrics(metrics: Metrics): Metrics {
  return {
    ...metrics,
    queueSeconds: metrics.batchQueueSeconds,
    firstTokenSeconds: metrics.batchFirstTokenSeconds,
    tokenSeconds: metrics.batchTokenSeconds,
    limitRatio: metrics.batchLimitRatio,
  };
}

/** All of it in Prometheus' text format. `byModel`: counters have a label that names the model. */
export function metricsText(
  metrics: Metrics,
  gauges: readonly GaugeReading[],
  byModel: boolean,
): string {
  const { llamacpp: _, ...instruments } = metrics;
  const counted = Object.values(instruments).map((instrument: Instrument) =>
    instrument.text(byModel),
  );
  const read = gauges.map(({ name, help, type = "gauge", values }) => {
    const lines = values.map(
      ({ value, labels }) => `${name}${labels ? labelText(labels) : ""} ${value}\n`,
    );
    return `${head(name, help, type)}${lines.join("")}`;
  });
  return [...counted, ...read].join("");
}

function head(name: string, help: string, type: string): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(
    ([name, value]) => `${name}="${String(value).replace(/[\\"\n]/g, "_")}"`,
  );
  return parts.length > 0 ? `{${parts.join(",")}}` : "";
}
