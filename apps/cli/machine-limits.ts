// Speeds compared with this machine's limits, on the command line: when the machine is measured, and how a limit is printed. The text comes
// first: without a stored measurement, `run` and `chat` measure for half a second after it has ended, once, the GPU as well; `serve` measures
// before it answers, because answers may follow each other without a pause. `chat` and `serve` replace that by a better measurement while they
// are idle.

import { type Command, Option } from "commander";
import { isDisturbed, othersCores, quietCores } from "../../src/base/machine-load.ts";
import {
  AbortedError,
  type GpuMeasurement,
  type GpuMeasureOptions,
  gpuMeasurement,
  LanternError,
  type MachineMeasurement,
  type MachineOptions,
  type ModelInfo,
  machineLimits,
  machineMeasurement,
  measuredLimits,
  type OthersLoad,
  rememberedMachine,
  rememberSpeed,
  type SpeedLimit,
  type SpeedLimits,
  type Timings,
} from "../../src/index.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import type { CliContext } from "./command.ts";
import type { IdleChore } from "./idle-work.ts";
import { barText } from "./progress.ts";

export interface LimitFlags {
  /** false with --no-limit. */
  limit: boolean;
}

const barWidth = 20;
const redrawMs = 100;
/** In idle times, which are short. */
const idleSeconds = 2.5;
/** A speed this far above its limit is not noise: the limit was measured on a busy machine. */
const noise = 1.05;

export function limitOption(): Option {
  return new Option(
    "--no-limit",
    "do not compare speeds with this machine's limits (also: LANTERN_NO_LIMIT=1)",
  );
}

export function addLimitFlag(command: Command): Command {
  return command.addOption(limitOption());
}

/** Whether limits are requested at all. */
export function wantsLimits({ limit }: LimitFlags, { terminal }: CliContext): boolean {
  return limit && !terminal.env("LANTERN_NO_LIMIT");
}

/**
 * The timings with their limits. A processor without a measurement is measured now, for half a second, unless the user
 * has stopped the text and wants to leave; a failure is not an error.
 */
export async function timingsWithLimits(
  timings: Timings,
  info: ModelInfo,
  flags: LimitFlags,
  context: CliContext,
  isStopped: boolean,
): Promise<Timings> {
  const { limits: _, ...bare } = timings;
  if (!wantsLimits(flags, context)) return bare;
  if (isStopped) return timings;
  const measured = await measuredTimings(timings, info, context);
  await rememberSpeed(info, measured);
  return measured;
}

async function measuredTimings(
  timings: Timings,
  info: ModelInfo,
  context: CliContext,
): Promise<Timings> {
  if (timings.limits) return timings;
  const say = noteTo(context);
  try {
    if (hasGpu(info)) return await quickGpuTimings(timings, info);
    const machine = await machineMeasurement({ quick: true, onNote: say });
    return { ...timings, limits: machineLimits(timings, info, machine) };
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    say(notMeasured(error));
    return timings;
  }
}

/** Without the limits, if the model's GPU is not the one that can be measured: a hint names the missing part. */
async function quickGpuTimings(timings: Timings, info: ModelInfo): Promise<Timings> {
  const { placement } = info.backend;
  const adapters = placement.flatMap(({ isDevice, adapter }) => (isDevice ? [adapter] : []));
  const measured = await gpuMeasurement({ quick: true }).catch((error: unknown) => {
    if (error instanceof LanternError) return undefined; // a software adapter takes seconds
    throw error;
  });
  if (!measured || adapters.some((adapter) => adapter !== measured.adapter)) return timings;
  if (placement.some(({ isDevice }) => !isDevice)) await machineMeasurement({ quick: true });
  const limits = await measuredLimits(timings, info);
  return limits ? { ...timings, limits } : timings;
}

function notMeasured({ message }: LanternError): string {
  return `this machine could not be measured: ${message}`;
}

/** The stored measurement or a new one; undefined if it was skipped or failed. Prints notes. */
export async function measureOnce(
  context: CliContext,
  options: Pick<MachineOptions, "seconds">,
): Promise<MachineMeasurement | undefined> {
  const say = noteTo(context);
  const remembered = await rememberedMachine({ onNote: say });
  if (remembered) return remembered;
  try {
    // anew: the stored measurement was just checked and reported.
    return await measureWatched(context, { ...options, anew: true, onNote: say });
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    const skipped = error instanceof AbortedError;
    say(
      skipped
        ? 'skipped; "lantern machine" measures it later, --no-limit turns this off'
        : notMeasured(error),
    );
    return undefined;
  }
}

/** Before the first answer of a server: half a second, if the processor has no measurement. A failure is not an error. */
export async function measureBefore(context: CliContext): Promise<void> {
  if (!wantsLimits({ limit: true }, context)) return;
  const say = noteTo(context);
  try {
    await machineMeasurement({ quick: true, onNote: say });
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    say(notMeasured(error));
  }
}

/** The measurement as a chore for idle times, if there is none yet, or only a quick one. */
export function idleMeasurement(
  flags: LimitFlags,
  context: CliContext,
  say?: (note: string) => void,
): IdleChore[] {
  const { terminal } = context;
  if (!wantsLimits(flags, context)) return [];
  return [
    async (signal) => {
      if (await rememberedMachine()) return;
      const before = terminal.load();
      await machineMeasurement({ seconds: idleSeconds, signal });
      sayIfDisturbed(terminal, before, say);
    },
  ];
}

function sayIfDisturbed(
  terminal: Terminal,
  before: ReturnType<Terminal["load"]>,
  say: ((note: string) => void) | undefined,
): void {
  const others = othersCores(before, terminal.load());
  if (others <= quietCores) return;
  say?.(
    `other programs used ${others.toFixed(1)} cores while this machine was measured, so it may be faster; "lantern machine --measure" measures it again`,
  );
}

/** Prints a note on a line of its own. */
export function noteTo(context: CliContext): (note: string) => void {
  return (note) => context.terminal.err(`${context.color().err.dim(`(${note})`)}\n`);
}

/** Measures with a progress bar; Ctrl-C rejects with an AbortedError. */
export async function measureWatched(
  context: CliContext,
  options: MachineOptions,
): Promise<MachineMeasurement> {
  const { terminal } = context;
  const before = terminal.load();
  const measured = await measureDrawn(terminal, "this machine", options, machineMeasurement);
  sayIfDisturbed(terminal, before, options.onNote);
  return measured;
}

/** The same for the GPU. */
export async function measureGpuWatched(
  { terminal }: CliContext,
  options: GpuMeasureOptions,
): Promise<GpuMeasurement> {
  return await measureDrawn(terminal, "the GPU", options, gpuMeasurement);
}

async function measureDrawn<Measured>(
  terminal: Terminal,
  what: string,
  options: GpuMeasureOptions,
  measure: (options: GpuMeasureOptions) => Promise<Measured>,
): Promise<Measured> {
  const controller = new AbortController();
  const stopListening = terminal.onInterrupt(() => controller.abort());
  let drawnMs = Number.NEGATIVE_INFINITY;
  const draw = (share: number): void => {
    if (terminal.now() - drawnMs < redrawMs) return;
    drawnMs = terminal.now();
    const line = `measuring ${what}, once  ${barText(share, barWidth)}  Ctrl-C skips`;
    terminal.err(`\r${line.slice(0, terminal.columns - 1)}\x1b[K`);
  };
  const signals = [controller.signal, ...(options.signal ? [options.signal] : [])];
  const signal = AbortSignal.any(signals);
  try {
    if (terminal.errIsTerminal) draw(0);
    const onProgress = terminal.errIsTerminal ? draw : undefined;
    return await measure({ ...options, signal, onProgress });
  } finally {
    stopListening();
    if (terminal.errIsTerminal) terminal.err("\r\x1b[K");
  }
}

function hasGpu({ backend }: ModelInfo): boolean {
  return backend.placement.some(({ isDevice }) => isDevice);
}

/** A hint about missing limits; undefined: none. */
export function limitHint(
  timings: Timings,
  info: ModelInfo,
  flags: LimitFlags,
  context: CliContext,
): string | undefined {
  if (!wantsLimits(flags, context)) return undefined;
  const measure = hasGpu(info) ? "lantern devices --measure" : "lantern machine --measure";
  if (!timings.limits && hasGpu(info)) return gpuHint(info);
  if (!timings.limits) return undefined; // the reason was printed
  const { prompt, generation, quick } = timings.limits;
  const best = Math.max(prompt?.fraction ?? 0, generation?.fraction ?? 0);
  if (best > noise && info.disk) {
    return "(above the limit: the disk was busy when it was measured, as the model was opened)";
  }
  if (quick) {
    return `(measured quickly, so ${best > noise ? "too low a limit is" : "the limit is not exact"}; "${measure}" measures it well)`;
  }
  return best > noise
    ? `(above the limit: the machine was busy when it was measured; "${measure}" measures it again)`
    : undefined;
}

function gpuHint({ backend }: ModelInfo): string {
  const isSplit = backend.placement.some(({ isDevice }) => !isDevice);
  const commands = ["lantern devices --measure", ...(isSplit ? ["lantern machine"] : [])];
  const asked = commands.map((command) => `"${command}"`).join(" and ");
  return `(the GPU's limits are not known: ${asked} ${isSplit ? "measure what this model runs on" : "measures them"})`;
}

/** "78% of the bandwidth limit (18.1 of 23.2 GB/s)", followed by the load of other programs: ", others used 1.8 of 2 cores". */
export function limitText(
  limit: SpeedLimit,
  { limits, others }: Pick<Timings, "limits" | "others">,
): string {
  const { resource, achievedPerSecond, possiblePerSecond } = limit;
  const rates = `${giga(achievedPerSecond)} of ${giga(possiblePerSecond)} ${units[resource]}`;
  const quick = limits?.quick ? ", measured quickly" : "";
  const used = others && othersText(others);
  return `${percentText(limit.fraction)} of the ${resource} limit (${rates}${quick})${used ? `, ${used}` : ""}`;
}

/** "others used 1.8 of 2 cores"; undefined: the load was too small to change the speed. */
function othersText({ cores, ofCores }: OthersLoad): string | undefined {
  if (!isDisturbed(cores, ofCores)) return undefined;
  return `others used ${cores.toFixed(1)} of ${ofCores} cores`;
}

const units: Readonly<Record<SpeedLimit["resource"], string>> = {
  bandwidth: "GB/s",
  arithmetic: "GOPS",
  disk: "GB/s",
};

export function percentText(fraction: number): string {
  const percent = fraction * 100;
  return `${percent.toFixed(percent < 9.95 ? 1 : 0)}%`;
}

function giga(perSecond: number): string {
  const value = perSecond / 1e9;
  return value.toFixed(value >= 100 ? 0 : value >= 0.095 ? 1 : 2);
}

export interface LimitJson {
  resource: SpeedLimit["resource"];
  tokens_per_second: number;
  fraction: number;
  /** The limit is of a measurement of half a second. */
  quick: boolean;
}

export function limitJson(
  phase: "prompt" | "generation",
  limits: SpeedLimits | undefined,
): LimitJson | null {
  const limit = limits?.[phase];
  if (!limit) return null;
  const { resource, tokensPerSecond, fraction } = limit;
  return { resource, tokens_per_second: tokensPerSecond, fraction, quick: limits.quick ?? false };
}
