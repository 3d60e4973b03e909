// The composition root on the caller's side: read this first. open() names a model, starts an engine thread for it and
// returns the Model that calls it. inspect() and openTokenizer() read only headers, on the caller's thread.

import type {
  AdapterFile,
  CpuBinding,
  InspectOptions,
  Model,
  ModelInspection,
  ModelLocation,
  OpenOptions,
  TextTokenizer,
} from "./api/api.ts";
import { AbortedError, LanternError, ModelError, UsageError } from "./base/errors.ts";
import type { OptionNames } from "./base/options.ts";
import { heldTypesText, isHeldType } from "./dtypes/held-types.ts";
import {
  defaultKvType,
  isKvType,
  isKvTypePair,
  kvDTypeOf,
  kvTypesText,
} from "./dtypes/kv-types.ts";
import { checkOptions, checkText, wrongArgument } from "./engine/arguments.ts";
import { type Connect, Connection } from "./engine/connection.ts";
import { CoreTurns } from "./engine/core-turns.ts";
import { activeParameters, checkKvType, chooseContext, estimateMemory } from "./engine/memory.ts";
import { EngineModel } from "./engine/model.ts";
import type { OpenRequest } from "./engine/protocol.ts";
import { type EngineLine, Line } from "./engine/rpc.ts";
import { resolveSpeculation } from "./engine/speculate/options.ts";
import { halfCandidates, tensorsAsHalves } from "./formats/half-weights.ts";
import type { ModelFile } from "./formats/model-file.ts";
import { tokenizerOf } from "./load/compose.ts";
import { locate, withModelFile } from "./load/model-file.ts";
import { numaKinds } from "./machine/bind.ts";
import { measuredDevices } from "./machine/machine.ts";
import { describeAdapter } from "./models/adapter.ts";
import { buildModel } from "./models/build.ts";
import { filePooling } from "./models/pooling.ts";
import { currentPlatform } from "./platform/current.ts";
import type { Platform } from "./platform/platform.ts";

const openOptions: OptionNames<OpenOptions> = {
  contextSize: true,
  kvType: true,
  weights: true,
  ramBytes: true,
  mmap: true,
  threads: true,
  binding: true,
  level: true,
  native: true,
  backend: true,
  gpuLayers: true,
  gpuFor: true,
  overrideTensors: true,
  cpuExperts: true,
  expertSlots: true,
  exact: true,
  warmup: true,
  sparse: true,
  predictors: true,
  speculate: true,
  mtp: true,
  draftModel: true,
  draftThreads: true,
  draftGpuLayers: true,
  chatTemplate: true,
  profile: true,
  tuned: true,
  tuneFile: true,
  parallel: true,
  cacheRamBytes: true,
  cacheDiskBytes: true,
  cacheFolder: true,
  adapters: true,
  restart: true,
  hangSeconds: true,
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

const inspectOptions: OptionNames<InspectOptions> = {
  contextSize: true,
  kvType: true,
  weights: true,
};

/** Opens a model. Its weights are read on a separate thread; dispose() the model to free them. */
export async function open(location: ModelLocation, options: OpenOptions = {}): Promise<Model> {
  checkOpenOptions(options);
  const { signal } = options;
  if (signal?.aborted) throw new AbortedError("opening the model", { cause: signal.reason });
  const platform = await currentPlatform();
  const spec = platform.describeSource(await locate(location, platform));
  const request: OpenRequest = {
    spec,
    contextSize: options.contextSize,
    kvType: options.kvType ?? defaultKvType,
    weights: options.weights,
    ramBytes: options.ramBytes,
    mmap: options.mmap ?? true,
    threads: options.threads,
    binding: options.binding,
    level: options.level,
    native: options.native ?? true,
    backend: options.backend,
    gpuLayers: options.gpuLayers,
    gpuFor: options.gpuFor,
    overrideTensors: options.overrideTensors,
    cpuExperts: options.cpuExperts,
    expertSlots: options.expertSlots,
    exact: options.exact ?? false,
    warmup: options.warmup,
    sparse: options.sparse ?? (options.predictors === undefined ? "auto" : "predict"),
    predictors: await predictorSource(options, platform),
    speculate: options.speculate,
    mtp: options.mtp ?? false,
    chatTemplate: options.chatTemplate,
    profile: options.profile ?? false,
    tuned: options.tuned ?? true,
    tuneFile:
      options.tuneFile === undefined ? undefined : platform.describeSource(options.tuneFile),
    parallel: options.parallel ?? 1,
    cacheRamBytes: options.cacheRamBytes,
    cacheDiskBytes: options.cacheDiskBytes,
    cacheFolder: options.cacheFolder,
    draft: await draftRequest(options, platform),
    adapters: await adapterRequests(options, platform),
  };
  turns ??= new CoreTurns(platform.cores);
  return await openWith(platform, request, { ...options, turns });
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

/** What an adapter is without its location and scale: a File, or a list of Files, is a location. */
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

/** Opens a model on a platform's threads; the request names the file. */
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
  const connect: Connect = async (onDeath, kvType) => {
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
      const wanted: OpenRequest = { ...request, ...(kvType && { kvType }), cores, sentAt };
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
  const { spec, chatTemplate } = request;
  const text = { start: () => platform.startThread("text"), request: { spec, chatTemplate } };
  const opened = connection;
  const devices = () => measuredDevices(opened.info);
  const cpuTimes = () => platform.cpuTimes?.();
  return new EngineModel(opened, devices, { ...text, hangSeconds }, cpuTimes);
}

function checkTensorOptions(options: OpenOptions): void {
  const { overrideTensors = [], cpuExperts = 0, expertSlots = 1 } = options;
  const isShare = typeof expertSlots === "number" && expertSlots > 0 && expertSlots < 1;
  if (!isShare && !(Number.isSafeInteger(expertSlots) && expertSlots >= 1)) {
    throw wrongArgument(
      "expertSlots",
      expertSlots,
      "an integer above 0, or a share of the experts below 1",
    );
  }
  const isCount = typeof cpuExperts === "number" && Number.isSafeInteger(cpuExperts);
  if (!(isCount ? cpuExperts >= 0 : cpuExperts === "all")) {
    throw wrongArgument("cpuExperts", cpuExperts, '"all" or an integer of at least 0');
  }
  const isList = Array.isArray(overrideTensors);
  if (!isList || overrideTensors.some((text) => typeof text !== "string")) {
    throw wrongArgument("overrideTensors", overrideTensors, 'a list as ["ffn_.*_exps=cpu"]');
  }
}

function checkOpenOptions(options: OpenOptions): void {
  checkOptions("open()", options, openOptions);
  const { threads, parallel = 1, gpuLayers, hangSeconds = 0 } = options;
  const { chatTemplate, onProgress } = options;
  if (!(Number.isFinite(hangSeconds) && hangSeconds >= 0)) {
    throw wrongArgument("hangSeconds", hangSeconds, "a number of at least 0 (0: never)");
  }
  resolveSpeculation(options.speculate);
  for (const name of ["exact", "mtp", "warmup"] as const) {
    const value = options[name];
    if (value !== undefined && typeof value !== "boolean") {
      throw wrongArgument(name, value, "true or false");
    }
  }
  if (![undefined, true, false, "auto", "predict"].includes(options.sparse)) {
    throw wrongArgument("sparse", options.sparse, 'true, false, "auto" or "predict"');
  }
  if (
    options.predictors !== undefined &&
    ![undefined, "predict"].includes(options.sparse as string)
  ) {
    throw wrongArgument("sparse", options.sparse, '"predict", since predictors are given');
  }
  checkLayers("gpuLayers", gpuLayers);
  checkDraft(options);
  const { gpuFor } = options;
  if (gpuFor !== undefined && !["prompt", "generation", "auto"].includes(gpuFor)) {
    throw wrongArgument("gpuFor", gpuFor, '"prompt", "generation" or "auto"');
  }
  checkTensorOptions(options);
  if (!(Number.isSafeInteger(parallel) && parallel >= 1 && parallel <= 1024)) {
    throw wrongArgument("parallel", parallel, "an integer from 1 to 1024");
  }
  const { ramBytes } = options;
  if (ramBytes !== undefined && !(Number.isSafeInteger(ramBytes) && ramBytes >= 1)) {
    throw wrongArgument("ramBytes", ramBytes, "a whole number of bytes above 0");
  }
  if (options.mmap !== undefined && typeof options.mmap !== "boolean") {
    throw wrongArgument("mmap", options.mmap, "true or false");
  }
  checkThreads("threads", threads);
  checkBinding(options.binding);
  checkMemoryOptions(options);
  checkCache(options);
  checkTuneFile(options);
  checkAdapters(options);
  if (chatTemplate !== undefined) checkText(chatTemplate, "chatTemplate");
  if (options.backend !== undefined) checkText(options.backend, "backend");
  if (options.level !== undefined && ![1, 2, 3, 4].includes(options.level)) {
    throw wrongArgument("level", options.level, "one of 1, 2, 3, 4");
  }
  if (onProgress !== undefined && typeof onProgress !== "function") {
    throw wrongArgument("onProgress", onProgress, "a function");
  }
  if (options.onWarning !== undefined && typeof options.onWarning !== "function") {
    throw wrongArgument("onWarning", options.onWarning, "a function");
  }
}

function checkDraft({ draftModel, draftThreads, draftGpuLayers }: OpenOptions): void {
  checkLayers("draftGpuLayers", draftGpuLayers);
  checkThreads("draftThreads", draftThreads);
  if (draftModel !== undefined || (draftThreads ?? draftGpuLayers) === undefined) return;
  const name = draftThreads === undefined ? "draftGpuLayers" : "draftThreads";
  throw new UsageError(`open(): got ${name}, but no draftModel. Give one, or drop ${name}`);
}

function checkThreads(name: string, threads: number | undefined): void {
  if (threads === undefined || (Number.isSafeInteger(threads) && threads >= 1)) return;
  throw wrongArgument(name, threads, "an integer above 0");
}

function checkLayers(name: string, layers: OpenOptions["gpuLayers"] = "auto"): void {
  const isCount = typeof layers === "number" && Number.isSafeInteger(layers);
  if (isCount ? layers >= 0 : layers === "all" || layers === "auto") return;
  throw wrongArgument(name, layers, '"all", "auto" or an integer of at least 0');
}

function checkCache({ cacheRamBytes, cacheDiskBytes, cacheFolder }: OpenOptions): void {
  for (const [name, bytes] of Object.entries({ cacheRamBytes, cacheDiskBytes })) {
    if (bytes === undefined || (Number.isSafeInteger(bytes) && bytes >= 0)) continue;
    throw wrongArgument(name, bytes, "a whole number of bytes, at least 0");
  }
  if (cacheFolder !== undefined) checkText(cacheFolder, "cacheFolder");
}

function checkTuneFile({ tuned = true, tuneFile }: OpenOptions): void {
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

function checkMemoryOptions({ kvType, contextSize, weights }: InspectOptions): void {
  if (weights !== undefined && !isHeldType(weights)) {
    throw wrongArgument("weights", weights, heldTypesText);
  }
  if (kvType !== undefined && !isKvType(kvType) && !isKvTypePair(kvType)) {
    throw wrongArgument("kvType", kvType, `${kvTypesText}, or { k, v } with one of them each`);
  }
  if (contextSize !== undefined && !(Number.isSafeInteger(contextSize) && contextSize >= 1)) {
    throw wrongArgument("contextSize", contextSize, "an integer above 0");
  }
}

/** Rejects as soon as the signal is aborted, whatever the work waits for: a server may never respond. */
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

/** What a model file contains, and the memory that it needs; reads only the header. */
export async function inspect(
  location: ModelLocation,
  options: InspectOptions = {},
): Promise<ModelInspection> {
  checkOptions("inspect()", options, inspectOptions);
  checkMemoryOptions(options);
  return await withModelFile(location, (file) => {
    const tensors = [...file.tensors.values()];
    const bytesByType = Map.groupBy(tensors, (tensor) => tensor.dtype.name);
    const parameters = tensors.reduce(
      (sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1),
      0,
    );
    return {
      name: file.name,
      format: file.format,
      totalBytes: file.totalBytes,
      architecture: file.metadata.string("general.architecture"),
      parameters,
      metadata: [...file.metadata.keys()].map((key) => ({
        key,
        preview: file.metadata.preview(key)!,
      })),
      tensors: tensors.map(({ name, dtype, shape, byteLength }) => ({
        name,
        dtype: dtype.name,
        shape,
        bytes: byteLength,
      })),
      types: [...bytesByType].map(([dtype, group]) => ({
        dtype,
        tensors: group.length,
        bytes: group.reduce((sum, tensor) => sum + tensor.byteLength, 0),
      })),
      ...poolingOf(file),
      ...adapterFacts(file),
      ...modelNeeds(file, parameters, options),
    };
  });
}

/** The tokenizer of a model, without the model: also works on vocabulary-only files. */
export async function openTokenizer(location: ModelLocation): Promise<TextTokenizer> {
  return await withModelFile(location, (file) => tokenizerOf(file));
}

/** Nothing, too, where the key has a number that means nothing: only open() refuses that. */
function poolingOf({ metadata }: ModelFile): Pick<ModelInspection, "pooling"> {
  try {
    const pooling = filePooling(metadata);
    return pooling === undefined ? {} : { pooling };
  } catch (error) {
    if (error instanceof ModelError) return {};
    throw error;
  }
}

/** Nothing where it is no adapter, or where a key of it is of another type: only opening it refuses that. */
function adapterFacts(file: ModelFile): Pick<ModelInspection, "adapter"> {
  try {
    const adapter = describeAdapter(file);
    return adapter ? { adapter } : {};
  } catch (error) {
    if (error instanceof LanternError) return {};
    throw error;
  }
}

/** Nothing for a file without a model that this build can run (a vocabulary, an unknown architecture). */
function modelNeeds(
  file: ModelFile,
  parameters: number,
  options: InspectOptions,
): Pick<ModelInspection, "activeParameters" | "memory"> {
  const { contextSize, kvType = defaultKvType, weights } = options;
  try {
    const { config, graph } = buildModel({
      metadata: file.metadata,
      tensors: weights ? tensorsAsHalves(file, halfCandidates(file)) : file.tensors,
    });
    const dtype = kvDTypeOf(kvType);
    checkKvType(dtype, graph);
    const active = activeParameters(graph, parameters);
    return {
      ...(active < parameters && { activeParameters: active }),
      memory: estimateMemory(graph, chooseContext(config, contextSize), dtype),
    };
  } catch (error) {
    if (error instanceof ModelError) return { memory: undefined };
    throw error;
  }
}
