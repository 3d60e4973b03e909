// This machine's speed: from a stored measurement, or measured now. A composition root like open.ts: it puts the
// platform, the measurement (measure.ts) and its file together. The measuring kernels are loaded when they are needed;
// a page that only opens models never loads them.
//
// The rule of this file: no generation fails or waits because of it. A file that cannot be read is measured again, one
// that cannot be written is skipped, and both are reported.

import type { LayerPlacement, MachineOptions, ModelInfo } from "../api/api.ts";
import type { Device, MachineMeasurement, SpeedLimits } from "../api/rates.ts";
import { messageOf } from "../base/errors.ts";
import { deviceAt } from "../limits/device.ts";
import { gpuDevice } from "../limits/gpu-device.ts";
import { type PhaseDevice, type PhaseTimes, speedLimits } from "../limits/phase.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";
import { expectedTarget, nativeHere } from "./native.ts";

const MACHINE_FILE = "machine.json";
const defaultSeconds = 7;

/** By file: the last measurement that this thread read or wrote. */
const known = new Map<string, MachineMeasurement>();

/** This machine's measurement: the stored one if it still applies, or a new one, which is stored. */
export async function machineMeasurement(
  options: MachineOptions = {},
): Promise<MachineMeasurement> {
  const {
    anew = false,
    quick = false,
    seconds = defaultSeconds,
    signal,
    onProgress,
    onNote,
  } = options;
  const remembered = anew ? undefined : await rememberedMachine({ quick, onNote });
  if (remembered) return remembered;
  const platform = await currentPlatform();
  const { measureMachine } = await import("./measure.ts");
  const measured = await measureMachine(
    {
      cpu: platform.cpu(),
      cores: platform.cores,
      memoryBytes: platform.totalMemory(),
      availableBytes: platform.availableMemory(),
      cacheBytes: platform.largestCache(),
      startThread: () => platform.startThread("measure"),
      native: await nativeHere(platform),
      now: platform.now,
    },
    { seconds, quick, signal, onProgress },
  );
  const machine = { ...measured, lowering: await explainedLowering(platform, measured.lowering) };
  await remember(platform, machine, onNote);
  return machine;
}

/**
 * The stored measurement; undefined if none applies, or if LANTERN_NO_LIMIT is set. Measures nothing. `quick`: also a
 * quick one, which is good enough to compare a speed with and not to choose anything by.
 */
export async function rememberedMachine({
  quick = false,
  onNote,
}: Pick<MachineOptions, "quick" | "onNote"> = {}): Promise<MachineMeasurement | undefined> {
  const found = await storedMachine(onNote);
  return found?.quick && !quick ? undefined : found;
}

async function storedMachine(
  onNote: MachineOptions["onNote"],
): Promise<MachineMeasurement | undefined> {
  const platform = await currentPlatform();
  if (platform.env("LANTERN_NO_LIMIT")) return undefined;
  const files = platform.smallFiles();
  const place = files.place(MACHINE_FILE);
  const here = known.get(place);
  if (here && !here.quick) return here; // another process may have measured better than quickly
  let refused: string;
  try {
    const text = await files.read(MACHINE_FILE);
    if (text === undefined) return undefined;
    const found = await measurementIn(text, platform);
    if (!("refused" in found)) {
      known.set(place, found);
      return found;
    }
    refused = found.refused;
  } catch (error) {
    refused = `it cannot be read (${messageOf(error)})`;
  }
  onNote?.(`${place} is not used: ${refused}`);
  return undefined;
}

async function measurementIn(
  text: string,
  platform: Platform,
): Promise<MachineMeasurement | { readonly refused: string }> {
  const { machineFromText } = await import("./file.ts");
  const identity = { cpu: platform.cpu(), cores: platform.cores };
  const refusals: string[] = [];
  for (const lowering of await possibleLowerings(platform)) {
    const found = machineFromText(text, { ...identity, lowering });
    if (!("refused" in found)) return found;
    refusals.push(found.refused);
  }
  return { refused: refusals[0]! };
}

/**
 * The lowerings with which a measurement that applies here may have been made: all features of the processor, or fewer
 * if the system refuses some, which is only known after asking it.
 */
async function possibleLowerings(platform: Platform): Promise<readonly string[]> {
  const { loweringText } = await import("./file.ts");
  const target = await expectedTarget(platform);
  const withoutTiles = await expectedTarget(platform, { tiles: false });
  return [
    loweringText(target),
    ...(withoutTiles === target ? [] : [`${loweringText(withoutTiles)}, no AMX tiles`]),
    `${loweringText()}, no machine code`,
  ];
}

async function explainedLowering(platform: Platform, measured: string): Promise<string> {
  const possible = await possibleLowerings(platform);
  const isMeasured = (text: string) => text === measured || text.startsWith(`${measured}, no `);
  return possible.find(isMeasured) ?? measured;
}

async function remember(
  platform: Platform,
  machine: MachineMeasurement,
  onNote: MachineOptions["onNote"],
): Promise<void> {
  const files = platform.smallFiles();
  known.set(files.place(MACHINE_FILE), machine);
  try {
    const { machineToText } = await import("./file.ts");
    await files.write(MACHINE_FILE, machineToText(machine));
  } catch (error) {
    onNote?.(
      `the measurement could not be saved in ${files.place(MACHINE_FILE)} (${messageOf(error)}), so it will be repeated next time`,
    );
  }
}

/** The device that computes a model: the processor, a GPU, or a split between both. */
type Computed = Pick<ModelInfo, "backend" | "weightBytes">;

/**
 * The speed of a generation relative to the machine's limit for this model. Work of a GPU is not compared with the
 * processor: measuredLimits() handles both.
 */
export function machineLimits(
  timings: PhaseTimes,
  { backend, weightBytes }: Computed,
  machine: MachineMeasurement,
): SpeedLimits {
  if (backend.placement.some(({ isDevice }) => isDevice)) {
    return { prompt: undefined, generation: undefined };
  }
  return speedLimits(timings, deviceAt(machine, backend.threads, weightBytes));
}

/** The same for any backend; undefined if a part of it was never measured. Measures nothing. */
export async function measuredLimits(
  timings: PhaseTimes,
  info: Computed,
  machine?: MachineMeasurement,
): Promise<SpeedLimits | undefined> {
  const devices = await measuredDevices(info, machine);
  return devices && speedLimits(timings, ...devices);
}

/** A device for each part of the model, in order; undefined if one of them was never measured. */
export async function measuredDevices(
  { backend, weightBytes }: Computed,
  machine?: MachineMeasurement,
): Promise<readonly PhaseDevice[] | undefined> {
  const { placement, threads } = backend;
  const places: readonly MeasuredPlace[] =
    placement.length > 0 ? placement : [{ weightBytes, isDevice: false }];
  const devices: PhaseDevice[] = [];
  for (const place of places) {
    const device = place.isDevice
      ? await measuredGpu(place)
      : await measuredProcessor(place, threads, machine);
    if (!device) return undefined;
    devices.push(place.phase ? { ...device, phase: place.phase } : device);
  }
  return devices;
}

type MeasuredPlace = Pick<LayerPlacement, "weightBytes" | "isDevice" | "adapter" | "phase">;

async function measuredProcessor(
  { weightBytes }: Pick<LayerPlacement, "weightBytes">,
  threads: number,
  known: MachineMeasurement | undefined,
): Promise<Device | undefined> {
  const machine = known ?? (await rememberedMachine({ quick: true }));
  return machine && deviceAt(machine, threads, weightBytes);
}

async function measuredGpu({
  adapter,
  weightBytes,
}: Pick<LayerPlacement, "adapter" | "weightBytes">): Promise<Device | undefined> {
  if (adapter === undefined) return undefined;
  const { rememberedGpu } = await import("./gpu.ts");
  const gpu = await rememberedGpu({ adapter, quick: true });
  return gpu && gpuDevice(gpu, weightBytes);
}
