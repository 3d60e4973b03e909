// The rounds of `lantern bench`: every entrant (an opt level with a thread count) is measured once per round, in turn.
//
// All of them stay loaded if memory allows; otherwise each is loaded again for its turn, which takes longer and
// measures the same.

import {
  type MachineMeasurement,
  type Model,
  type ModelInfo,
  measuredLimits,
  type OpenOptions,
  type OptLevel,
  open,
  type ProfileReport,
  type SpeedLimit,
  type SpeedLimits,
  type Timings,
} from "../../index.ts";
import type { MachineLoad } from "../../platform/node-cli.ts";
import { othersCores } from "./machine-load.ts";
import { type Contestant, contextFor, lanternContestant, tokenSource } from "./measure.ts";

export interface BenchPlan {
  path: string;
  levels: readonly OptLevel[];
  threads: readonly number[];
  /** What computes, and how much of it on the GPU: options of open(). */
  where: Pick<OpenOptions, "backend" | "gpuLayers" | "gpuFor" | "exact" | "tuneFile">;
  /** Prompt tokens; 0: not measured. */
  promptTokens: number;
  /** Generated tokens; 0: not measured. */
  generatedTokens: number;
  repetitions: number;
  warmup: boolean;
  /** Memory that all models together may take. */
  memoryBytes: number;
  /** Memory of one of them. */
  modelBytes: number;
  /** Whether speeds are compared with the limits of the device, if it was measured. */
  limits: boolean;
  /** The processor's measurement. */
  machine: MachineMeasurement | undefined;
  /** Takes a model's profile after its measurement; undefined: none is recorded. */
  profileOf: ((model: Model) => Promise<ProfileReport | undefined>) | undefined;
}

/** Where the time of an entrant's repetitions went. */
export interface BenchProfile {
  level: OptLevel;
  threads: number;
  report: ProfileReport;
}

export interface BenchResult {
  level: OptLevel;
  threads: number;
  kind: "prompt" | "generation";
  tokens: number;
  /** Tokens per second, one for each repetition. */
  samples: number[];
  /** Cores that other processes used, in the worst repetition. */
  othersCores: number;
  /** The most that this machine allows: the same in every repetition. undefined: limits are not requested. */
  limit: Pick<SpeedLimit, "resource" | "tokensPerSecond"> | undefined;
}

export interface BenchWatch {
  signal: AbortSignal;
  load(): MachineLoad;
  /** Sets the text of the status line. */
  status(text: string): void;
}

interface Opened {
  model: Model;
  contestant: Contestant;
  /** For its last run. */
  limits(): Promise<SpeedLimits | undefined>;
}

class Entrant {
  readonly level: OptLevel;
  readonly threads: number;
  readonly results: BenchResult[];
  readonly #plan: BenchPlan;
  #open: Opened | undefined;

  constructor(plan: BenchPlan, level: OptLevel, threads: number) {
    this.level = level;
    this.threads = threads;
    this.#plan = plan;
    const kinds = [
      { kind: "prompt", tokens: plan.promptTokens },
      { kind: "generation", tokens: plan.generatedTokens },
    ] as const;
    this.results = kinds
      .filter(({ tokens }) => tokens > 0)
      .map(({ kind, tokens }) => {
        const measured = { samples: [], othersCores: 0, limit: undefined };
        return { level, threads, kind, tokens, ...measured };
      });
  }

  get label(): string {
    return `opt level ${this.level}, ${this.threads} thread${this.threads === 1 ? "" : "s"}`;
  }

  async ready(watch: BenchWatch): Promise<Opened> {
    if (this.#open) return this.#open;
    const { path, promptTokens, generatedTokens, warmup } = this.#plan;
    watch.status(`${this.label}: loading`);
    const model = await open(path, {
      ...this.#plan.where,
      contextSize: contextFor(promptTokens, generatedTokens),
      threads: this.threads,
      level: this.level,
      profile: this.#plan.profileOf !== undefined,
      signal: watch.signal,
    });
    let last: Timings | undefined;
    const contestant = lanternContestant(model, watch.signal, (timings) => {
      last = timings;
    });
    const { machine, limits: wanted } = this.#plan;
    const limits = async () =>
      wanted && last ? await measuredLimits(last, model.info, machine) : undefined;
    this.#open = { model, contestant, limits };
    if (warmup) {
      watch.status(`${this.label}: warming up`);
      // Code is compiled and optimized while it runs. The tokens differ from the first measured ones, because a
      // model caches what it has read.
      const tokens = tokenSource(model.info.vocabSize)(Math.max(1, promptTokens)).reverse();
      await contestant.prompt(tokens);
      if (generatedTokens > 0) await contestant.generate(tokens[0]!, Math.min(4, generatedTokens));
      if (this.#plan.profileOf) await model.profile({ reset: true });
    }
    return this.#open;
  }

  async close(): Promise<void> {
    const model = this.#open?.model;
    this.#open = undefined;
    await model?.dispose();
  }
}

export async function runRounds(
  plan: BenchPlan,
  watch: BenchWatch,
): Promise<{ info: ModelInfo; results: BenchResult[]; profiles: BenchProfile[] }> {
  const profiles: BenchProfile[] = [];
  const entrants = plan.levels.flatMap((level) =>
    plan.threads.map((threads) => new Entrant(plan, level, threads)),
  );
  const together = entrants.length * plan.modelBytes <= plan.memoryBytes;
  let info: ModelInfo | undefined;
  try {
    let next: ((count: number) => number[]) | undefined;
    for (let round = 1; round <= plan.repetitions; round++) {
      for (const entrant of entrants) {
        const opened = await entrant.ready(watch);
        info = opened.model.info;
        next ??= tokenSource(info.vocabSize);
        watch.status(`${entrant.label}: repetition ${round} of ${plan.repetitions}`);
        for (const result of entrant.results) await measure(result, opened, next, watch);
        const report =
          round === plan.repetitions ? await plan.profileOf?.(opened.model) : undefined;
        if (report) profiles.push({ level: entrant.level, threads: entrant.threads, report });
        if (!together) await entrant.close();
      }
    }
  } finally {
    watch.status("");
    await Promise.all(entrants.map((entrant) => entrant.close()));
  }
  return { info: info!, results: entrants.flatMap(({ results }) => results), profiles };
}

async function measure(
  result: BenchResult,
  { contestant, limits }: Opened,
  next: (count: number) => number[],
  watch: BenchWatch,
): Promise<void> {
  const before = watch.load();
  const sample =
    result.kind === "prompt"
      ? await contestant.prompt(next(result.tokens))
      : await contestant.generate(next(1)[0]!, result.tokens);
  result.samples.push(sample);
  result.limit = (await limits())?.[result.kind];
  result.othersCores = Math.max(result.othersCores, othersCores(before, watch.load()));
}
