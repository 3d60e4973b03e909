// Decides whether neurons that are zero are left out (docs/use/sparse.md), unless the user decides: measured once for each file on each
// machine, and stored. A first load has all neurons. If most are zero there, the model is loaded again without those, and the faster of
// the two stays. Texts are the same either way, so a disturbed measurement costs time and nothing else.
//
// A trial's times are those of its fastest tokens, and the least three of all trials are kept: a busy machine makes tokens slower, never
// faster, and after a disturbance the three differ. If they differ by more than the gain, both loads are measured once more, and again when
// the file is opened next, a few times at most.
//
// Only where weights of a size that matters could be left out: the backend says so (Backend.neurons). Other models load as before.

import type { Backend, NeuronChoice } from "../backends/backend.ts";
import { Batch } from "../graph/batch.ts";
import type { Value } from "../graph/graph.ts";
import type { Plan } from "../graph/plan.ts";
import type { SmallFiles } from "../platform/platform.ts";
import { Remembered } from "./remembered.ts";

/** Less is not worth a second load. */
const LEAST_BYTES: number = 64 << 20;
/** Fewer zeros in a network were never faster (docs/journal/sparse.md). */
const LEAST_ZEROS = 0.5;
/** With more zeros, columns were always faster than all of them. */
const MANY_ZEROS = 0.8;
/** A gain that is more than noise. */
const FASTER = 0.97;
/** Times that differ by less are believed, for any gain. */
const LEAST_SPREAD = 0.01;
/** The number of measurements of a load when a file is opened for the first time, and of an unsure file. */
const MOST_TRIALS = 2;
const MOST_TRIES = 3;
/** The number of times that are kept of a load, and the number that a trial gives: each the fastest of some tokens. */
const KEPT = 3;
const GROUPS = 4;
/** Tokens that are timed: they fit a block of the KV cache. */
const TOKENS = 24;
/** Tokens whose zeros are counted, after the first, which is unlike all others. */
const COUNTED = 4;
/** On a slow machine fewer tokens are timed. */
const MOST_MS = 4000;

const FILE = "sparse.json";

/** The text of the trial's tokens. */
export const TRIAL_TEXT =
  "The keeper of the lighthouse wrote down the weather every evening. It had rained for three days, the sea was grey, and no ship had come into the harbour since Monday.";

/** The part that is left out: nothing, rows before neurons that are zero, or columns behind them as well. */
type Mode = "off" | "rows" | "on";
const modes: readonly Mode[] = ["off", "rows", "on"];

/** ms of a token, the least first; without those that were not tried. */
type Times = Partial<Record<Mode, readonly number[]>>;

/** Measurements of a model. */
interface SparseMeasure {
  readonly mode: Mode;
  /** The share of zeros among all neurons. */
  readonly zeros: number;
  /** Activations of which few are zero: all their neurons are computed. */
  readonly dense: readonly string[];
  readonly networks: number;
  readonly times: Times;
  /** The number of its measurements. */
  readonly tries: number;
}

interface Trial {
  readonly tokenMs: readonly number[];
  /** By activations. */
  readonly zeros: ReadonlyMap<Value, number>;
}

interface ChoiceHost {
  readonly files: SmallFiles;
  now(): number;
  /** Bytes; undefined: not known. */
  availableMemory(): number | undefined;
  /** The name of this machine: a model on another one is measured again. */
  readonly machine: string;
}

export class SparseChoice {
  readonly #host: ChoiceHost;
  readonly #remembered: Remembered<SparseMeasure>;
  /** Notes on the choice, and its key, for --explain. */
  #note: string | undefined;
  #notes: string[] = [];
  #key = "";
  #measure: SparseMeasure | undefined;
  /** The loaded mode, and the number of measurements of each since the file was opened. */
  #mode: Mode = "off";
  #trials: Record<Mode, number> = { off: 0, rows: 0, on: 0 };
  #mostTrials = MOST_TRIALS;
  #isMade = false;
  #mustReload = false;

  constructor(host: ChoiceHost) {
    this.#host = host;
    this.#remembered = new Remembered(host.files, FILE, isMeasure);
  }

  /** The part that is left out in the load that begins now. */
  get wanted(): false | NeuronChoice {
    if (this.#mode === "off") return false;
    return { columns: this.#mode === "on", dense: this.#measure?.dense ?? [] };
  }

  /** The share of zeros among all neurons, if it is so large that every network leaves them out; undefined: it is not. */
  get zeros(): number | undefined {
    const isWhole = this.#isMade && this.#mode !== "off" && this.#measure?.dense.length === 0;
    return isWhole ? this.#measure!.zeros : undefined;
  }

  /** Whether the mode that was just loaded is not the chosen one, or not the last to be measured. */
  get mustReload(): boolean {
    return this.#mustReload;
  }

  /** Before each load, whose notes these are: one is added when the choice is made. */
  async begin(weights: string, threads: number, notes: string[]): Promise<void> {
    this.#mustReload = false;
    this.#notes = notes;
    if (this.#note !== undefined) notes.push(this.#note);
    if (this.#isMade || this.#measure) return;
    this.#key = `${this.#host.machine}, ${threads} threads, ${weights}`;
    const known = await this.#remembered.find(this.#key);
    if (!known) return;
    this.#mode = known.mode;
    this.#measure = known;
    this.#mostTrials = 1;
    if (isSure(known) || known.tries >= MOST_TRIES) this.#made("remembered");
  }

  /** After each load: measures it if needed. */
  async measure(
    backend: Backend,
    plan: Plan,
    tokensOf: (text: string) => readonly number[],
    check: () => void | Promise<void>,
  ): Promise<void> {
    if (this.#isMade) return;
    const neurons = backend.neurons?.();
    const isPlain = plan.graph.states.every(({ kind }) => kind === "kv");
    if (!neurons || neurons.bytes < LEAST_BYTES || !isPlain || !plan.graph.outputs.logits) {
      this.#isMade = true;
      return;
    }
    const tokens = tokensOf(TRIAL_TEXT).slice(0, TOKENS);
    const trial = await tryTokens(backend, plan, tokens, neurons.values, this.#host.now, check);
    const measure = this.#measure ?? counted(trial);
    this.#trials[this.#mode]++;
    this.#measure = { ...measure, times: withTrial(measure.times, this.#mode, trial.tokenMs) };
    const { dense, networks } = measure;
    const bytes = neurons.bytes * (1 - dense.length / networks);
    if (bytes < LEAST_BYTES) await this.#decide();
    else if (!this.#tryNext(backend, neurons.hasBoth)) await this.#decide();
  }

  /** Chooses the next load to measure; false: none, or there is no room for it. */
  #tryNext(backend: Backend, hasBoth: boolean): boolean {
    const measure = this.#measure!;
    const next = nextMode(measure, this.#trials, this.#mostTrials, hasBoth);
    if (next === undefined) return false;
    this.#isMade = !this.#isCapacity(backend);
    this.#mustReload = !this.#isMade;
    if (this.#mustReload) this.#mode = next;
    else {
      const zeros = `${percent(measure.zeros)} of neurons are zero`;
      this.#note = `sparse: auto, ${nameOf(this.#mode)}: ${zeros}, but memory is too short to try (--sparse on)`;
      this.#notes.push(this.#note);
    }
    return true;
  }

  /** The system may not have taken back a load's memory when the next begins: both must fit. */
  #isCapacity(backend: Backend): boolean {
    const { weightBytes, kvBytes, workBytes } = backend.memory();
    const available = this.#host.availableMemory();
    return available === undefined || available > weightBytes + kvBytes + workBytes;
  }

  async #decide(): Promise<void> {
    const { tries, ...measure } = this.#measure!;
    const mode = bestMode(measure.times);
    this.#measure = { ...measure, mode, tries: tries + 1 };
    this.#mustReload = mode !== this.#mode;
    this.#mode = mode;
    this.#made("measured");
    await this.#remembered.store(this.#key, this.#measure);
  }

  #made(how: "measured" | "remembered"): void {
    this.#isMade = true;
    this.#note = noteOf(this.#measure!, how);
    this.#notes.push(this.#note);
  }
}

/** The zeros that a first trial counted. */
function counted({ zeros }: Trial): SparseMeasure {
  const all = [...zeros.values()];
  const mean = all.reduce((sum, each) => sum + each, 0) / Math.max(1, all.length);
  const dense = [...zeros].flatMap(([{ name }, each]) => (each < LEAST_ZEROS ? [name] : []));
  return { mode: "off", zeros: mean, dense, networks: zeros.size, times: {}, tries: 0 };
}

function withTrial(times: Times, mode: Mode, tokenMs: readonly number[]): Times {
  const all = [...(times[mode] ?? []), ...tokenMs].toSorted((a, b) => a - b);
  return { ...times, [mode]: all.slice(0, KEPT) };
}

/** The least time of each that was tried; infinite: it was not. */
function leastMs(times: Times, mode: Mode): number {
  return times[mode]?.[0] ?? Number.POSITIVE_INFINITY;
}

/** The faster of leaving out rows, and columns as well. */
function bestSparse(times: Times): Mode {
  return leastMs(times, "rows") < leastMs(times, "on") ? "rows" : "on";
}

function bestMode(times: Times): Mode {
  const best = bestSparse(times);
  return leastMs(times, best) < FASTER * leastMs(times, "off") ? best : "off";
}

/** The distance between the times of a load, as a fraction of the least. */
function spreadOf(times: Times): number {
  const spreads = [times.off, times[bestSparse(times)]].map(
    (kept = []) => kept.at(-1)! / kept[0]! - 1,
  );
  return Math.max(...spreads);
}

/** Whether times differ by less than the decision needs. */
function isSure({ times }: SparseMeasure): boolean {
  const sparse = leastMs(times, bestSparse(times));
  if (sparse === Number.POSITIVE_INFINITY) return true; // too few zeros to try it
  const fromBound = Math.abs(sparse / leastMs(times, "off") - FASTER);
  return spreadOf(times) <= Math.max(LEAST_SPREAD, fromBound);
}

/** The next mode to measure; undefined: enough is known. */
function nextMode(
  measure: SparseMeasure,
  trials: Readonly<Record<Mode, number>>,
  most: number,
  hasBoth: boolean,
): Mode | undefined {
  const { times, zeros } = measure;
  if (!times.on) return "on";
  const isClear = zeros >= MANY_ZEROS && bestMode(times) === "on";
  if (hasBoth && !times.rows && !isClear) return "rows";
  if (isSure(measure)) return undefined;
  const again = (["off", bestSparse(times)] as const).filter((mode) => trials[mode] < most);
  return again.toSorted((a, b) => trials[a] - trials[b])[0];
}

function isMeasure(entry: unknown): entry is SparseMeasure {
  const { mode, zeros, dense, networks, times, tries } = (entry ?? {}) as Partial<SparseMeasure>;
  const isFraction = typeof zeros === "number" && zeros >= 0 && zeros <= 1;
  const isCount = (value: unknown) => Number.isInteger(value) && (value as number) > 0;
  const areTimes = (list: unknown) =>
    list === undefined ||
    (Array.isArray(list) &&
      list.length > 0 &&
      list.every((ms) => typeof ms === "number" && ms > 0));
  const areNames = Array.isArray(dense) && dense.every((name) => typeof name === "string");
  const isTimed = modes.every((each) => areTimes(times?.[each])) && times?.off !== undefined;
  const isMode = modes.includes(mode as Mode);
  return isMode && isFraction && areNames && isCount(networks) && isCount(tries) && isTimed;
}

function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(0)} %`;
}

function nameOf(mode: Mode): string {
  return mode === "rows" ? "on, rows only" : mode;
}

function noteOf(measure: SparseMeasure, how: string): string {
  const { mode, zeros, dense, networks, times, tries } = measure;
  const facts = [`${percent(zeros)} of neurons are zero`];
  const ms = (of: Mode) => `${leastMs(times, of).toFixed(1)} ms`;
  if (times.on) facts.push(`${ms("on")} a token without them`);
  if (times.rows) facts.push(`${ms("rows")} without their rows only`);
  facts.push(times.on ? `${ms("off")} with all` : "too few to leave them out");
  if (times.on && dense.length > 0) facts.push(`all in ${dense.length} of ${networks} networks`);
  if (!isSure(measure)) {
    const again = tries < MOST_TRIES ? ", measured again at the next load" : "";
    facts.push(`unsure: times vary by ${percent(spreadOf(times))}${again}`);
  }
  return `sparse: auto, ${nameOf(mode)} (${how}): ${facts.join(", ")}`;
}

/** Computes tokens one by one: the time of the fastest of each group, and the zeros among these values. */
async function tryTokens(
  backend: Backend,
  plan: Plan,
  tokens: readonly number[],
  values: readonly Value[],
  now: () => number,
  check: () => void | Promise<void>,
): Promise<Trial> {
  const batch = new Batch(plan.limits);
  const table = { blocks: new Int32Array(1) }; // nothing else is in the cache yet
  const times: number[] = [];
  const zeros = new Map(values.map((value) => [value, 0]));
  const tap = (value: Value, data: Float32Array) => {
    const before = zeros.get(value);
    if (before === undefined) return;
    let found = 0;
    for (const each of data) if (each === 0) found++;
    zeros.set(value, before + found / data.length / COUNTED);
  };
  const begun = now();
  for (const [position, token] of tokens.entries()) {
    if (position > COUNTED && now() - begun > MOST_MS) break;
    await check();
    batch.clear();
    batch.add(token, position, table, true);
    const started = now();
    await backend.run(batch, { phase: "generation" });
    times.push(now() - started);
    // The same token again: its keys and values are the same.
    if (position > 0 && position <= COUNTED) await backend.run(batch, { tap });
  }
  backend.resetProfile?.();
  // Tokens are dealt to the groups alternately: a disturbance of some tokens does not take up a group.
  const least = Array.from({ length: Math.min(GROUPS, times.length) }, (_, group) =>
    Math.min(...times.filter((_ms, i) => i % GROUPS === group)),
  );
  return { tokenMs: least, zeros };
}
