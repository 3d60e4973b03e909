// The composition root on the caller's side: read this first. open() names a model, starts an engine thread for it and returns the
// Model that calls it. The code of models and formats runs on that thread.

import type { AdapterFile, CpuBinding, Model, ModelLocation, OpenOptions } from "./api/api.ts";
import { wrongArgument } from "./base/arguments.ts";
import { AbortedError, UsageError } from "./base/errors.ts";
import type { OptionNames } from "./base/options.ts";
import { defaultKvType } from "./dtypes/kv-types.ts";
import { checkMemoryOptions, checkOptions, checkText } from "./engine/arguments.ts";
import { type Connect, Connection } from "./engine/connection.ts";
import { CoreTurns } from "./engine/core-turns.ts";
import { EngineModel } from "./engine/model.ts";
import type { OpenRequest, OpenRowRequest } from "./engine/protocol.ts";
import { type EngineLine, Line } from "./engine/rpc.ts";
import { resolveSpeculation } from "./engine/speculate/options.ts";
import { locate } from "./load/locate.ts";
import { numaKinds } from "./machine/bind.ts";
import { measuredDevices } from "./machine/machine.ts";
import { type OpenName, openRows } from "./options/open.ts";
import { checkRows, type OptionRow } from "./options/row.ts";
import { currentPlatform } from "./platform/current.ts";
import type { Platform } from "./platform/platform.ts";

const openOptions: OptionNames<OpenOptions> = {
  ...(Object.fromEntries(Object.keys(openRows).map((name) => [name, true])) as Record<
    OpenName,
    true
  >),
  signal: true,
  onProgress: true,
  onWarning: true,
};

const bindingOptions: OptionNames<CpuBinding> = {
  mask: true,
  range: true,
  strict: true,
  numa: true,
};

/** Opens a model. Its weights are read on a separate thread; dispose() the model to free them. */
export async function open(location: ModelLocation, options: OpenOptions = {}): Promise<Model> {
  checkOpenOptions(options);
  const { signal } = options;
  if (signal?.aborted) throw new AbortedError("opening the model", { cause: signal.reason });
  const platform = await currentPlatform();
  const spec = platform.describeSource(await locate(location, platform));
  const request: OpenRequest = {
    ...rowRequest(options),
    spec,
    kvType: options.kvType ?? defaultKvType,
    weights: options.weights,
    binding: options.binding,
    isa: options.isa,
    overrideTensors: options.overrideTensors,
    expertSlots: options.expertSlots,
    sparse: options.sparse ?? (options.predictors === undefined ? "auto" : "predict"),
    predictors: await predictorSource(options, platform),
    speculate: options.speculate,
    tuneFile:
      options.tuneFile === undefined ? undefined : platform.describeSource(options.tuneFile),
    explainTokens: options.explainTokens,
    draft: await draftRequest(options, platform),
    adapters: await adapterRequests(options, platform),
  };
  turns ??= new CoreTurns(platform.cores);
  return await openWith(platform, request, { ...options, turns });
}

/** The options of the rows, with their defaults. Those about the engine's thread and the draft model are not for the engine. */
function rowRequest(options: OpenOptions): OpenRowRequest {
  const { restart: _, hangSeconds: _h, draftThreads: _t, draftGpuLayers: _l, ...rows } = openRows;
  const values = Object.entries<OptionRow>(rows).flatMap(([name, row]): [string, unknown][] => {
    if (row.type === "other") return [];
    return [[name, options[name as OpenName] ?? row.default]];
  });
  return Object.fromEntries(values) as unknown as OpenRowRequest;
}

async function predictorSource(
  { predictors }: OpenOptions,
  platform: Platform,
): Promise<OpenRequest["predictors"]> {
  if (predictors === undefined) return undefined;
  return platform.describeSource(await locate(predictors, platform));
}

async function draftRequest(
  { draftModel, draftThreads, draftGpuLayers }: OpenOptions,
  platform: Platform,
): Promise<OpenRequest["draft"]> {
  if (draftModel === undefined) return undefined;
  const spec = platform.describeSource(await locate(draftModel, platform));
  return { spec, threads: draftThreads, gpuLayers: draftGpuLayers };
}

/** An adapter without its location and scale is itself a location: a File, or a list of Files. */
function asAdapterFile(adapter: ModelLocation | AdapterFile): AdapterFile {
  const isFile = typeof adapter === "object" && Object.hasOwn(adapter, "location");
  return isFile ? (adapter as AdapterFile) : { location: adapter as ModelLocation };
}

async function adapterRequests(
  { adapters }: OpenOptions,
  platform: Platform,
): Promise<OpenRequest["adapters"]> {
  if (adapters === undefined) return undefined;
  return await Promise.all(
    adapters.map(asAdapterFile).map(async ({ location, scale = 1 }) => ({
      spec: platform.describeSource(await locate(location, platform)),
      path: locationText(location),
      scale,
    })),
  );
}

function locationText(location: ModelLocation): string {
  if (typeof location === "string" || location instanceof URL) return String(location);
  return location instanceof File ? location.name : location.map(({ name }) => name).join(", ");
}

function checkAdapters({ adapters }: OpenOptions): void {
  if (adapters === undefined) return;
  if (!Array.isArray(adapters)) throw wrongArgument("adapters", adapters, "a list of adapters");
  for (const adapter of adapters) {
    const { scale = 1, ...rest } = asAdapterFile(adapter);
    checkOptions("adapters", rest, { location: true });
    if (typeof scale === "number" && Number.isFinite(Math.fround(scale))) continue;
    throw wrongArgument("adapters: scale", scale, "a finite number");
  }
}

/** The engines of this process share its cores. */
let turns: CoreTurns | undefined;

/** Opens a model on a platform's threads; the request names its file. */
export async function openWith(
  platform: Pick<Platform, "startThread"> & Partial<Pick<Platform, "cpuTimes">>,
  request: OpenRequest,
  options: Pick<OpenOptions, "signal" | "onProgress" | "onWarning" | "restart" | "hangSeconds"> & {
    turns?: CoreTurns;
  } = {},
): Promise<Model> {
  const { hangSeconds, restart = false, turns: shared } = options;
  const advice = restart ? "It is started again" : "Open the model again";
  let { signal, onProgress } = options;
  let connection: Connection | undefined;
  const connect: Connect = async (onDeath, { kvType, mostGpuLayers }) => {
    const sentAt = Date.now();
    const thread = platform.startThread("engine");
    const cores = shared?.enter();
    const onEnd = () => cores && shared?.leave(cores);
    const onWarning = (warning: string) => {
      connection?.warn(warning);
      options.onWarning?.(warning);
    };
    const line: EngineLine = new Line(thread, { hangSeconds, advice, onDeath, onEnd, onWarning });
    try {
      const fewer = mostGpuLayers !== undefined && {
        ...{ gpuLayers: "auto" as const, gpuFor: undefined, mostGpuLayers },
      };
      const wanted: OpenRequest = {
        ...{ ...request, ...(kvType && { kvType }), ...fewer, cores, sentAt },
      };
      const opening = line.call("open", wanted, onProgress ? { onEvent: onProgress } : {});
      return { line, info: await unlessAborted(opening, signal) };
    } catch (error) {
      await line.dispose();
      throw error;
    }
  };
  connection = await Connection.open(connect, restart);
  connection.onReopen = (warning) => options.onWarning?.(warning);
  signal = onProgress = undefined; // they apply to the first open only, not to a restart
  const { spec, chatTemplate, overrideKv } = request;
  const textRequest = { spec, chatTemplate, overrideKv };
  const text = { start: () => platform.startThread("text"), request: textRequest };
  const opened = connection;
  const devices = () => measuredDevices(opened.info);
  const cpuTimes = () => platform.cpuTimes?.();
  return new EngineModel(opened, devices, { ...text, hangSeconds }, cpuTimes);
}

function checkTensorOptions(options: OpenOptions): void {
  const { overrideTensors = [], expertSlots = 1 } = options;
  const isShare = typeof expertSlots === "number" && expertSlots > 0 && expertSlots < 1;
  if (!isShare && !(Number.isSafeInteger(expertSlots) && expertSlots >= 1)) {
    throw wrongArgument(
      "expertSlots",
      expertSlots,
      "an integer above 0, or a share of the experts below 1",
    );
  }
  const isList = Array.isArray(overrideTensors);
  if (!isList || overrideTensors.some((text) => typeof text !== "string")) {
    throw wrongArgument("overrideTensors", overrideTensors, 'a list as ["ffn_.*_exps=cpu"]');
  }
}

function checkOpenOptions(options: OpenOptions): void {
  checkOptions("open()", options, openOptions);
  checkRows(openRows, options);
  const { onProgress } = options;
  resolveSpeculation(options.speculate);
  if (
    options.predictors !== undefined &&
    ![undefined, "predict"].includes(options.sparse as string)
  ) {
    throw wrongArgument("sparse", options.sparse, '"predict", since predictors are given');
  }
  checkDraft(options);
  checkTensorOptions(options);
  checkBinding(options.binding);
  checkMemoryOptions(options);
  checkTuneFile(options);
  checkAdapters(options);
  if (onProgress !== undefined && typeof onProgress !== "function") {
    throw wrongArgument("onProgress", onProgress, "a function");
  }
  if (options.onWarning !== undefined && typeof options.onWarning !== "function") {
    throw wrongArgument("onWarning", options.onWarning, "a function");
  }
}

function checkDraft({ draftModel, draftThreads, draftGpuLayers }: OpenOptions): void {
  if (draftModel !== undefined || (draftThreads ?? draftGpuLayers) === undefined) return;
  const name = draftThreads === undefined ? "draftGpuLayers" : "draftThreads";
  throw new UsageError(`open(): got ${name}, but no draftModel. Give one, or drop ${name}`);
}

function checkTuneFile({ tuned = true, tuneFile, explainTokens }: OpenOptions): void {
  const isCount = (tokens: unknown) => Number.isSafeInteger(tokens) && (tokens as number) >= 1;
  if (
    explainTokens !== undefined &&
    !(Array.isArray(explainTokens) && explainTokens.every(isCount))
  )
    throw wrongArgument("explainTokens", explainTokens, "a list of whole numbers above 0");
  if (tuneFile === undefined) return;
  const isFile = typeof File !== "undefined" && tuneFile instanceof File;
  if (!isFile && !(tuneFile instanceof URL)) checkText(tuneFile, "tuneFile");
  if (!tuned) {
    throw new UsageError("open(): got a tuneFile and tuned: false, expected one of them. Drop one");
  }
}

function checkBinding(binding: CpuBinding | undefined): void {
  if (binding === undefined) return;
  checkOptions("binding", binding, bindingOptions);
  const { mask, range, strict = false, numa = "numactl" } = binding;
  if (mask !== undefined) checkText(mask, "mask");
  if (range !== undefined) checkText(range, "range");
  if (typeof strict !== "boolean") throw wrongArgument("strict", strict, "true or false");
  if (!numaKinds.includes(numa))
    throw wrongArgument("numa", numa, `one of ${numaKinds.join(", ")}`);
}

/** Rejects as soon as the signal is aborted, even while the work waits for something else: a server may never respond. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return await work;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = () => reject(new AbortedError("opening the model", { cause: signal.reason }));
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
