// From names to a LimitsReport: a composition root. It finds the model (a file or a built-in configuration), the
// device (from the table, or this machine) and the bit widths, and calls the arithmetic of src/limits.

import type { ModelLocation } from "../../api/api.ts";
import { ModelError, SourceError, UsageError } from "../../base/errors.ts";
import { suggestion } from "../../base/nearest.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { show } from "../../base/show.ts";
import { bitsPerWeight } from "../../dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../dtypes/table.ts";
import { sequenceState } from "../../engine/memory.ts";
import { weightBytes, weightElements } from "../../graph/cost.ts";
import { recurrentStates } from "../../graph/graph.ts";
import { type NamedShape, namedShapes, shapeNamed } from "../../limits/configs.ts";
import { type Device, deviceAt } from "../../limits/device.ts";
import { deviceNamed, devices } from "../../limits/devices.ts";
import { diskReport } from "../../limits/disk.ts";
import { gpuDevice } from "../../limits/gpu-device.ts";
import { graphParameters } from "../../limits/graph-parameters.ts";
import type { LimitsModel } from "../../limits/limits-model.ts";
import { measuredFromBench } from "../../limits/measured.ts";
import { shapeState, withKvTimes } from "../../limits/memory.ts";
import {
  type BitWidths,
  type Counting,
  graphModelCost,
  shapeCost,
  withKvBits,
} from "../../limits/model-cost.ts";
import { type LimitsReport, limitsReport } from "../../limits/report.ts";
import type { MeasuredLoad } from "../../limits/serving-report.ts";
import { checkShape, type ModelShape, parameterCounts } from "../../limits/shape.ts";
import { gainsFromBench, isGains, type MeasuredGain } from "../../limits/speculation-here.ts";
import { withModelFile } from "../../load/model-file.ts";
import { measureModelDisk } from "../../machine/disk.ts";
import { gpuMeasurement } from "../../machine/gpu.ts";
import { machineMeasurement } from "../../machine/machine.ts";
import { storedServedLoads } from "../../machine/served-loads.ts";
import type { ModelHeader } from "../../models/arch.ts";
import { buildModel } from "../../models/build.ts";
import { currentPlatform } from "../../platform/current.ts";
import { measuredThreads } from "../../tune/measured-choices.ts";
import { measuredSpeculation } from "./measured-speculation.ts";
import type { LimitsOptions, SpeculationOptions } from "./options.ts";

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
const defaultBits = 16;

export async function makeReport(
  location: ModelLocation,
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
    asked && isHere
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

/** Of `lantern bench`, or gains of `bench:speculate`, which only that section compares. */
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

/** How fast this machine reads the model's file. */
async function fileRate(location: ModelLocation): Promise<number> {
  const rate = await withModelFile(location, async (file) => {
    const { openDirect } = await currentPlatform();
    const [first] = file.tensors.values();
    return await measureModelDisk(first && file.filePartsOf(first), openDirect);
  });
  if (rate !== undefined) return rate;
  throw new UsageError(
    "ramBytes: the model is not in a local file that can be opened again, so weights cannot be read from disk. Drop it",
  );
}

/** A stored result is of the file as it is, on this machine's processor. */
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

/** With the requested threads, or else those of the model here, or else all cores. */
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

interface Widths {
  /** undefined: as in the file. */
  weights: Width | undefined;
  kv: Width | undefined;
  counting: Counting;
}

interface Width {
  bits: number;
  /** For display: "4 bits", "q4_0 (4.5 bits)". */
  text: string;
}

function widthOf(what: string, asked: number | string | undefined): Width | undefined {
  if (asked === undefined) return undefined;
  const bits = typeof asked === "number" ? asked : Number(asked);
  if (bits > 0 && bits <= 64) return { bits, text: bitsText(bits) };
  const dtype = dtypeByName(String(asked).toLowerCase());
  if (dtype) {
    const typeBits = bitsPerWeight(dtype);
    return { bits: typeBits, text: `${dtype.name} (${bitsText(typeBits)})` };
  }
  throw new UsageError(
    `${what}: got ${show(asked)}, expected bits per value (from 1 to 64) or a type: ${allDTypes()
      .map(({ name }) => name)
      .join(", ")}`,
  );
}

/** Also "q8_0/q4_0": keys and values, which are as long as each other in all but a few models. */
function kvWidthOf(asked: number | string | undefined): Width | undefined {
  const types = typeof asked === "string" ? asked.split("/") : [];
  if (types.length !== 2) return widthOf("kv", asked);
  const [k, v] = [widthOf("kv", types[0])!, widthOf("kv", types[1])!];
  const bits = (k.bits + v.bits) / 2;
  return { bits, text: `${asked} (${bitsText(bits)})` };
}

function bitsText(bits: number): string {
  return `${Number(bits.toFixed(2))} bits`;
}

interface FoundModel extends LimitsModel {
  readonly isFile?: boolean;
  readonly tunedThreads?: number | undefined;
}

/** The file of this name if there is one, or else the built-in configuration. */
async function limitsModel(location: ModelLocation, widths: Widths): Promise<FoundModel> {
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

function namedModel({ name, shape }: NamedShape, widths: Widths): LimitsModel {
  const weights = widths.weights ?? { bits: defaultBits, text: bitsText(defaultBits) };
  return {
    name,
    source: "built-in configuration",
    weightsText: weights.text,
    ...shapeFacts(shape, widths, weights.bits),
  };
}

function shapeFacts(
  shape: ModelShape,
  { kv, counting }: Widths,
  weightBits: number,
): Omit<LimitsModel, "name" | "source" | "weightsText"> {
  const bits: BitWidths = { weights: weightBits, kv: kv?.bits ?? defaultBits };
  return {
    shape,
    bits,
    kvText: kv?.text ?? bitsText(defaultBits),
    cost: shapeCost(shape, bits, counting),
    state: shapeState(shape, bits.kv),
  };
}

interface OpenFile extends ModelHeader {
  readonly name: string;
  readonly format: string;
}

function fileModel(file: OpenFile, widths: Widths): LimitsModel {
  const { config, graph } = buildModel(file);
  const { vocabSize, layers, embed, feedForward, heads, kvHeads, headDim } = config;
  const shape: ModelShape = {
    vocabSize,
    layers,
    embed,
    feedForward,
    heads,
    kvHeads,
    headDim,
    qkvBias: file.tensors.has("blk.0.attn_q.bias"),
    headNorms: file.tensors.has("blk.0.attn_q_norm.weight"),
    tied: !file.tensors.has("output.weight"),
  };
  const parameters = graphParameters(graph);
  const isRecurrent = recurrentStates(graph).length > 0;
  // Experts, latent attention, layers that differ: a shape does not describe them. The graph counts biases as vectors.
  const matrices = parameterCounts({ ...shape, qkvBias: false }).total;
  const isPlain = !isRecurrent && matrices === parameters.total;
  if (isPlain) checkShape(shape);
  else if (widths.weights || widths.counting === "article") {
    const what = isRecurrent ? "has recurrent layers" : "is no plain transformer";
    throw new ModelError(
      `${file.name} ${what}: its limits are counted from its graph, with weights as they are stored. Drop "weights", and count "best"`,
    );
  }
  const storedBytes = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const elements = graph.weights.reduce((sum, weight) => sum + weightElements(weight), 0);
  const storedBits = (storedBytes * 8) / elements;
  const facts = shapeFacts(shape, widths, widths.weights?.bits ?? storedBits);
  const half = dtypeByName("f16")!;
  const state = withKvTimes(sequenceState(graph, half), facts.bits.kv / defaultBits);
  if (widths.weights || widths.counting === "article") {
    const weights = widths.weights ?? { text: bitsText(storedBits) };
    const weightsText = `${weights.text} (its file has ${bitsText(storedBits)})`;
    return { name: file.name, source: file.format, weightsText, ...facts, state };
  }
  const cost = graphModelCost(graph, half, storedBytes);
  return {
    name: file.name,
    source: file.format,
    weightsText: `as stored: ${commonType(file)}, ${bitsText(storedBits)} on average`,
    ...facts,
    cost: withKvBits(cost, defaultBits, facts.bits.kv),
    state,
    ...(!isPlain && { parameters }),
  };
}

/** The type with the most bytes. */
function commonType({ tensors }: ModelHeader): string {
  const bytes = new Map<string, number>();
  for (const tensor of tensors.values()) {
    const { name } = tensor.dtype;
    bytes.set(name, (bytes.get(name) ?? 0) + weightBytes(tensor));
  }
  return [...bytes].sort((a, b) => b[1] - a[1])[0]![0];
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
