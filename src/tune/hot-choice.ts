// Decides whether hot neurons are on a GPU (docs/use/sparse.md) that has some layers of a model with ReLU, unless the user decides:
// instead of those layers, in the same memory. The division by layers is loaded first. The host reads fewer bytes with hot neurons, but
// waits for the GPU in each layer: they are loaded only if that promises to be faster, and stay only if they are clearly faster. The
// result is stored for the model, the machine and the number of layers.

import type { Backend } from "../backends/backend.ts";
import type { HotOffer } from "../backends/split/hot-offer.ts";
import type { Plan } from "../graph/plan.ts";
import type { SmallFiles } from "../platform/platform.ts";
import { Remembered } from "./remembered.ts";
import {
  areTrialTimes,
  type Trial,
  type TrialTimes,
  trialPromptMs,
  trialPromptTokens,
  trialTokenMs,
} from "./trial-times.ts";

/**
 * The time in ms that a layer waits for the GPU: submitting, computing attention, reading back (an H200;
 * docs/journal/2026-11-19.md).
 */
const WAIT_MS = 0.43;
/** The promised, or measured, time must be less than this part of the other. */
const FASTER = 0.95;

const FILE = "hot-neurons.json";

interface HotMeasure {
  readonly share: number;
  readonly plain: TrialTimes;
  /** A sentence: why they were not tried, or could not be had. */
  readonly hot: TrialTimes | string;
}

interface ChoiceHost {
  readonly files: SmallFiles;
  now(): number;
  /** Properties that a time depends on, beside the weights: GPU, processor, layers. */
  readonly key: string;
}

/** A loaded model. */
export interface HotTrial {
  readonly backend: Backend;
  readonly plan: Plan;
  /** Tokens of a text. */
  readonly tokens: readonly number[];
  check(): void | Promise<void>;
  /** The costs of hot neurons; undefined: there are none to be had. */
  offer(): Promise<HotOffer | undefined>;
  /**
   * The number of prompt tokens from which the GPU computes the processor's layers (op offload), which it cannot with hot neurons.
   */
  readonly helpedFrom: number;
}

export class HotChoice {
  readonly #host: ChoiceHost;
  readonly #remembered: Remembered<HotMeasure>;
  #key = "";
  /** The share that is loaded now, or next. */
  #share: number | undefined;
  #plain: TrialTimes | undefined;
  #promptTokens = 0;
  #isMade = false;
  #mustReload = false;
  #note: string | undefined;
  #notes: string[] = [];

  constructor(host: ChoiceHost) {
    this.#host = host;
    this.#remembered = new Remembered(host.files, FILE, isMeasure);
  }

  /** The share of the neurons that is on the GPU in the load that begins now; undefined: it is divided by layers. */
  get wanted(): number | undefined {
    return this.#share;
  }

  /** Whether what was just loaded is not what was chosen, or not the last to be measured. */
  get mustReload(): boolean {
    return this.#mustReload;
  }

  /** Before each load, whose notes these are. */
  async begin(weights: string, threads: number, notes: string[]): Promise<void> {
    this.#mustReload = false;
    this.#notes = notes;
    if (this.#note !== undefined) notes.push(this.#note);
    if (this.#isMade || this.#plain) return;
    this.#key = `${this.#host.key}, ${threads} threads, ${weights}`;
    const known = await this.#remembered.find(this.#key);
    if (known) this.#made(known, "remembered");
  }

  /** After each load in which neurons that are zero are left out. */
  async measure({ offer, helpedFrom, ...loaded }: HotTrial): Promise<void> {
    if (this.#isMade) return;
    const trial = { ...loaded, now: this.#host.now };
    const isPlain = trial.plan.graph.states.every(({ kind }) => kind === "kv");
    const offered = this.#plain || !isPlain ? undefined : await offer();
    if (!this.#plain && !offered) {
      this.#isMade = true;
      return;
    }
    const token = await trialTokenMs(trial);
    this.#promptTokens ||= trialPromptTokens(trial.plan, token);
    const times = { token, prompt: await trialPromptMs(trial, this.#promptTokens) };
    if (offered) {
      const least = await this.#promised(offered, trial, times, helpedFrom);
      if (sum(least) >= FASTER * sum(times)) {
        const hot = `at least ${ms(least.token)} ms a generated token instead of ${ms(token)}, ${ms(least.prompt)} a token of a prompt instead of ${ms(times.prompt)}`;
        trial.backend.resetProfile?.();
        await this.#decide({ share: offered.share, plain: times, hot });
        return;
      }
    }
    trial.backend.resetProfile?.();
    if (this.#plain) {
      await this.#decide({ share: this.#share!, plain: this.#plain, hot: times });
      return;
    }
    this.#plain = times;
    this.#share = offered!.share;
    this.#mustReload = true;
  }

  /** The least that hot neurons would take: the host reads fewer bytes, and waits. */
  async #promised(
    { hotBytes, plainBytes, layers }: HotOffer,
    trial: Trial,
    times: TrialTimes,
    helpedFrom: number,
  ): Promise<TrialTimes> {
    const ratio = hotBytes / plainBytes;
    const token = times.token * ratio + layers * WAIT_MS;
    if (helpedFrom > this.#promptTokens || helpedFrom <= 1) return { token, prompt: times.prompt };
    // The largest prompt that the host computes now, by itself.
    return { token, prompt: ratio * (await trialPromptMs(trial, helpedFrom - 1)) };
  }

  /** The load with hot neurons failed. */
  async refused(reason: string): Promise<void> {
    const plain = this.#plain ?? { token: 1, prompt: 1 };
    await this.#decide({ share: this.#share!, plain, hot: reason });
  }

  async #decide(measure: HotMeasure): Promise<void> {
    const was = this.#share;
    this.#made(measure, "measured");
    this.#mustReload = this.#share !== was;
    await this.#remembered.store(this.#key, measure);
  }

  #made({ share, plain, hot }: HotMeasure, how: "measured" | "remembered"): void {
    this.#isMade = true;
    const isOn = typeof hot !== "string" && sum(hot) < FASTER * sum(plain);
    this.#share = isOn ? share : undefined;
    const facts =
      typeof hot === "string"
        ? hot
        : `${ms(hot.token)} ms a generated token instead of ${ms(plain.token)}, ${ms(hot.prompt)} a token of a prompt instead of ${ms(plain.prompt)}`;
    const flag = isOn ? "--no-hot-neurons" : `--hot-neurons ${share}`;
    this.#note = `hot neurons: auto, ${isOn ? `${share} of them` : "off"} (${how}): ${facts} (${flag})`;
    this.#notes.push(this.#note);
  }
}

/** The time of a generated token, and of as many tokens of a prompt. */
function sum({ token, prompt }: TrialTimes): number {
  return token + prompt;
}

function ms(time: number): string {
  return time.toPrecision(3);
}

function isMeasure(entry: unknown): boolean {
  const { share, plain, hot } = (entry ?? {}) as Partial<HotMeasure>;
  const isShare = typeof share === "number" && share > 0 && share < 1;
  return isShare && areTrialTimes(plain) && (typeof hot === "string" || areTrialTimes(hot));
}
