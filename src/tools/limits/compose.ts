// From names to a LimitsReport: a composition root. It finds the model (a file or a built-in configuration), the
// device (from the table, or this machine) and the bit widths, and calls the arithmetic of src/limits.

import type { Device } from "../../api/rates.ts";
import { SourceError, UsageError } from "../../base/errors.ts";
import { suggestion } from "../../base/nearest.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { show } from "../../base/show.ts";
import { isObject } from "../../formats/json.ts";
import { namedShapes, shapeNamed } from "../../limits/configs.ts";
import { deviceAt } from "../../limits/device.ts";
import { deviceNamed, devices } from "../../limits/devices.ts";
import { diskReport } from "../../limits/disk.ts";
import { gpuDevice } from "../../limits/gpu-device.ts";
import type { LimitsModel } from "../../limits/limits-model.ts";
import { measuredFromBench } from "../../limits/measured.ts";
import { type LimitsReport, limitsReport } from "../../limits/report.ts";
import type { MeasuredLoad } from "../../limits/serving-report.ts";
import { checkShape } from "../../limits/shape.ts";
import { gainsFromBench, isGains, type MeasuredGain } from "../../limits/speculation-here.ts";
import { withModelFile } from "../../load/model-file.ts";
import { measureModelDisk } from "../../machine/disk.ts";
import { gpuMeasurement } from "../../machine/gpu.ts";
import { machineMeasurement } from "../../machine/machine.ts";
import { storedServedLoads } from "../../machine/served-loads.ts";
import { currentPlatform } from "../../platform/current.ts";
import { measuredThreads } from "../../tune/measured-choices.ts";
import { measuredSpeculation } from "./measured-speculation.ts";
import {
  configModel,
  fileModel,
  kvWidthOf,
  namedModel,
  type Widths,
  widthOf,
} from "./model-facts.ts";
import type { LimitsOptions, LimitsSource, OwnModel, SpeculationOptions } from "./options.ts";

const ownNames: OptionNames<OwnModel> = { config: true, shape: true, name: true };

const optionNames: OptionNames<LimitsOptions> = {
  device: true,
  threads: true,
  weights: true,
  kv: true,
  context: true,
  memoryBytes: true,
  ramBytes: true,
  rate: true,
  counting: true,
  speculation: true,
  serving: true,
  servedLoads: true,
  measured: true,
  measuredName: true,
  machine: true,
  gpu: true,
};

/** The name for this machine's GPU; no device of the table has it. */
const THIS_GPU = "this-gpu";
const defaultContext = 4096;

export async function makeReport(
  location: LimitsSource,
  options: LimitsOptions,
): Promise<LimitsReport> {
  checkOptions(options);
  const { counting = "best" } = options;
  const widths: Widths = {
    weights: widthOf("weights", options.weights),
    kv: kvWidthOf(options.kv),
    counting,
  };
  const { measured, gains } = measurements(options);
  // Both can fail on a wrong name: before a measurement of several seconds, not after it.
  const named = isMeasured(options) ? undefined : tableDevice(options.device!);
  const { tunedThreads, isFile, ...model } = await limitsModel(location, widths);
  const speculation =
    options.speculation && (await resolveSpeculation(options.speculation, widths));
  const device = named ?? (await measuredDevice(options, model.cost.storedBytes, tunedThreads));
  const report = limitsReport(model, device, {
    context: options.context ?? defaultContext,
    memoryBytes: options.memoryBytes,
    rate: options.rate,
    counting,
    speculation,
    measured,
    serving: options.serving,
    servedLoads: options.servedLoads ?? (await storedLoads(model, options)),
  });
  const asked = options.speculation;
  const isHere = isFile && options.device === undefined && options.weights === undefined;
  const here =
    asked && isHere && !isOwn(location)
      ? await measuredSpeculation({
          model: location,
          threads: options.threads ?? tunedThreads ?? (await currentPlatform()).cores,
          ...{ acceptance: asked.acceptance, draft: asked.draft, runs: gains },
        })
      : undefined;
  const disk =
    options.ramBytes === undefined
      ? undefined
      : diskReport(report.memory, options.ramBytes, await fileRate(location));
  return {
    ...report,
    ...(disk && { disk }),
    ...(here !== undefined && { speculation: { ...report.speculation!, here } }),
  };
}

/** Results of `lantern bench`, or gains of `bench:speculate`, which only that section compares. */
function measurements(options: LimitsOptions): {
  readonly measured: ReturnType<typeof measuredFromBench> | undefined;
  readonly gains: readonly MeasuredGain[];
} {
  const { measured, measuredName = "the measurement", speculation } = options;
  if (measured === undefined) return { measured, gains: [] };
  if (!isGains(measured)) return { measured: measuredFromBench(measured, measuredName), gains: [] };
  if (speculation) return { measured: undefined, gains: gainsFromBench(measured, measuredName) };
  throw new UsageError(
    `measured: ${measuredName} has gains of speculation, which are compared with its prediction. Give acceptance, too: 0.8, for example`,
  );
}

/** The speed at which this machine reads the model's file. */
async function fileRate(location: LimitsSource): Promise<number> {
  const rate = isOwn(location)
    ? undefined
    : await withModelFile(location, async (file) => {
        const { openDirect } = await currentPlatform();
        const [first] = file.tensors.values();
        return await measureModelDisk(first && file.filePartsOf(first), openDirect);
      });
  if (rate !== undefined) return rate;
  throw new UsageError(
    "ramBytes: the model is not in a local file that can be opened again, so weights cannot be read from disk. Drop it",
  );
}

/** A stored result must be of the present file, on this machine's processor. */
async function storedLoads(
  { name, cost, bits }: LimitsModel,
  { serving, device, weights }: LimitsOptions,
): Promise<readonly MeasuredLoad[]> {
  if (!serving || device !== undefined || weights !== undefined) return [];
  return await storedServedLoads({ name, storedBytes: cost.storedBytes, kvBits: bits.kv });
}

function checkOptions(options: LimitsOptions): void {
  checkOptionNames("limits()", options, optionNames);
  const { threads, device, memoryBytes, counting } = options;
  if (counting !== undefined && counting !== "best" && counting !== "article") {
    throw new UsageError(`counting: got ${show(counting)}, expected "best" or "article"`);
  }
  if (threads !== undefined && !(Number.isSafeInteger(threads) && threads >= 1)) {
    throw new UsageError(`threads: got ${show(threads)}, expected a whole number above 0`);
  }
  if (threads !== undefined && device !== undefined) {
    throw new UsageError(
      `threads: got ${threads} for the device "${device}", expected none, because a named device counts as a whole. Drop one of the two`,
    );
  }
  const { ramBytes } = options;
  if (ramBytes !== undefined && !(Number.isSafeInteger(ramBytes) && ramBytes > 0)) {
    throw new UsageError(
      `ramBytes: got ${show(ramBytes)}, expected a whole number of bytes above 0`,
    );
  }
  if (ramBytes !== undefined && (device !== undefined || options.weights !== undefined)) {
    throw new UsageError(
      "ramBytes: the disk of this machine is measured with the file as it is. Drop the device and the width of weights",
    );
  }
  if (memoryBytes !== undefined && !(memoryBytes > 0 && Number.isFinite(memoryBytes))) {
    throw new UsageError(`memoryBytes: got ${show(memoryBytes)}, expected bytes above 0`);
  }
}

/** Whether the device is this machine or its GPU. */
function isMeasured({ device }: LimitsOptions): boolean {
  return device === undefined || device === THIS_GPU;
}

/** With the requested threads, or else the threads of the model here, or else all cores. */
async function measuredDevice(
  options: LimitsOptions,
  setBytes: number,
  tunedThreads: number | undefined,
): Promise<Device> {
  if (options.device === THIS_GPU) {
    return gpuDevice(await (options.gpu ?? gpuMeasurement)(), setBytes);
  }
  const machine = await (options.machine ?? machineMeasurement)();
  return deviceAt(machine, options.threads ?? tunedThreads ?? machine.cores, setBytes);
}

function tableDevice(name: string): Device {
  const device = deviceNamed(name);
  if (device) return device;
  throw new UsageError(
    `device: "${name}" is not a device that Lantern knows. ${suggestion(
      name,
      devices.map(({ id }) => id),
    )} Without a device, the limits are those of this machine; "${THIS_GPU}" is its GPU`,
  );
}

interface FoundModel extends LimitsModel {
  readonly isFile?: boolean;
  readonly tunedThreads?: number | undefined;
}

/** The file of this name if there is one, or else the built-in configuration. */
async function limitsModel(location: LimitsSource, widths: Widths): Promise<FoundModel> {
  if (isOwn(location)) return ownModel(location, widths);
  const named = typeof location === "string" ? shapeNamed(location) : undefined;
  // A page has no folders that could contain a file of that name.
  const mayBeFile = !named || (await currentPlatform()).downloads !== undefined;
  if (!mayBeFile) return namedModel(named, widths);
  try {
    return await withModelFile(location, async (file) => ({
      ...fileModel(file, widths),
      isFile: true,
      tunedThreads: await measuredThreads(file),
    }));
  } catch (error) {
    const unknown = error instanceof UsageError || error instanceof SourceError;
    if (named && unknown) return namedModel(named, widths);
    if (error instanceof UsageError && typeof location === "string") {
      throw await unknownModel(location, error);
    }
    throw error;
  }
}

async function resolveSpeculation(
  { acceptance, draftTokens, draft }: SpeculationOptions,
  widths: Widths,
): Promise<NonNullable<Parameters<typeof limitsReport>[2]["speculation"]>> {
  return {
    acceptance,
    ...(draftTokens !== undefined && { draftTokens }),
    draft: typeof draft === "number" ? draft : (await limitsModel(draft, widths)).cost,
  };
}

/** A source that is not the location of a file. */
function isOwn(source: LimitsSource): source is OwnModel {
  const isPlain = typeof source === "object" && Object.getPrototypeOf(source) === Object.prototype;
  return isPlain && ("config" in source || "shape" in source);
}

function ownModel(model: OwnModel, widths: Widths): LimitsModel {
  checkOptionNames("limits: model", model, ownNames);
  const {
    config,
    shape,
    name = config === undefined ? "own configuration" : "config.json",
  } = model;
  if ((config === undefined) === (shape === undefined)) {
    throw new UsageError("limits: model: got config and shape, expected one of the two");
  }
  if (shape !== undefined) {
    checkShape(shape);
    return { ...namedModel({ id: name, name, shape }, widths), source: "own configuration" };
  }
  if (isObject(config)) return configModel(config, name, widths);
  throw new UsageError(`limits: model: config: got ${show(config)}, expected a parsed config.json`);
}

/** Suggests names of both lists: the catalog's alone would hide the built-in configurations. */
async function unknownModel(name: string, error: UsageError): Promise<UsageError> {
  if (name.startsWith("hf:")) return error;
  const { catalog } = await import("../../catalog/catalog.ts");
  const known = [...namedShapes.map(({ id }) => id), ...catalog.map((entry) => entry.name)];
  return new UsageError(
    `model: "${name}" is neither a file, nor a name from "lantern models" or "lantern limits --list". ${suggestion(name, known)}`,
    { cause: error },
  );
}
