// Decides whether a GPU that has some of the layers computes the very bits of the processor (docs/use/gpu.md), unless the user decides: it
// does if exact kernels cost less than 10 % of a generated token and of a prompt. Measured once for each GPU, kind of model and number of
// layers, and stored. A first load has the fast kernels; then the model is loaded again with the exact ones, and a third time if those are
// slower. If all layers are on one side, there is no choice: no split can give other bits. A large model is not loaded twice.

import type { Backend } from "../backends/backend.ts";
import type { Plan } from "../graph/plan.ts";
import type { SmallFiles } from "../platform/platform.ts";
import { Remembered } from "./remembered.ts";
import {
  areTrialTimes,
  type TrialTimes,
  trialPromptMs,
  trialPromptTokens,
  trialTokenMs,
} from "./trial-times.ts";

/** The most that exact kernels may cost. */
const MOST_COST = 0.1;
/** A model that took longer to load is not loaded again only to measure it. */
const MOST_LOAD_MS = 10_000;

const FILE = "exact.json";

interface ExactMeasure {
  readonly fast: TrialTimes;
  /** A sentence: why there are no exact kernels for this model. */
  readonly exact: TrialTimes | string;
}

interface ChoiceHost {
  readonly files: SmallFiles;
  now(): number;
  /** Properties that a time depends on: GPU, processor, kind of model and layers. */
  readonly key: string;
}

export class ExactChoice {
  readonly #host: ChoiceHost;
  readonly #remembered: Remembered<ExactMeasure>;
  #exact = false;
  #fast: TrialTimes | undefined;
  #promptTokens = 0;
  #began = 0;
  #isMade = false;
  #mustReload = false;
  #note: string | undefined;
  #notes: string[] = [];

  constructor(host: ChoiceHost) {
    this.#host = host;
    this.#remembered = new Remembered(host.files, FILE, isMeasure);
  }

  /** Whether the load that begins now has exact kernels. */
  get wanted(): boolean {
    return this.#exact;
  }

  /** Whether the mode that was just loaded is not the chosen one, or not the last to be measured. */
  get mustReload(): boolean {
    return this.#mustReload;
  }

  /** Before each load, whose notes these are. */
  async begin(notes: string[]): Promise<void> {
    this.#mustReload = false;
    this.#began = this.#host.now();
    this.#notes = notes;
    if (this.#note !== undefined) notes.push(this.#note);
    if (this.#isMade || this.#fast) return;
    const known = await this.#remembered.find(this.#host.key);
    if (known) this.#made(known, "remembered");
  }

  /** After each load. */
  async measure(backend: Backend, plan: Plan, check: () => void | Promise<void>): Promise<void> {
    if (this.#isMade) return;
    const { now } = this.#host;
    const places = backend.placement?.() ?? [];
    const isDivided = places.some(({ isDevice }) => isDevice) && !places.every((p) => p.isDevice);
    const isPlain = plan.graph.states.every(({ kind }) => kind === "kv");
    if (!isDivided || !isPlain || !plan.graph.outputs.logits) {
      this.#isMade = true;
      return;
    }
    const loadMs = now() - this.#began;
    if (!this.#fast && loadMs > MOST_LOAD_MS) {
      this.#isMade = true;
      this.#say(
        `off: the model took ${(loadMs / 1000).toFixed(0)} s to load, and measuring loads it again (--exact)`,
      );
      return;
    }
    const trial = { backend, plan, now, check };
    const token = await trialTokenMs(trial);
    this.#promptTokens ||= trialPromptTokens(plan, token);
    const times = { token, prompt: await trialPromptMs(trial, this.#promptTokens) };
    backend.resetProfile?.();
    if (this.#fast) {
      await this.#decide({ fast: this.#fast, exact: times });
      return;
    }
    this.#fast = times;
    this.#exact = true;
    this.#mustReload = true;
  }

  /** The load with exact kernels failed. */
  async refused(reason: string): Promise<void> {
    await this.#decide({ fast: this.#fast ?? { token: 1, prompt: 1 }, exact: reason });
  }

  async #decide(measure: ExactMeasure): Promise<void> {
    const was = this.#exact;
    this.#made(measure, "measured");
    this.#mustReload = this.#exact !== was;
    await this.#remembered.store(this.#host.key, measure);
  }

  #made({ fast, exact }: ExactMeasure, how: "measured" | "remembered"): void {
    this.#isMade = true;
    if (typeof exact === "string") {
      this.#exact = false;
      this.#say(`off (${how}): ${exact}`);
      return;
    }
    const cost = Math.max(exact.token / fast.token, exact.prompt / fast.prompt) - 1;
    this.#exact = cost < MOST_COST;
    const ms = (one: number): string => one.toPrecision(3);
    this.#say(
      `${this.#exact ? "on" : "off"} (${how}): ${ms(exact.token)} ms a generated token instead of ${ms(fast.token)}, ${ms(exact.prompt)} a token of a prompt instead of ${ms(fast.prompt)} (${this.#exact ? "--no-exact" : "--exact"})`,
    );
  }

  #say(text: string): void {
    this.#note = `exact: auto, ${text}`;
    this.#notes.push(this.#note);
  }
}

function isMeasure(entry: unknown): boolean {
  const { fast, exact } = (entry ?? {}) as Partial<ExactMeasure>;
  return areTrialTimes(fast) && (typeof exact === "string" || areTrialTimes(exact));
}
