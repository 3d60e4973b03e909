// Counters, gauges and histograms in Prometheus' text format. `createMetrics` lists all of them, one line each. Names
// start with lantern_; llama.cpp's own names are in llamacpp-metrics.ts. Nothing here contains a prompt, a key or an
// address.

import { LlamacppMetrics } from "./llamacpp-metrics.ts";

type Labels = Readonly<Record<string, string | number>>;

/** Something that /metrics prints. */
interface Instrument {
  text(): string;
}

class Counter implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #values = new Map<string, number>();

  constructor(name: string, help: string) {
    this.#name = name;
    this.#help = help;
  }

  add(amount: number = 1, labels: Labels = {}): void {
    const key = labelText(labels);
    this.#values.set(key, (this.#values.get(key) ?? 0) + amount);
  }

  text(): string {
    const lines = [...this.#values].map(([key, value]) => `${this.#name}${key} ${value}\n`);
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

class Histogram implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  /** Not cumulative; the last bucket has no upper bound. */
  readonly #counts: number[];
  #sum = 0;

  constructor(name: string, help: string, bounds: readonly number[]) {
    this.#name = name;
    this.#help = help;
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    const at = this.#bounds.findIndex((bound) => value <= bound);
    this.#counts[at < 0 ? this.#bounds.length : at]!++;
    this.#sum += value;
  }

  text(): string {
    let total = 0;
    const buckets = this.#counts.map((count, at) => {
      total += count;
      return `${this.#name}_bucket{le="${this.#bounds[at] ?? "+Inf"}"} ${total}\n`;
    });
    const ends = `${this.#name}_sum ${this.#sum}\n${this.#name}_count ${total}\n`;
    return `${head(this.#name, this.#help, "histogram")}${buckets.join("")}${ends}`;
  }
}

/** The last value, by labels. */
class Last implements Instrument {
  readonly #name: string;
  readonly #help: string;
  readonly #values = new Map<string, number>();

  constructor(name: string, help: string) {
    this.#name = name;
    this.#help = help;
  }

  set(value: number, labels: Labels = {}): void {
    this.#values.set(labelText(labels), value);
  }

  text(): string {
    if (this.#values.size === 0) return "";
    const lines = [...this.#values].map(([key, value]) => `${this.#name}${key} ${value}\n`);
    return `${head(this.#name, this.#help, "gauge")}${lines.join("")}`;
  }
}

export interface Metrics {
  readonly requests: Counter;
  readonly promptTokens: Counter;
  readonly cachedTokens: Counter;
  readonly generatedTokens: Counter;
  readonly aborted: Counter;
  readonly queueSeconds: Histogram;
  readonly firstTokenSeconds: Histogram;
  readonly tokenSeconds: Histogram;
  readonly limitRatio: Last;
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
    llamacpp: new LlamacppMetrics(),
  };
}

/** All of it in Prometheus' text format. */
export function metricsText(metrics: Metrics, gauges: readonly GaugeReading[]): string {
  const { llamacpp: _, ...instruments } = metrics;
  const counted = Object.values(instruments).map((instrument: Instrument) => instrument.text());
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
