// The background tune, which `lantern run` starts when it ends: a process of its own measures the types of the model that have no
// times yet, while the machine is idle. One at a time (a lock file with its owner); it checks the load before it starts and while it
// runs; each matrix is stored when it is measured; and it ends when other programs use the machine, when a Lantern command opens a
// model, on SIGTERM, and after two minutes. `lantern tune status` shows its result.

import { pause } from "../../src/base/backoff.ts";
import { isDisturbed, othersCores } from "../../src/base/machine-load.ts";
import { runningServers } from "../../src/catalog/servers.ts";
import {
  AbortedError,
  isTunePostponed,
  type ModelInfo,
  postponeTune,
  rememberTune,
  type TuneFile,
  type TuneOptions,
  tune,
  untunedTypes,
} from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { isTuneOff, type TuneFlag } from "./first-tune.ts";
import type { ModelFlags } from "./flags.ts";
import { locateModel } from "./load-model.ts";
import { plural } from "./text.ts";
import { placeInCache, tuneLock } from "./tune-lock.ts";

const STATE = "tune-background.json";

/** A quick tune of a type takes some ten seconds. */
export const mostBackgroundMs: number = 120_000;
/** The process is killed after this time: its main thread hangs. */
export const killAfterMs: number = 150_000;
/** How long it watches a machine before it begins, and how long other programs must use it to end the tune. */
const lookMs = 1000;
/** The number of looks before it gives up, and the pause between them. */
const looks = 3;
const againMs = 5000;

/** The state of the last background tune. */
export interface BackgroundTune {
  /** ended: it has measured all matrices that it wanted. */
  readonly state: "looking" | "measuring" | "ended" | "stopped" | "failed";
  /** Why it stopped or failed. */
  readonly why?: string;
  readonly processId: number;
  readonly model: string;
  readonly startedAt: string;
  readonly endedAt?: string;
  /** Matrices whose times were stored. */
  readonly measured: readonly string[];
  /** The device that the times are for; absent: nothing was measured. */
  readonly place?: string;
}

/** The functions that it calls; tests replace them. */
export interface BackgroundTools {
  tune(options: TuneOptions): Promise<unknown>;
  untunedTypes: typeof untunedTypes;
  rememberTune(file: TuneFile): Promise<string>;
  isPostponed(): Promise<boolean>;
  postpone(): Promise<void>;
  pause(ms: number, signal: AbortSignal): Promise<void>;
  date(): Date;
}

const realTools: BackgroundTools = {
  tune,
  untunedTypes,
  rememberTune,
  isPostponed: () => isTunePostponed(),
  postpone: () => postponeTune(),
  pause,
  date: () => new Date(),
};

/**
 * Starts the tune when a person watches `run`: scripts and CI must leave no process behind. The end of the command does not look
 * for untuned types: the engine knows that some type was not tuned, and the process finds it.
 */
export async function tuneAfterwards(
  name: string,
  flags: TuneFlag & Pick<ModelFlags, "native" | "level">,
  info: Pick<ModelInfo, "backend">,
  context: CliContext,
): Promise<void> {
  const { terminal, downloads } = context;
  const isScript = !terminal.errIsTerminal || isCi(terminal.env("CI"));
  if (!terminal.startInBackground || isScript || isTuneOff(flags, context)) return;
  const { placement, isTuned } = info.backend;
  const isOnGpu = placement.length > 0 && placement.every(({ isDevice }) => isDevice);
  if (isTuned || isOnGpu || flags.native === false || flags.level !== undefined) return;
  try {
    const model = await locateModel(name, context);
    if (/^https?:/.test(model) || (await isTunePostponed())) return;
    const held = flags.weights ? ["--weights", flags.weights] : [];
    await terminal.startInBackground(
      ["tune", "background", "-m", downloads.absolute(model), ...held],
      { LANTERN_CACHE: downloads.absolute(downloads.cacheFolder) },
    );
  } catch (error) {
    context.log.debug(`no tune in the background: ${String(error)}\n`);
  }
}

function isCi(ci: string | undefined): boolean {
  return ci !== undefined && !["", "0", "false"].includes(ci);
}

function heldBy({ weights }: TuneFlag): Pick<TuneOptions, "weights"> {
  return weights ? { weights } : {};
}

/** The tune itself, in the process that tuneAfterwards() started. */
export async function tuneInBackground(
  model: string,
  flags: TuneFlag,
  context: CliContext,
  signal: AbortSignal,
  tools: BackgroundTools = realTools,
): Promise<void> {
  const { downloads } = context;
  if ((await runningServers(downloads)).length > 0) return; // one tunes by itself, when it is idle
  if ((await tools.untunedTypes(model, heldBy(flags))).length === 0) return;
  if (await tools.isPostponed()) return;
  const lock = await downloads.lock(tuneLock(context));
  if (!("release" in lock)) return; // another tune is running
  const run = new BackgroundRun(model, flags, context, tools, signal);
  try {
    await run.run();
  } finally {
    if (await run.isOurs()) await lock.release();
  }
}

class BackgroundRun {
  readonly #context: CliContext;
  readonly #flags: TuneFlag;
  readonly #tools: BackgroundTools;
  readonly #ending = new AbortController();
  readonly #signal: AbortSignal;
  readonly #startedMs: number;
  #state: BackgroundTune;
  #why: string | undefined;
  /** The text of our lock file. */
  #lock: string | undefined;
  #before: ReturnType<CliContext["terminal"]["load"]>;
  /** Whether other programs have used the machine since the last matrix was stored. */
  #isDisturbed = false;

  constructor(
    model: string,
    flags: TuneFlag,
    context: CliContext,
    tools: BackgroundTools,
    signal: AbortSignal,
  ) {
    this.#context = context;
    this.#flags = flags;
    this.#tools = tools;
    this.#signal = AbortSignal.any([signal, this.#ending.signal]);
    signal.addEventListener("abort", () => this.#end("it was asked to end"), { once: true });
    this.#startedMs = context.terminal.now();
    this.#before = context.terminal.load();
    this.#state = {
      state: "looking",
      processId: context.downloads.processId,
      model,
      startedAt: tools.date().toISOString(),
      measured: [],
    };
  }

  async run(): Promise<void> {
    const { downloads } = this.#context;
    this.#lock = await downloads.readText(tuneLock(this.#context));
    await this.#say({});
    try {
      if (await this.#isIdle()) await this.#measure();
      if (this.#why === undefined) await this.#say({ state: "ended" }, true);
      else await this.#stopped();
    } catch (error) {
      if (error instanceof AbortedError || this.#why !== undefined) return await this.#stopped();
      await this.#tools.postpone(); // it would fail again after the next command
      await this.#say({ state: "failed", why: String(error) }, true);
    }
  }

  /** Whether the lock is still there and ours: a Lantern command that opens a model takes it away. */
  async isOurs(): Promise<boolean> {
    const text = await this.#context.downloads.readText(tuneLock(this.#context));
    return text !== undefined && text === this.#lock;
  }

  async #isIdle(): Promise<boolean> {
    for (let look = 1; ; look++) {
      this.#before = this.#context.terminal.load();
      await this.#tools.pause(lookMs, this.#signal);
      await this.#look(true);
      if (this.#why !== undefined) return false;
      if (!this.#isDisturbed) return true;
      if (look === looks) break;
      this.#isDisturbed = false;
      await this.#tools.pause(againMs, this.#signal);
    }
    this.#end("other programs use the machine");
    await this.#tools.postpone();
    return false;
  }

  async #measure(): Promise<void> {
    const { model } = this.#state;
    await this.#say({ state: "measuring" });
    await this.#tools.tune({
      model,
      ...heldBy(this.#flags),
      mode: "quick",
      missing: true,
      remember: false,
      signal: this.#signal,
      onProgress: () => void this.#look(false),
      onMatrix: async (file) => {
        await this.#look(true);
        if (this.#isDisturbed) {
          this.#end("other programs used the machine");
          await this.#tools.postpone();
        }
        if (this.#signal.aborted) throw new AbortedError("tuning");
        const place = await this.#tools.rememberTune(file);
        const measured = file.groups.map(
          ({ dtype, n, k, threads }) => `${dtype} ${n} x ${k}, ${plural(threads, "thread")}`,
        );
        await this.#say({ measured, place });
      },
    });
  }

  /** Checks whether to continue; at most once a second, unless `now`. */
  async #look(now: boolean): Promise<void> {
    const { terminal } = this.#context;
    const load = terminal.load();
    if (!now && load.atMs - this.#before.atMs < lookMs) return;
    const others = othersCores(this.#before, load);
    this.#before = load;
    if (isDisturbed(others, terminal.machine().cores)) this.#isDisturbed = true;
    if (this.#isDisturbed && this.#state.state === "measuring" && !now) {
      this.#end(`other programs used ${others.toFixed(1)} cores`);
      await this.#tools.postpone();
    }
    if (terminal.now() - this.#startedMs > mostBackgroundMs) this.#end("its two minutes were over");
    if (!(await this.isOurs())) this.#end("another Lantern command opened a model");
  }

  /** The first reason counts. */
  #end(why: string): void {
    this.#why ??= why;
    this.#ending.abort();
  }

  async #stopped(): Promise<void> {
    await this.#say({ state: "stopped", why: this.#why ?? "it was asked to end" }, true);
  }

  async #say(news: Partial<BackgroundTune>, isLast = false): Promise<void> {
    const endedAt = isLast ? { endedAt: this.#tools.date().toISOString() } : {};
    this.#state = { ...this.#state, ...news, ...endedAt };
    const text = `${JSON.stringify(this.#state)}\n`;
    await this.#context.downloads
      .writeText(placeInCache(STATE, this.#context), text)
      .catch(() => {});
  }
}

/** The state of the last background tune; undefined: there was none, or it cannot be read. */
export async function lastBackgroundTune({
  downloads,
}: CliContext): Promise<BackgroundTune | undefined> {
  try {
    const found = JSON.parse(
      (await downloads.readText(placeInCache(STATE, { downloads }))) ?? "",
    ) as Partial<BackgroundTune>;
    const { state, processId, model, startedAt, measured } = found;
    const isWhole =
      [state, model, startedAt].every((text) => typeof text === "string") &&
      Number.isSafeInteger(processId) &&
      Array.isArray(measured) &&
      measured.every((text) => typeof text === "string");
    if (!isWhole) return undefined;
    const isOver = found.endedAt !== undefined || downloads.isRunning(processId!);
    const killed = { state: "stopped", why: "it was killed" } as const;
    return { ...(found as BackgroundTune), ...(!isOver && killed) };
  } catch {
    return undefined;
  }
}

/** `until`: no other try before this time. */
export function backgroundTuneText(
  last: BackgroundTune | undefined,
  until: Date | undefined,
): string {
  const next = until
    ? [
        `The machine was busy at the last try: the next one is after ${minuteText(until.toISOString())}.`,
      ]
    : [];
  if (!last) return ["Nothing was tuned in the background yet.", ...next].join("\n");
  const { state, why, processId, model, startedAt, endedAt, measured, place } = last;
  const doing = {
    looking: `looks whether the machine is idle (process ${processId})`,
    measuring: `is measuring (process ${processId})`,
    ended: "has measured everything that it wanted",
    stopped: `stopped: ${why}`,
    failed: `failed: ${why}`,
  };
  const when = `began ${minuteText(startedAt)}${endedAt ? `, ended ${minuteText(endedAt)}` : ""}`;
  const stored =
    measured.length === 0
      ? ["Nothing was stored."]
      : [`Stored in ${place}:`, ...measured.map((one) => `  ${one}`)];
  return [
    `The last tune in the background ${doing[state]}`,
    `  ${model}, ${when}`,
    ...stored,
    ...next,
  ].join("\n");
}

function minuteText(iso: string): string {
  return `${iso.slice(0, 19).replace("T", " ")} UTC`;
}
