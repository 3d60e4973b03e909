// The composition root of the engine's thread: opens the model's files, chooses tokenizer, template and backend from their
// tables, and hands the loaded engine to the host (engine/host.ts).

import type { Backend, WeightFiles } from "../backends/backend.ts";
import type { BackendRequest } from "../backends/table.ts";
import { AbortedError, FormatError, messageOf, SourceError, UsageError } from "../base/errors.ts";
import { hex, sha256 } from "../base/sha256.ts";
import { show } from "../base/show.ts";
import { kvDTypeOf } from "../dtypes/kv-types.ts";
import { Engine, type EngineOptions, type LoadWatch } from "../engine/engine.ts";
import type { EngineParts } from "../engine/engine-parts.ts";
import { serveEngine, startMs } from "../engine/host.ts";
import type { OpenRequest } from "../engine/protocol.ts";
import { savedStateFiles } from "../engine/saved/state-file.ts";
import { defaultCrc32 } from "../engine/tiers/segment.ts";
import { LOCAL_SAMPLES, weightsFingerprint, withSamples } from "../formats/fingerprint.ts";
import { asHalves, halfWarnings } from "../formats/half-weights.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import type { KernelTarget } from "../kernels/target.ts";
import { chooseBackend, type MeasuredSides, type TunedGpuLookup } from "../load/choose-backend.ts";
import { templateOf, tokenizerOf } from "../load/compose.ts";
import { chooseGpuLayers, type GpuChoice } from "../load/gpu-choice.ts";
import { bindThread, type ThreadCpus, threadCpus } from "../machine/bind.ts";
import { chooseOptLevel, type OptLevelChoice } from "../machine/native.ts";
import { currentPlatform } from "../platform/current.ts";
import type { ByteSource, EnginePort, SourceSpec } from "../platform/platform.ts";
import { Laps } from "../profile/laps.ts";
import { explainedDefault } from "../tune/default-notes.ts";
import type { GivenTune } from "../tune/given.ts";
import { SparseChoice } from "../tune/sparse-choice.ts";
import { GPU_TUNE_FILE, isGpuFile, tuneFileOf } from "../tune/tune-target.ts";
import type { TunedUse } from "../tune/use.ts";
import { type OpenedAdapter, openAdapterFiles, withAdapters } from "./open-adapters.ts";
import { checkLeftOut, checkPredicted, NO_PREDICTORS, openPredictors } from "./open-predictors.ts";
import type { SpareThreads } from "./spare-threads.ts";

const platform = await currentPlatform();

/** Serves one model on this thread. `spares`: compute threads that are starting already. */
export function serve(port: EnginePort, spares: SpareThreads): void {
  serveEngine(port, {
    load: (request, watch) => loadAll(request, watch, spares).finally(() => spares.end()),
    breathe: platform.breathe,
    now: platform.now,
    states: {
      create:
        platform.createOutputFile &&
        ((path, bytes) =>
          platform.createOutputFile!(path, {
            ...{ replace: savedStateFiles, bytes, inputs: [], isPrivate: true },
          })),
      open: openStateSource,
      crc32: async () => (await platform.blockFolders?.())?.crc32 ?? defaultCrc32,
    },
  });
}

/** A file that holds saved state. */
async function openStateSource(spec: SourceSpec): Promise<ByteSource> {
  const source = await platform.openModelSource(spec);
  if (source.main !== undefined) return await source.open(source.main);
  throw new UsageError(`loadState(): ${source.name} is a folder, expected a file`);
}

/** A model, and the draft model that was asked for. */
async function loadAll(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
): Promise<Engine> {
  const engine = await load(request, watch, spares);
  const { draft } = request;
  if (!draft) return engine;
  const quietly = { ...watch, progress: () => {} };
  try {
    const { loadDraft } = await import("./load-draft.ts");
    const loadSecond = (second: OpenRequest, reserved: number) =>
      load(second, quietly, spares, reserved);
    engine.addDrafter(await loadDraft(engine, request, draft, platform, loadSecond));
    return engine;
  } catch (error) {
    engine.dispose();
    await engine.ended();
    throw error;
  }
}

/**
 * With the GPU layers that there can be. A GPU that "auto" has taken and that fails, for an op that it does not have, say, is a warning:
 * nobody has demanded it.
 */
async function load(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes = 0,
): Promise<Engine> {
  const gpu = await chooseGpuLayers(request, platform);
  const { gpuLayers } = gpu;
  try {
    return await loadFaster({ ...request, gpuLayers }, watch, spares, reservedBytes, gpu);
  } catch (error) {
    if (gpuLayers !== "auto" || isOfFile(error)) throw error;
    const warning = `gpuLayers: auto: the GPU could not be used, so the processor computes all layers (${messageOf(error)}). gpuLayers 0 does not try it`;
    const without = { ...gpu, warnings: [...gpu.warnings, warning] };
    return await loadFaster({ ...request, gpuLayers: 0 }, watch, spares, reservedBytes, without);
  }
}

/** Whether the processor would meet the same. */
function isOfFile(error: unknown): boolean {
  const kinds = [AbortedError, SourceError, FormatError];
  return kinds.some((kind) => error instanceof kind);
}

/**
 * Again where what was loaded is not what is faster (tune/sparse-choice.ts). `reservedBytes`: of the memory, what a model that is loaded
 * already may still fill.
 */
async function loadFaster(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes: number,
  gpu: GpuChoice,
): Promise<Engine> {
  const choice = sparseChoice(request);
  let engine = await loadOnce(request, watch, spares, reservedBytes, choice, gpu);
  const quietly = { ...watch, progress: () => {} };
  while (choice?.mustReload) {
    engine.dispose();
    await engine.ended();
    engine = await loadOnce(request, quietly, spares, reservedBytes, choice, gpu);
  }
  return engine;
}

/** What measures whether neurons are left out; undefined: the request says so. What comes over HTTP is not loaded twice. */
function sparseChoice({ sparse, spec, backend = "cpu", ...asked }: OpenRequest) {
  const isHere = backend === "cpu" && !asked.gpuLayers && asked.gpuFor === undefined;
  // Adapters read the values of all neurons.
  if (sparse !== "auto" || spec.kind === "url" || !isHere || asked.adapters?.length) {
    return undefined;
  }
  const machine = `${platform.cpu()}, ${asked.native ? "machine code" : "WebAssembly"}`;
  const { now, availableMemory } = platform;
  return new SparseChoice({ files: platform.smallFiles(), now, availableMemory, machine });
}

async function loadOnce(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes: number,
  choice: SparseChoice | undefined,
  gpu: GpuChoice,
): Promise<Engine> {
  const kvType = kvDTypeOf(request.kvType);
  const laps = request.profile ? new Laps(platform.now, platform.heapBytes) : undefined;
  laps?.resume(startMs(request));
  laps?.lap("load", "start");
  const bound = await bind(request);
  const stored = await openModelFile(await platform.openModelSource(request.spec));
  let backend: Backend | undefined;
  let adapters: OpenedAdapter[] = [];
  let predicted = NO_PREDICTORS;
  try {
    predicted = await openPredictors(request, stored);
    adapters = await openAdapterFiles(request);
    const isRemote = request.spec.kind === "url";
    const { file: wantedFile, heldAs, warnings, progress } = await held(stored, request, watch);
    const model = isRemote ? withSamples(wantedFile) : wantedFile;
    const file = predicted.with(withAdapters(model, adapters));
    const level = await chooseOptLevel(request, platform);
    const native = typeof level.native === "string" ? undefined : level.native;
    const given = request.tuneFile && (await givenTune(request.tuneFile));
    const choices = await measured(native?.target, given !== undefined);
    const tuned = request.tuned
      ? await choices?.measuredTuning(platform, file, request.threads, native, given)
      : { notes: ["kernels: defaults; tuning is switched off"] };
    const asked = backendRequest(request, level, tuned ?? { notes: [untuned] }, bound);
    const { threads } = asked;
    const ownName = await weightsName(request, model);
    const nameOfWeights = async () => `${await ownName()}${predicted.fingerprint}`;
    const notes = [...(asked.notes ?? []), ...gpu.notes];
    const isSparse =
      adapters.length === 0 && (request.sparse === true || predicted.part !== undefined);
    if (request.sparse === true && !isSparse) notes.push("neurons: adapters read all of them");
    await choice?.begin(await nameOfWeights(), threads, notes);
    const wanted = {
      ...asked,
      notes,
      sparse: choice ? choice.wanted : isSparse,
      startThread: () => spares.take(),
      guard: await guardMode(),
      files: weightFiles(file),
      ram: ramBudget(request),
    };
    const sides: MeasuredSides = async (facts, promptTokens) => {
      const { measuredSides } = await import("../tune/measured-choices.ts");
      const on = { threads, native, given };
      return await measuredSides(platform, file, kvType, on, facts, promptTokens);
    };
    const batchShape = request.tuned
      ? await choices?.measuredBatches(platform, file, { threads, native, given })
      : undefined;
    const tunedGpu: TunedGpuLookup = (facts) => gpuTuning(facts, given);
    const lookups = request.tuned ? { tunedGpu, sides } : {};
    const chosen = await chooseBackend(request, wanted, platform, lookups);
    backend = chosen.backend;
    if (given && isGpuFile(given.file) && !chosen.usesGpu) {
      throw new UsageError(
        `tuneFile: ${given.name} has times of the GPU ${given.file.cpu}, but the model runs on the CPU. Give a file of the CPU, or use backend "webgpu"`,
      );
    }
    if (request.ramBytes !== undefined && chosen.usesGpu) {
      throw new UsageError(
        "ramBytes: weights stay on disk only where the processor computes all layers. Leave it out, or put no layers on a GPU",
      );
    }
    if (predicted.part) checkPredicted(request, chosen.usesGpu);
    const { metadata } = file;
    let tokenizer: ReturnType<typeof tokenizerOf> | undefined;
    let template: ReturnType<typeof templateOf>;
    laps?.lap("load", "open");
    const parts: EngineParts = {
      name: file.name,
      format: file.format,
      metadata,
      tensors: model.tensors,
      readTensor: (name, target, byteOffset) => {
        const read = file.readTensor(file.tensors.get(name)!, target, byteOffset);
        return laps ? laps.reading(target.length, read) : read;
      },
      get tokenizer() {
        tokenizer ??= tokenizerOf(file);
        return tokenizer;
      },
      get template() {
        template ??= templateOf(request.chatTemplate, metadata, this.tokenizer);
        return template;
      },
      backend,
      ...(adapters.length > 0 && { adapters: adapters.map(({ part }) => part) }),
      ...(predicted.part && { predictors: predicted.part }),
    };
    const encoded = (text: string) => parts.tokenizer.encode(text);
    const engine = await Engine.load(
      parts,
      {
        contextSize: request.contextSize,
        kvType,
        availableBytes: availableBeside(reservedBytes),
        ramBytes: request.ramBytes,
        diskRate: () => diskRate(file),
        parallel: request.parallel,
        promptChunk: chosen.usesGpu ? undefined : await choices?.measuredChunk(backend.threads),
        batchShape: chosen.usesGpu ? undefined : batchShape,
        laps,
        cores: request.cores,
        hints: gpu.hints,
        warnings: [
          ...gpu.warnings,
          ...warnings,
          ...(await predicted.warnings(ownName)),
          ...(bound?.warnings(backend.threads) ?? []),
        ],
        heldAs,
        speculate: request.speculate,
        usesNext: request.mtp,
        warmup: request.warmup,
        loaded: async (plan) => {
          if (predicted.part) checkLeftOut(chosen.backend);
          await choice?.measure(chosen.backend, plan, encoded, watch.check);
        },
        tiers: await tierOptions(request, nameOfWeights, file.name),
        stateFacts: async () => [await nameOfWeights()],
        fingerprint: async () => {
          // The same wherever the file is; of a remote one the samples are here by now.
          const own = isRemote ? await weightsFingerprint(model, LOCAL_SAMPLES) : await ownName();
          const added = adapters.map(({ part: { fingerprint, scale } }) => [fingerprint, scale]);
          const facts = [own, predicted.fingerprint, added, parts.tokenizer.fingerprint];
          return hex(sha256(new TextEncoder().encode(JSON.stringify(facts))));
        },
      },
      { ...watch, progress },
    );
    if (request.mtp) {
      const { loadNext } = await import("./load-next.ts");
      const { parallel } = request;
      const availableBytes = platform.availableMemory();
      await loadNext(engine, parts, wanted, { kvType, parallel, availableBytes });
    }
    return engine;
  } catch (error) {
    backend?.dispose();
    await backend?.ended?.();
    throw error;
  } finally {
    await stored.close(); // the weights are in memory now
    for (const { file } of adapters) await file.close();
    await predicted.close();
    laps?.lap("load", "open");
    laps?.pause();
  }
}

function availableBeside(reservedBytes: number): number | undefined {
  const available = platform.availableMemory();
  return available && Math.max(1, available - reservedBytes);
}

/** Copies of state outside of the backend, as far as they are wanted. */
async function tierOptions(
  { cacheRamBytes = 0, cacheDiskBytes = 0, cacheFolder, exact }: OpenRequest,
  nameOfWeights: () => Promise<string>,
  model: string,
): Promise<EngineOptions["tiers"]> {
  // For tests, and for who wants nothing of it anywhere.
  const isForbidden = platform.env("LANTERN_NO_CACHE_DISK") && cacheFolder === undefined;
  const diskBytes = isForbidden ? 0 : cacheDiskBytes;
  if (cacheRamBytes <= 0 && diskBytes <= 0) return undefined;
  return {
    ramBytes: cacheRamBytes,
    diskBytes,
    folders: await platform.blockFolders?.(cacheFolder),
    weights: await nameOfWeights(),
    exact,
    model,
    now: platform.now,
  };
}

/** What names the weights. Over HTTP each sample is a request: there, they are not made before somebody asks. */
async function weightsName({ spec }: OpenRequest, file: ModelFile): Promise<() => Promise<string>> {
  if (spec.kind !== "url") {
    const known = await weightsFingerprint(file, LOCAL_SAMPLES);
    return async () => known;
  }
  return async () => {
    const again = await openModelFile(await platform.openModelSource(spec));
    try {
      return await weightsFingerprint(again, 8);
    } finally {
      await again.close();
    }
  };
}

/** The file with its weights in the wanted type, and what is to be said of that. */
async function held(
  stored: ModelFile,
  { weights }: OpenRequest,
  watch: LoadWatch,
): Promise<{
  file: ModelFile;
  heldAs?: EngineOptions["heldAs"];
  warnings: readonly string[];
  progress: LoadWatch["progress"];
}> {
  if (weights === undefined) return { file: stored, warnings: [], progress: watch.progress };
  let scanned = 0;
  // At most so many bytes are loaded afterwards.
  const most = [...stored.tensors.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
  const progress = (done: number, total: number) => {
    scanned = total;
    watch.progress(done, total + most);
  };
  const found = await asHalves(stored, { progress, check: watch.check });
  return {
    file: found.file,
    heldAs: { type: weights, matrices: found.changed, kept: [...found.kept] },
    warnings: halfWarnings(found),
    progress: (done, total) => watch.progress(scanned + done, scanned + total),
  };
}

/** What lies in local files can be read by every thread. */
function weightFiles(file: ModelFile): WeightFiles | undefined {
  const { readAt, openDirect } = platform;
  const partsOf = (tensor: string) => file.filePartsOf(file.tensors.get(tensor)!);
  return readAt && { readAt, openDirect, partsOf };
}

/** What is free is left to others in part: a model that stays on disk would otherwise take all of it. */
const FREE_PART = 0.9;
/** Threads that read weights from disk, and their code. */
const READERS_BYTES: number = 256 << 20;

/** What the model may take of the memory; undefined: it is refused where it needs more than is free. */
function ramBudget({ ramBytes, mmap }: OpenRequest): BackendRequest["ram"] {
  const free = platform.availableMemory();
  if (!mmap || (ramBytes === undefined && free === undefined)) return undefined;
  const most = Math.min(ramBytes ?? Number.POSITIVE_INFINITY, free ?? Number.POSITIVE_INFINITY);
  const experts = expertReads();
  if (free === undefined) return { limitBytes: most, budgetBytes: most, experts };
  const left = Math.max(0, free * FREE_PART - READERS_BYTES);
  return { limitBytes: most, budgetBytes: Math.min(most, left), experts };
}

/** For comparisons (docs/memory.md): how experts on disk are read. */
function expertReads(): NonNullable<BackendRequest["ram"]>["experts"] {
  const name = "LANTERN_DISK_EXPERTS";
  const given = platform.env(name);
  if (given === undefined) return undefined;
  const known = (["measured", "always", "never", "all"] as const).find((one) => one === given);
  if (known) return known;
  throw new UsageError(`${name}: got "${given}", expected measured, always, never or all`);
}

/** How fast the model is read from disk. */
async function diskRate(file: ModelFile): Promise<number | undefined> {
  const { measureModelDisk } = await import("../machine/disk.ts");
  const [first] = file.tensors.values();
  return await measureModelDisk(first && file.filePartsOf(first), platform.openDirect);
}

/** The tune file that the user named. */
async function givenTune(spec: SourceSpec): Promise<GivenTune> {
  const { readGivenTune } = await import("../tune/given.ts");
  return await readGivenTune(platform, spec);
}

/** Loads the code for measured choices only if there are measurements, or the user gave some. */
async function measured(
  target: KernelTarget | undefined,
  isGiven: boolean,
): Promise<typeof import("../tune/measured-choices.ts") | undefined> {
  const files = platform.smallFiles();
  const found = await Promise.all(
    ["machine.json", tuneFileOf(target)].map((name) => files.read(name).catch(() => "")),
  );
  return isGiven || found.some((text) => text !== undefined)
    ? await import("../tune/measured-choices.ts")
    : undefined;
}

/** The measured GPU kernels; undefined if the GPU was not tuned. */
async function gpuTuning(
  facts: Parameters<TunedGpuLookup>[0],
  given: GivenTune | undefined,
): ReturnType<TunedGpuLookup> {
  const stored = await platform
    .smallFiles()
    .read(GPU_TUNE_FILE)
    .catch(() => undefined);
  if (stored === undefined && !given) return undefined;
  const { measuredGpuTuning } = await import("../tune/measured-choices.ts");
  return await measuredGpuTuning(platform, facts, given);
}

const untuned = 'kernels: defaults, nothing was tuned here ("lantern tune")';

/** Guard mode checks generated code (docs/native.md); it is loaded only when it is on. */
async function guardMode(): Promise<BackendRequest["guard"]> {
  if (platform.env("LANTERN_GUARD") !== "1") return undefined;
  return (await import("../backends/cpu/guard/guard.ts")).guardMode();
}

/** Binds this thread, which leads the compute threads, before any memory is touched: pages come from its NUMA node. */
async function bind({ binding }: OpenRequest): Promise<ThreadCpus | undefined> {
  if (!binding) return undefined;
  const native = await platform.native();
  const bound = threadCpus(binding, await platform.cpuTopology(), native);
  if (bound) bindThread(native, bound.cpusOf(0));
  return bound;
}

/** The request for a backend on the processor. */
function backendRequest(
  { threads, profile, exact }: OpenRequest,
  { level, native }: OptLevelChoice,
  tuned: TunedUse,
  bound: ThreadCpus | undefined,
): Omit<BackendRequest, "startThread"> {
  const most = bound?.count ?? Number.POSITIVE_INFINITY;
  const target = typeof native === "string" ? undefined : native.target;
  return {
    level,
    native,
    threads:
      threads === undefined
        ? Math.min(tuned.threads ?? platform.cores, most)
        : checkThreads(threads),
    cpusOf: bound?.cpusOf,
    profile,
    exact,
    choose: tuned.choose ?? explainedDefault(target),
    idle: tuned.idle,
    notes: bound ? [bound.note, ...tuned.notes] : tuned.notes,
  };
}

function checkThreads(threads: number): number {
  if (Number.isInteger(threads) && threads >= 1 && threads <= 256) return threads;
  throw new UsageError(`threads: got ${show(threads)}, expected a whole number from 1 to 256`);
}
