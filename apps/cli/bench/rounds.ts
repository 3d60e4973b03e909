// The rounds of `lantern bench`: every entrant (an opt level with a thread count) is measured once per round.
//
// All entrants stay loaded if memory allows; otherwise each is loaded again for each round, which takes longer and
// measures the same.

import { othersCores } from "../../../src/base/machine-load.ts";
import { measure } from "../../../src/base/measure.ts";
import {
  type MachineMeasurement,
  type MemoryHeld,
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
} from "../../../src/index.ts";
import type { MachineLoad } from "../../../src/platform/node-cli.ts";
import { type Contestant, lanternContestant, tokenSource } from "./measure.ts";

export interface BenchPlan {
  path: string;
  levels: readonly OptLevel[];
  threads: readonly number[];
  /** The backend, and how much of the model is on the GPU: options of open(). */
  where: OpenOptions;
  /** Whether tokens are drafted (docs/use/speculation.md). */
  speculates: boolean;
  /** Lengths of prompts. */
  promptTokens: readonly number[];
  /** Numbers of generated tokens. */
  generatedTokens: readonly number[];
  /** Tokens that are in the KV cache before each of these. */
  depths: readonly number[];
  contextSize: number;
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

/** The profile of an entrant's repetitions. */
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
  /** Tokens in the KV cache before the first of these. */
  depth: number;
  /** Tokens per second, one for each repetition. */
  samples: number[];
  /** Drafts of all repetitions together; undefined: nothing was drafted. */
  drafts?: { drafted: number; accepted: number };
  /** Cores that other processes used, in the worst repetition. */
  othersCores: number;
  /** The limit of this machine: the same in every repetition. undefined: limits are not requested. */
  limit: Pick<SpeedLimit, "resource" | "tokensPerSecond"> | undefined;
}

/** The memory of an entrant's model while it was loaded, and the time of all measured runs together. */
export interface BenchUse {
  level: OptLevel;
  threads: number;
  held: MemoryHeld;
  times: Pick<Timings, "loadMs" | "sampleMs" | "promptMs" | "generatedMs" | "totalMs">;
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
  /** The limits of its last run. */
  limits(): Promise<SpeedLimits | undefined>;
  drafts(): Timings["speculation"];
}

class Entrant {
  readonly level: OptLevel;
  readonly threads: number;
  readonly results: BenchResult[];
  readonly times = { loadMs: 0, sampleMs: 0, promptMs: 0, generatedMs: 0, totalMs: 0 };
  /** The memory and times of its model, and its profile, after its last repetition. */
  use: BenchUse | undefined;
  profile: BenchProfile | undefined;
  readonly #plan: BenchPlan;
  #open: Opened | undefined;

  constructor(plan: BenchPlan, level: OptLevel, threads: number) {
    this.level = level;
    this.threads = threads;
    this.#plan = plan;
    const kinds = { prompt: plan.promptTokens, generation: plan.generatedTokens } as const;
    this.results = plan.depths.flatMap((depth) =>
      (["prompt", "generation"] as const).flatMap((kind) =>
        kinds[kind].map((tokens) => {
          const measured = { samples: [], othersCores: 0, limit: undefined };
          return { level, threads, kind, tokens, depth, ...measured };
        }),
      ),
    );
  }

  get label(): string {
    return `opt level ${this.level}, ${this.threads} thread${this.threads === 1 ? "" : "s"}`;
  }

  async ready(watch: BenchWatch): Promise<Opened> {
    if (this.#open) return this.#open;
    const { path, promptTokens, generatedTokens, contextSize, warmup } = this.#plan;
    watch.status(`${this.label}: loading`);
    const model = await open(path, {
      ...this.#plan.where,
      contextSize,
      warmup,
      threads: this.threads,
      level: this.level,
      profile: this.#plan.profileOf !== undefined,
      signal: watch.signal,
    });
    let last: Timings | undefined;
    let isMeasured = false;
    const seen = (timings: Timings) => {
      last = timings;
      if (isMeasured) addTimes(this.times, timings);
    };
    const { speculates } = this.#plan;
    const contestant = lanternContestant(model, watch.signal, seen, speculates);
    const { machine, limits: wanted } = this.#plan;
    const limits = async () =>
      wanted && last ? await measuredLimits(last, model.info, machine) : undefined;
    this.#open = { model, contestant, limits, drafts: () => last?.speculation };
    if (warmup) {
      watch.status(`${this.label}: warming up`);
      // Warm-up: code is compiled and optimized while it runs. The tokens differ from the first measured ones, because
      // a model caches prompts.
      const tokens = tokenSource(model.info.vocabSize)(Math.max(1, ...promptTokens)).reverse();
      await contestant.prompt(tokens);
      const most = Math.max(0, ...generatedTokens);
      if (most > 0) await contestant.generate(tokens[0]!, Math.min(4, most));
      if (this.#plan.profileOf) await model.profile({ reset: true });
    }
    isMeasured = true;
    return this.#open;
  }

  async close(): Promise<void> {
    const model = this.#open?.model;
    this.#open = undefined;
    await model?.dispose();
  }
}

export async function runRounds(plan: BenchPlan, watch: BenchWatch): Promise<BenchOutcome> {
  let residentBytes: number | undefined;
  const entrants = plan.levels.flatMap((level) =>
    plan.threads.map((threads) => new Entrant(plan, level, threads)),
  );
  const together = entrants.length * plan.modelBytes <= plan.memoryBytes;
  let info: ModelInfo | undefined;
  try {
    let next: ((count: number) => number[]) | undefined;
    // The same in every round, so that the KV cache is filled only once if a context has one depth.
    let before: number[] = [];
    await measure({
      contestants: entrants,
      rounds: plan.repetitions,
      run: async (entrant, round) => {
        const opened = await entrant.ready(watch);
        info = opened.model.info;
        if (!next) {
          next = tokenSource(info.vocabSize);
          before = next(Math.max(...plan.depths));
        }
        const of = `repetition ${round + 1} of ${plan.repetitions}`;
        for (const result of entrant.results) {
          watch.status(`${entrant.label}: ${testName(result)}, ${of}`);
          await measureOnce(result, opened, next, before.slice(0, result.depth), watch);
        }
        if (round === plan.repetitions - 1) {
          const { level, threads, times } = entrant;
          const report = await plan.profileOf?.(opened.model);
          entrant.profile = report && { level, threads, report };
          const { memory: held } = await opened.model.status();
          entrant.use = { level, threads, held, times };
          residentBytes = watch.load().residentBytes;
        }
        if (!together) await entrant.close();
      },
    });
  } finally {
    watch.status("");
    await Promise.all(entrants.map((entrant) => entrant.close()));
  }
  const results = entrants.flatMap((entrant) => entrant.results);
  const profiles = entrants.flatMap(({ profile }) => profile ?? []);
  const uses = entrants.flatMap(({ use }) => use ?? []);
  return { info: info!, results, profiles, uses, residentBytes };
}

export interface BenchOutcome {
  info: ModelInfo;
  results: BenchResult[];
  profiles: BenchProfile[];
  uses: BenchUse[];
  /** The memory of the process, with the last model measured and, if memory allows, all others loaded. */
  residentBytes: number | undefined;
}

const kindNames: Record<BenchResult["kind"], string> = { prompt: "pp", generation: "tg" };

/** "pp512", "tg32 @ d2048", llama-bench's names. */
export function testName({ kind, tokens, depth }: BenchResult): string {
  return `${kindNames[kind]}${tokens}${depth === 0 ? "" : ` @ d${depth}`}`;
}

function addTimes(sum: BenchUse["times"], timings: Timings): void {
  sum.loadMs = timings.loadMs;
  sum.sampleMs += timings.sampleMs;
  sum.promptMs += timings.promptMs;
  sum.generatedMs += timings.generatedMs;
  sum.totalMs += timings.totalMs;
}

async function measureOnce(
  result: BenchResult,
  { contestant, limits, drafts }: Opened,
  next: (count: number) => number[],
  before: readonly number[],
  watch: BenchWatch,
): Promise<void> {
  const start = watch.load();
  const sample =
    result.kind === "prompt"
      ? await contestant.prompt(next(result.tokens), before)
      : await contestant.generate(next(1)[0]!, result.tokens, before);
  result.samples.push(sample);
  const made = drafts();
  if (made && result.kind === "generation") {
    const { drafted, accepted } = result.drafts ?? { drafted: 0, accepted: 0 };
    result.drafts = { drafted: drafted + made.drafted, accepted: accepted + made.accepted };
  }
  result.limit = (await limits())?.[result.kind];
  result.othersCores = Math.max(result.othersCores, othersCores(start, watch.load()));
}
