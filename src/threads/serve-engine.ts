// The composition root of the engine's thread: opens the model's files, chooses tokenizer, template and backend from their
// tables, and hands the loaded engine to the host (engine/host.ts).

import type { Backend, WeightFiles } from "../backends/backend.ts";
import { layersAdvice } from "../backends/split/divide.ts";
import type { BackendRequest } from "../backends/table.ts";
import {
  AbortedError,
  DeviceMemoryError,
  FormatError,
  MemoryError,
  messageOf,
  SourceError,
  UsageError,
} from "../base/errors.ts";
import { hex, sha256 } from "../base/sha256.ts";
import { show } from "../base/show.ts";
import { kvDTypeOf } from "../dtypes/kv-types.ts";
import { deviceLayers } from "../engine/device-layers.ts";
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
import { withOverrides } from "../formats/overridden.ts";
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
import type { ExactChoice } from "../tune/exact-choice.ts";
import type { GivenTune } from "../tune/given.ts";
import type { HotChoice } from "../tune/hot-choice.ts";
import { SparseChoice, TRIAL_TEXT } from "../tune/sparse-choice.ts";
import { GPU_TUNE_FILE, isGpuFile, tuneFileOf } from "../tune/tune-target.ts";
import type { TunedUse } from "../tune/use.ts";
import { exactChoice, gpuName, hotChoice } from "./choose-division.ts";
import { type OpenedAdapter, openAdapterFiles, withAdapters } from "./open-adapters.ts";
import { checkLeftOut, checkPredicted, NO_PREDICTORS, openPredictors } from "./open-predictors.ts";
import type { SpareThreads } from "./spare-threads.ts";

const platform = await currentPlatform();

/** Serves one model on this thread. `spares`: compute threads that are starting already. */
export function serve(port: EnginePort, spares: SpareThreads): void {
  serveEngine(port, {
    load: (request, watch) => loadAll(request, watch, spares).finally(() => spares.end()),
    yieldThread: platform.yieldThread,
    now: platform.now,
    beforeEnd: platform.keepCode,
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
 * Loads with the GPU layers that fit. A GPU may turn out to have too little memory only after it gave the requested amount, as when the
 * first batch is computed: then "auto" continues with fewer layers, and a requested number is refused with the number that was loaded
 * instead.
 */
async function load(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes = 0,
): Promise<Engine> {
  const isAuto = request.gpuLayers === "auto" || request.gpuFor === "auto";
  let asked = request;
  for (let refused: DeviceMemoryError | undefined; ; ) {
    try {
      const engine = await loadSomewhere(asked, watch, spares, reservedBytes);
      if (isAuto || !refused) return engine;
      const { layers, all } = deviceLayers(engine.info.backend.placement);
      engine.dispose();
      await engine.ended();
      throw new MemoryError(`${refused.message}. ${layersAdvice(layers, all)}`, { cause: refused });
    } catch (error) {
      if (!(error instanceof DeviceMemoryError) || !error.layers) throw error;
      refused ??= error;
      const { gpuFor: _, ...rest } = asked;
      asked = { ...rest, gpuLayers: "auto", mostGpuLayers: error.layers - 1 };
    }
  }
}

/** The failure of a GPU that "auto" has taken, for a missing op, say, is a warning: it was not demanded. */
async function loadSomewhere(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes: number,
): Promise<Engine> {
  const gpu = await chooseGpuLayers(request, platform);
  const { gpuLayers } = gpu;
  try {
    return await loadFaster({ ...request, gpuLayers }, watch, spares, reservedBytes, gpu);
  } catch (error) {
    if (gpuLayers !== "auto" || isOfFile(error) || error instanceof DeviceMemoryError) throw error;
    const warning = `gpuLayers: auto: the GPU could not be used, so the processor computes all layers (${messageOf(error)}). \`gpuLayers: 0\` does not try it`;
    const without = { ...gpu, warnings: [...gpu.warnings, warning] };
    return await loadFaster({ ...request, gpuLayers: 0 }, watch, spares, reservedBytes, without);
  }
}

/** Whether the processor would fail with the same error. */
function isOfFile(error: unknown): boolean {
  const kinds = [AbortedError, SourceError, FormatError];
  return kinds.some((kind) => error instanceof kind);
}

/**
 * Loads again if the other choice is faster (tune/sparse-choice.ts). `reservedBytes`: the memory that a model that is loaded already may
 * still fill.
 */
async function loadFaster(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes: number,
  gpu: GpuChoice,
): Promise<Engine> {
  const choices = {
    choice: await sparseChoice(request),
    exact: await exactChoice(request, platform),
    hot: await hotChoice(request, platform),
  };
  const { exact, hot } = choices;
  const loadAs = (how: LoadWatch) => loadOnce(request, how, spares, reservedBytes, choices, gpu);
  const tryLoad = async (how: LoadWatch): Promise<Engine> => {
    try {
      return await loadAs(how);
    } catch (error) {
      // Exact kernels and hot neurons were not asked for: a model that has none is loaded without.
      if (isOfFile(error)) throw error;
      const isFull = error instanceof DeviceMemoryError; // load() tries fewer layers, with the same bits
      if (exact?.wanted && !isFull) await exact.refused(messageOf(error));
      else if (hot?.wanted !== undefined) await hot.refused(messageOf(error));
      else throw error;
      return await loadAs(how);
    }
  };
  let engine = await tryLoad(watch);
  const quietly = { ...watch, progress: () => {} };
  while (Object.values(choices).some((one) => one?.mustReload)) {
    engine.dispose();
    await engine.ended();
    engine = await tryLoad(quietly);
  }
  return engine;
}

/** The measurement that decides whether neurons are left out; undefined: the request decides. A model over HTTP is not loaded twice. */
async function sparseChoice({ sparse, spec, backend = "cpu", ...asked }: OpenRequest) {
  const { gpuLayers, gpuFor, overrideTensors, cpuExperts, expertSlots, hotNeurons } = asked;
  const others = [gpuFor, overrideTensors, cpuExperts, expertSlots];
  const isPlain = backend === "cpu" && others.every((other) => other === undefined);
  // Adapters read the values of all neurons.
  if (sparse !== "auto" || spec.kind === "url" || !isPlain || asked.adapters?.length) {
    return undefined;
  }
  const kernels = asked.native ? "machine code" : "WebAssembly";
  const gpu = gpuLayers || hotNeurons ? await gpuName(platform) : undefined;
  const beside = gpu && `, ${gpuLayers} layers, ${hotNeurons ?? "no"} hot neurons on ${gpu}`;
  const machine = `${platform.cpu()}, ${kernels}${beside ?? ""}`;
  const { now, availableMemory } = platform;
  return new SparseChoice({ files: platform.smallFiles(), now, availableMemory, machine });
}

/** The measurements of a model while it is loaded, for choices that the request leaves open. */
interface Choices {
  readonly choice: SparseChoice | undefined;
  readonly exact: ExactChoice | undefined;
  readonly hot: HotChoice | undefined;
}

async function loadOnce(
  request: OpenRequest,
  watch: LoadWatch,
  spares: SpareThreads,
  reservedBytes: number,
  { choice, exact, hot }: Choices,
  gpu: GpuChoice,
): Promise<Engine> {
  const kvType = kvDTypeOf(request.kvType);
  const laps = request.profile ? new Laps(platform.now, platform.heapBytes) : undefined;
  laps?.resume(startMs(request));
  laps?.lap("load", "start");
  const bound = await bind(request);
  const { overrideKv } = request;
  const source = await platform.openModelSource(request.spec);
  const stored = withOverrides(await openModelFile(source), overrideKv);
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
    const tuned: TunedUse | undefined = request.tuned
      ? await choices?.measuredTuning(
          platform,
          file,
          request.threads,
          native,
          given,
          request.explainTokens,
        )
      : { notes: ["kernels: defaults; tuning is switched off"] };
    const asked = backendRequest(request, level, tuned ?? { notes: [untuned] }, bound);
    const { threads } = asked;
    const ownName = await weightsName(request, model);
    // State that was computed with other metadata is another model's.
    const changed = overrideKv?.length ? JSON.stringify(overrideKv) : "";
    const nameOfWeights = async () => `${await ownName()}${predicted.fingerprint}${changed}`;
    const notes = [...(asked.notes ?? []), ...gpu.notes];
    const isSparse =
      adapters.length === 0 && (request.sparse === true || predicted.part !== undefined);
    if (request.sparse === true && !isSparse) notes.push("neurons: adapters read all of them");
    await choice?.begin(await nameOfWeights(), threads, notes);
    const splitNotes: string[] = [];
    await exact?.begin(splitNotes);
    const isExact = request.exact ?? exact?.wanted ?? false;
    if (!isExact) await hot?.begin(await nameOfWeights(), threads, splitNotes);
    const share = isExact ? undefined : hot?.wanted;
    const placed =
      share === undefined ? request : { ...request, gpuLayers: "all" as const, hotNeurons: share };
    const wanted = {
      ...asked,
      exact: isExact,
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
    const offloadKey =
      isRemote || platform.env("LANTERN_NO_TUNE")
        ? undefined
        : {
            ...{ model: await nameOfWeights(), cpu: platform.cpu(), threads },
            kernels: `${level.level}, ${native ? native.target : "WebAssembly"}`,
          };
    const lookups = request.tuned ? { tunedGpu, sides, offloadKey } : {};
    const chosen = await chooseBackend({ ...placed, splitNotes }, wanted, platform, lookups);
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
      ...(tuned?.isTuned && { isTuned: true }),
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
        promptChunk:
          request.batchTokens !== undefined
            ? () => request.batchTokens
            : chosen.usesGpu
              ? undefined
              : await choices?.measuredChunk(backend.threads),
        batchShape: chosen.usesGpu ? undefined : batchShape,
        laps,
        cores: request.cores,
        hints: gpu.hints,
        wantsZeros: request.sparse === true,
        warnings: [
          ...gpu.warnings,
          ...warnings,
          ...(chosen.warnings ?? []),
          ...(await predicted.warnings(ownName)),
          ...(bound?.warnings(backend.threads) ?? []),
        ],
        heldAs,
        speculate: request.speculate,
        usesNext: request.mtp,
        warmup: request.warmup,
        loaded: async (plan) => {
          if (predicted.part) checkLeftOut(chosen.backend);
          const { split, offload } = chosen;
          await choice?.measure(chosen.backend, plan, encoded, watch.check);
          if (choice?.mustReload) return; // the rest is measured with the chosen configuration
          // First: exact kernels have no op offload, and its gain is a part of their cost.
          await offload?.decide(watch.check);
          await exact?.measure(chosen.backend, plan, watch.check);
          const zeros = choice?.zeros;
          if (!split || isExact || exact?.mustReload || zeros === undefined) return;
          const tokens = encoded(TRIAL_TEXT);
          const offer = () => split.hotOffer(zeros);
          const { check } = watch;
          const helpedFrom = offload?.backend.helpsFrom ?? Number.POSITIVE_INFINITY;
          await hot?.measure({ backend: split, plan, tokens, check, offer, helpedFrom });
        },
        tiers: await tierOptions(request, isExact, nameOfWeights, file.name),
        stateFacts: async () => [await nameOfWeights()],
        fingerprint: async () => {
          // The same wherever the file is; of a remote one the samples are here by now.
          const own = isRemote ? await weightsFingerprint(model, LOCAL_SAMPLES) : await ownName();
          const added = adapters.map(({ part: { fingerprint, scale } }) => [fingerprint, scale]);
          const facts = [own, predicted.fingerprint, added, parts.tokenizer.fingerprint];
          if (changed !== "") facts.push(changed);
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
    if (error instanceof DeviceMemoryError) {
      error.layers ??= deviceLayers(backend?.placement?.() ?? []).layers;
    }
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
  { cacheRamBytes = 0, cacheDiskBytes = 0, cacheFolder }: OpenRequest,
  exact: boolean,
  nameOfWeights: () => Promise<string>,
  model: string,
): Promise<EngineOptions["tiers"]> {
  // For tests, and for users who want no state on any disk.
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

/** The name of the weights. Over HTTP each sample is a request: then samples are read only when the name is needed. */
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

/** The file with its weights in the wanted type, and the warnings about that. */
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
  // At most this many bytes are loaded afterwards.
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

/** The weights in local files, which every thread can read. */
function weightFiles(file: ModelFile): WeightFiles | undefined {
  const { readAt, openDirect } = platform;
  const partsOf = (tensor: string) => file.filePartsOf(file.tensors.get(tensor)!);
  return readAt && { readAt, openDirect, partsOf };
}

/** The part of free memory that a model may fill: one that stays on disk would otherwise take all of it. */
const FREE_PART = 0.9;
/** Threads that read weights from disk, and their code. */
const READERS_BYTES: number = 256 << 20;

/** The memory that the model may take; undefined: it is refused if it needs more than is free. */
function ramBudget({ ramBytes, mmap }: OpenRequest): BackendRequest["ram"] {
  const free = platform.availableMemory();
  if (!mmap || (ramBytes === undefined && free === undefined)) return undefined;
  const most = Math.min(ramBytes ?? Number.POSITIVE_INFINITY, free ?? Number.POSITIVE_INFINITY);
  const experts = expertReads();
  if (free === undefined) return { limitBytes: most, budgetBytes: most, experts };
  const left = Math.max(0, free * FREE_PART - READERS_BYTES);
  return { limitBytes: most, budgetBytes: Math.min(most, left), experts };
}

/** For comparisons (docs/use/memory.md): how experts on disk are read. */
function expertReads(): NonNullable<BackendRequest["ram"]>["experts"] {
  const name = "LANTERN_DISK_EXPERTS";
  const given = platform.env(name);
  if (given === undefined) return undefined;
  const known = (["measured", "always", "never", "all"] as const).find((one) => one === given);
  if (known) return known;
  throw new UsageError(`${name}: got "${given}", expected measured, always, never or all`);
}

/** The speed of reading the model from disk. */
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

/** Guard mode checks generated code (docs/inside/processors.md); it is loaded only when it is on. */
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
  { threads, profile, explainTokens }: OpenRequest,
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
    choose: tuned.choose ?? explainedDefault(target, explainTokens),
    idle: tuned.idle,
    notes: bound ? [bound.note, ...tuned.notes] : tuned.notes,
  };
}

function checkThreads(threads: number): number {
  if (Number.isInteger(threads) && threads >= 1 && threads <= 256) return threads;
  throw new UsageError(`threads: got ${show(threads)}, expected a whole number from 1 to 256`);
}
