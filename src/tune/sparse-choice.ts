// Whether neurons that are zero are left out (docs/sparse.md) where nobody said so: measured once for each file on each machine, and
// remembered. A first load has all neurons. If most are zero there, the model is loaded again without those, and the faster of the two
// stays. Texts are the same either way, so that a measurement which was disturbed costs time and nothing else.
//
// Only where weights of a size that matters could be left out: the backend says so (Backend.neurons). Other models load as before.

import type { Backend } from "../backends/backend.ts";
import { Batch } from "../graph/batch.ts";
import type { Value } from "../graph/graph.ts";
import type { Plan } from "../graph/plan.ts";
import type { SmallFiles } from "../platform/platform.ts";

/** Less is not worth a second load. */
const LEAST_BYTES: number = 64 << 20;
/** Fewer zeros were never faster (docs/sparse.md). */
const LEAST_ZEROS = 0.5;
/** A gain that is more than noise. */
const FASTER = 0.97;
/** Tokens that are timed: they fit a block of the KV cache. */
const TOKENS = 24;
/** Tokens whose zeros are counted, after the first, which is unlike all others. */
const COUNTED = 4;
/** On a slow machine fewer tokens are timed. */
const MOST_MS = 4000;

const FILE = "sparse.json";
const MOST_ENTRIES = 50;

/** What the tokens are made of. */
const TRIAL_TEXT =
  "The keeper of the lighthouse wrote down the weather every evening. It had rained for three days, the sea was grey, and no ship had come into the harbour since Monday.";

/** What was measured of a model. */
interface SparseMeasure {
  readonly isOn: boolean;
  /** Of all neurons, as a fraction. */
  readonly zeros: number;
  readonly denseMs: number;
  /** Default: it was not tried. */
  readonly sparseMs?: number | undefined;
}

interface Trial {
  readonly tokenMs: number;
  readonly zeros: number;
}

interface ChoiceHost {
  readonly files: SmallFiles;
  now(): number;
  /** Bytes; undefined: not known. */
  availableMemory(): number | undefined;
  /** Of this machine: another one is measured again. */
  readonly machine: string;
}

export class SparseChoice {
  readonly #host: ChoiceHost;
  /** What is said of the choice, and where, for --explain. */
  #note: string | undefined;
  #notes: string[] = [];
  #key = "";
  #dense: Trial | undefined;
  #isOn = false;
  #isMade = false;
  #mustReload = false;

  constructor(host: ChoiceHost) {
    this.#host = host;
  }

  /** Whether neurons are left out in the load that begins now. */
  get isOn(): boolean {
    return this.#isOn;
  }

  /** Whether what was just loaded is not what was chosen, or not the last to be measured. */
  get mustReload(): boolean {
    return this.#mustReload;
  }

  /** Before each load, whose notes these are: one is added when the choice is made. */
  async begin(weights: string, threads: number, notes: string[]): Promise<void> {
    this.#mustReload = false;
    this.#notes = notes;
    if (this.#note !== undefined) notes.push(this.#note);
    if (this.#isMade || this.#dense) return;
    this.#key = `${this.#host.machine}, ${threads} threads, ${weights}`;
    const known = (await this.#read()).get(this.#key);
    if (known) this.#made(known, "remembered");
  }

  /** After each load: measures it where that is needed. */
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
    if (!this.#dense) {
      this.#dense = trial;
      if (trial.zeros >= LEAST_ZEROS) this.#tryIt(backend, trial.zeros);
      else await this.#decide({ isOn: false, zeros: trial.zeros, denseMs: trial.tokenMs });
      return;
    }
    const { zeros, tokenMs: denseMs } = this.#dense;
    const isOn = trial.tokenMs < FASTER * denseMs;
    this.#mustReload = !isOn;
    await this.#decide({ isOn, zeros, denseMs, sparseMs: trial.tokenMs });
  }

  /** The system may not have taken back the first load's memory when the second begins: both must fit. */
  #tryIt(backend: Backend, zeros: number): void {
    const { weightBytes, kvBytes, workBytes } = backend.memory();
    const available = this.#host.availableMemory();
    const isRoom = available === undefined || available > weightBytes + kvBytes + workBytes;
    this.#isOn = isRoom;
    this.#mustReload = isRoom;
    this.#isMade = !isRoom;
    if (isRoom) return;
    this.#note = `sparse: auto, off: ${percent(zeros)} of neurons are zero, but memory is too short to try (--sparse on)`;
    this.#notes.push(this.#note);
  }

  async #decide(measure: SparseMeasure): Promise<void> {
    this.#made(measure, "measured");
    const entries = [...(await this.#read()), [this.#key, measure] as const].slice(-MOST_ENTRIES);
    const text = `${JSON.stringify(Object.fromEntries(entries))}\n`;
    // Where nothing can be stored, the next load measures again.
    await this.#host.files.write(FILE, text).catch(() => {});
  }

  #made(measure: SparseMeasure, how: "measured" | "remembered"): void {
    this.#isMade = true;
    this.#isOn = measure.isOn;
    this.#note = noteOf(measure, how);
    this.#notes.push(this.#note);
  }

  async #read(): Promise<Map<string, SparseMeasure>> {
    try {
      const found: unknown = JSON.parse((await this.#host.files.read(FILE)) ?? "{}");
      return new Map(Object.entries(found as object).filter(([, entry]) => isMeasure(entry)));
    } catch {
      return new Map(); // it cannot be read: measured again, and replaced
    }
  }
}

function isMeasure(entry: unknown): entry is SparseMeasure {
  const { isOn, zeros, denseMs, sparseMs } = (entry ?? {}) as Partial<SparseMeasure>;
  const isTime = (ms: unknown) => typeof ms === "number" && ms > 0;
  const isFraction = typeof zeros === "number" && zeros >= 0 && zeros <= 1;
  const isTried = sparseMs === undefined || isTime(sparseMs);
  return typeof isOn === "boolean" && isFraction && isTime(denseMs) && isTried;
}

function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(0)} %`;
}

function noteOf({ isOn, zeros, denseMs, sparseMs }: SparseMeasure, how: string): string {
  const counted = `${percent(zeros)} of neurons are zero`;
  const times =
    sparseMs === undefined
      ? "too few to leave them out"
      : `${sparseMs.toFixed(1)} ms a token without them, ${denseMs.toFixed(1)} ms with all`;
  return `sparse: auto, ${isOn ? "on" : "off"} (${how}): ${counted}, ${times}`;
}

/** Computes tokens one by one: the time of the fastest quarter, and the zeros among these values. */
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
  let [all, zeros] = [0, 0];
  const wanted = new Set(values);
  const tap = (value: Value, data: Float32Array) => {
    if (!wanted.has(value)) return;
    all += data.length;
    for (const each of data) if (each === 0) zeros++;
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
  times.sort((a, b) => a - b);
  return { tokenMs: times[times.length >> 2] ?? 0, zeros: all === 0 ? 0 : zeros / all };
}
