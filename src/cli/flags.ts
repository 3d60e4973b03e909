// The flags that several commands share, under llama.cpp's names, with strict parsing of their values: a number must
// be in its range, or the command does not start.

import { type Command, InvalidArgumentError, Option } from "commander";
import { defaultModel } from "../catalog/catalog.ts";
import type { GenerateOptions, HeldType, KvType, OpenOptions, OptLevel } from "../index.ts";
import { defaultKvType, heldTypes, kvTypes, UsageError } from "../index.ts";
import type { Terminal } from "../platform/node-cli.ts";
import { addContextFlags, type ContextFlags, contextOptions } from "./context-flags.ts";
import { addCpuFlags, type CpuFlags, cpuBinding } from "./cpu-flags.ts";
import { addDraftFlags, type DraftFlags, draftOptions } from "./draft-flags.ts";
import {
  backendHelp,
  bestLevel,
  levelHelp,
  modelHelp,
  mtpHelp,
  ramHelp,
  threadsHelp,
} from "./flag-help.ts";
import {
  byteSizeFlag,
  type NumberRule,
  numberFlag,
  onceFlag,
  repeatedFlag,
} from "./flag-values.ts";
import { addGrammarFlags, type GrammarFlags } from "./grammar-flags.ts";
import { adapterOptions, addLoraFlags, type LoraFlags } from "./lora-flags.ts";
import {
  addMoreSamplingFlags,
  type MoreSamplingFlags,
  moreSamplingOptions,
} from "./sampler-flags.ts";
import { addSpeculateFlags, type SpeculateFlags, speculateOption } from "./speculate-flags.ts";
import { addTensorFlags, type TensorFlags, tensorPlaces } from "./tensor-flags.ts";

/** llama.cpp's form: TOKEN_ID followed by a sign and the bias ("15043+1", "2-inf"). */
function logitBiasFlag(text: string, before: Map<number, number> | undefined): Map<number, number> {
  const match = /^(\d+)([+-])(\d+(?:\.\d*)?|\.\d+|inf)$/.exec(text);
  if (!match) {
    throw new InvalidArgumentError(
      'Expected a token id, a sign and a number: 15043+1 (more likely), 15043-1 (less likely), 15043-inf (never). "lantern tokenize" shows ids.',
    );
  }
  const [, id, sign, size] = match as unknown as [string, string, string, string];
  const bias = (size === "inf" ? Number.POSITIVE_INFINITY : Number(size)) * (sign === "-" ? -1 : 1);
  return new Map(before).set(Number(id), bias);
}

export interface ModelFlags
  extends CpuFlags,
    StateCacheFlags,
    SpeculateFlags,
    TensorFlags,
    LoraFlags,
    DraftFlags {
  model?: string;
  ctxSize?: number;
  threads?: number;
  ram?: number;
  mmap?: boolean;
  level?: OptLevel;
  /** false: --no-native. */
  native?: boolean;
  backend?: string;
  gpuLayers?: number | "all" | "auto";
  gpuFor?: "prompt" | "generation" | "auto";
  exact?: boolean;
  /** -ngl is auto by default (RuntimeDefaults). */
  usesGpu?: true;
  warmup?: boolean;
  sparse?: "auto" | "on" | "off" | "predict";
  predictors?: string;
  explain?: boolean;
  tuneFile?: string;
  cacheType?: KvType;
  cacheTypeK?: KvType;
  cacheTypeV?: KvType;
  weights?: HeldType;
  template?: string;
  /** --parallel, if a command has it. */
  parallel?: number;
  /** --profile, if a command has it. */
  profile?: true | string;
  /** Restart an engine that is lost. */
  restart?: boolean;
  mtp?: boolean;
  hangTimeout?: number;
}

/** --tune-file */
export function tuneFileOption(): Option {
  return new Option(
    "--tune-file <path>",
    'use the times in this file from "lantern tune --file", instead of those stored on this machine',
  );
}

/** -ngl, --gpu-layers */
export function gpuLayersOption(): Option {
  return new Option(
    "--gpu-layers <n>",
    "layers on the GPU, counted from the last, the output as one of them; all: every layer, auto: as many as fit (also: -ngl) (default: auto, with a real GPU, in commands that answer; 0 in those that measure; all with --backend webgpu)",
  ).argParser(gpuLayersFlag);
}

/** --gpu-for */
export function gpuForOption(): Option {
  return new Option(
    "--gpu-for <what>",
    "what the GPU computes, with all layers on the processor as well: prompts, generated tokens, or what was measured to be faster (auto)",
  ).choices(["prompt", "generation", "auto"]);
}

/** --sparse */
function sparseOption(): Option {
  return new Option(
    "--sparse <when>",
    "leave out neurons of ReLU networks that are zero: the same text, faster to generate where most are, slower prompts; auto: where it is measured to be faster; predict: those that predictors expect to be zero, for a slightly different text (docs/sparse.md) (default: auto)",
  ).choices(["auto", "on", "off", "predict"]);
}

const sparseWords = { auto: "auto", on: true, off: false, predict: "predict" } as const;

/** --predictors */
function predictorsOption(): Option {
  return new Option(
    "--predictors <file>",
    'predict with this file from "lantern sparsify" which neurons are zero, as with --sparse predict (default there: the predictors in the model\'s own file)',
  ).argParser(onceFlag);
}

/** --exact */
export function exactOption(): Option {
  return new Option(
    "--exact",
    "layers on the GPU compute the very bits of the processor: the same text at every -ngl, slower (docs/gpu.md)",
  );
}

const layerCount = numberFlag({ integer: true, min: 0 });

export function gpuLayersFlag(text: string): number | "all" | "auto" {
  if (text === "all" || text === "auto") return text;
  if (text === "-1") return "all"; // as in llama.cpp
  try {
    return layerCount(text);
  } catch {
    throw new InvalidArgumentError("Expected all, auto or a whole number of at least 0.");
  }
}

/** -m, for a command that takes one model. */
export function modelOption(help: string): Option {
  return new Option("-m, --model <model>", help).argParser(onceFlag);
}

/** -m, -c, -t, --level, --backend, --gpu-layers, --exact, --sparse, --explain, --cache-type, --weights */
export function addModelFlags(
  command: Command,
  modelDefault: string | undefined,
  defaults: RuntimeDefaults = {},
): Command {
  return addRuntimeFlags(command.addOption(modelOption(modelHelp(modelDefault))), defaults);
}

interface RuntimeDefaults {
  cacheType?: KvType;
  /** -ngl auto, where nothing says otherwise; measuring commands compute on what they are told. */
  usesGpu?: true;
  level?: 1;
  /** Of a command that answers more than once. */
  warmup?: true;
}

/** The flags of addModelFlags but -m: how a model is run. */
export function addRuntimeFlags(command: Command, defaults: RuntimeDefaults = {}): Command {
  const { cacheType = defaultKvType, level, warmup = false, usesGpu } = defaults;
  if (usesGpu) command.setOptionValueWithSource("usesGpu", true, "default");
  command
    .option(
      "-c, --ctx-size <n>",
      "size of the context, in tokens (default: the model's own, at most 4096)",
      numberFlag({ integer: true, min: 1, max: 1 << 24 }),
    )
    .option("-t, --threads <n>", threadsHelp, numberFlag({ integer: true, min: 1, max: 256 }))
    .option("--ram <size>", ramHelp, byteSizeFlag)
    .option("--mmap", "leave weights on disk that do not fit in memory (default)")
    .option("--no-mmap", "refuse a model that does not fit in memory")
    .option(
      "--level <n>",
      levelHelp(level ? undefined : bestLevel),
      numberFlag({ integer: true, min: 1, max: 4 }),
      level,
    )
    .option("--no-native", "use WebAssembly instead of machine code, as with --level 3")
    .option("--backend <name>", backendHelp)
    .addOption(gpuLayersOption())
    .option("--mtp", mtpHelp)
    .addOption(gpuForOption())
    .addOption(exactOption())
    .option(
      "--warmup",
      "compute made-up batches when a GPU has loaded a model, so that the first answer takes no longer than others",
      warmup,
    )
    .option("--no-warmup", "do not: the model is loaded sooner")
    .addOption(sparseOption())
    .addOption(predictorsOption())
    .option(
      "--explain",
      "show which kernels compute each part of the model, and why; and where the state of a prompt came from",
    );
  addTensorFlags(command);
  addLoraFlags(command);
  addDraftFlags(command, gpuLayersFlag);
  return addCpuFlags(addCacheTypeFlags(command, cacheType).addOption(weightsOption()));
}

/** --cache-type, --cache-type-k, --cache-type-v */
export function addCacheTypeFlags(command: Command, cacheType?: KvType): Command {
  const option = (flag: string, help: string) =>
    new Option(`${flag} <type>`, help).choices([...kvTypes]);
  const both = option("--cache-type", "type of the KV cache");
  return command
    .addOption(cacheType === undefined ? both : both.default(cacheType))
    .addOption(option("--cache-type-k", "type of its keys, if another than of values (also: -ctk)"))
    .addOption(option("--cache-type-v", "type of its values (also: -ctv)"));
}

type CacheTypeFlags = Pick<ModelFlags, "cacheType" | "cacheTypeK" | "cacheTypeV">;

/** These of a command's flags. */
export function cacheTypes({ cacheType, cacheTypeK, cacheTypeV }: CacheTypeFlags): CacheTypeFlags {
  return {
    ...(cacheType && { cacheType }),
    ...(cacheTypeK && { cacheTypeK }),
    ...(cacheTypeV && { cacheTypeV }),
  };
}

/** What these flags say; undefined: nothing. */
export function kvTypeOf({
  cacheType,
  cacheTypeK = cacheType,
  cacheTypeV = cacheType,
}: CacheTypeFlags): OpenOptions["kvType"] {
  if (cacheTypeK === cacheTypeV) return cacheTypeK;
  return { k: cacheTypeK ?? defaultKvType, v: cacheTypeV ?? defaultKvType };
}

/** As llama-server's --cache-ram. */
export const defaultCacheMib = { ram: 1024, disk: 8192 } as const;

export interface StateCacheFlags {
  cacheRam?: number;
  cacheDisk?: number;
  cacheFolder?: string;
}

/** --cache-ram, --cache-disk, --cache-folder; `isOn`: with room for copies by default. */
export function addStateCacheFlags(command: Command, isOn: boolean): Command {
  const { ram, disk } = isOn ? defaultCacheMib : { ram: 0, disk: 0 };
  const mib = numberFlag({ integer: true, min: 0, max: 1 << 24 });
  return command
    .option(
      "--cache-ram <mib>",
      "memory for copies of conversations that left the KV cache, in MiB; 0: none",
      mib,
      ram,
    )
    .option(
      "--cache-disk <mib>",
      "disk for copies that outlast a restart, in MiB; only this user can read them; 0: none (docs/cache.md)",
      mib,
      disk,
    )
    .option("--cache-folder <path>", "folder of the copies on disk (default: in the cache folder)");
}

/** --pooling */
export function poolingOption(): Option {
  return new Option(
    "--pooling <type>",
    "how the hidden states of a text become its vector; mean: of all tokens, cls: the first token's, last: the last token's, none: a vector for each token, rank: the scores of the model's classifier (default: as the model's file asks for, else mean)",
  ).choices(["none", "mean", "cls", "last", "rank"]);
}

/** --weights */
export function weightsOption(): Option {
  return new Option(
    "--weights <type>",
    "hold F32 and BF16 matrices as F16, in half of F32's memory; those that F16 cannot hold keep their type",
  ).choices([...heldTypes]);
}

export function openOptions(flags: ModelFlags): OpenOptions {
  const binding = cpuBinding(flags);
  const kvType = kvTypeOf(flags);
  const speculate = speculateOption(flags);
  return {
    ...(speculate !== undefined && { speculate }),
    ...(binding && { binding }),
    ...(flags.ctxSize !== undefined && { contextSize: flags.ctxSize }),
    ...(flags.threads !== undefined && { threads: flags.threads }),
    ...(flags.ram !== undefined && { ramBytes: flags.ram }),
    ...(flags.mmap === false && { mmap: false }),
    ...(flags.level !== undefined && { level: flags.level }),
    ...(flags.native === false && { native: false }),
    ...(flags.backend !== undefined && { backend: flags.backend }),
    ...gpuLayersOf(flags),
    ...(flags.gpuFor !== undefined && { gpuFor: flags.gpuFor }),
    ...tensorPlaces(flags),
    ...adapterOptions(flags),
    ...(flags.exact && { exact: true }),
    ...(!flags.warmup && { warmup: false }),
    ...(flags.sparse && { sparse: sparseWords[flags.sparse] }),
    ...(flags.predictors !== undefined && { predictors: flags.predictors }),
    ...(flags.tuneFile !== undefined && { tuneFile: flags.tuneFile }),
    ...(kvType !== undefined && { kvType }),
    ...draftOptions(flags),
    ...(flags.weights && { weights: flags.weights }),
    ...(flags.template !== undefined && { chatTemplate: flags.template }),
    ...(flags.parallel !== undefined && { parallel: flags.parallel }),
    ...(flags.cacheRam && { cacheRamBytes: flags.cacheRam * 2 ** 20 }),
    ...(flags.cacheDisk && { cacheDiskBytes: flags.cacheDisk * 2 ** 20 }),
    ...(flags.cacheFolder !== undefined && { cacheFolder: flags.cacheFolder }),
    ...(flags.profile && { profile: true }),
    ...(flags.restart && { restart: true }),
    ...(flags.mtp && { mtp: true }),
    ...(flags.hangTimeout !== undefined && { hangSeconds: flags.hangTimeout }),
  };
}

/** "auto" where it is the default and no flag is about the processor's own way to compute. */
function gpuLayersOf(flags: ModelFlags): Pick<OpenOptions, "gpuLayers"> {
  if (flags.gpuLayers !== undefined) return { gpuLayers: flags.gpuLayers };
  const ofProcessor = [
    ...[flags.backend, flags.gpuFor, flags.level, flags.ram, flags.tuneFile, flags.predictors],
    ...[flags.sparse, cpuBinding(flags), ...Object.values(tensorPlaces(flags))],
  ].some((value) => value !== undefined);
  if (!flags.usesGpu || ofProcessor || flags.native === false || flags.exact || flags.mtp)
    return {};
  return { gpuLayers: "auto" };
}

export function modelOf(flags: ModelFlags): string {
  return flags.model ?? defaultModel;
}

export interface SamplingFlags extends MoreSamplingFlags, ContextFlags, GrammarFlags {
  predict?: number;
  temp?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  typical?: number;
  repeatPenalty?: number;
  repeatLastN?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  logitBias?: Map<number, number>;
  seed?: number;
  stop?: string[];
  reversePrompt?: string[];
  ignoreEos?: boolean;
}

const probability: NumberRule = { min: 0, max: 1 };

/** -n, the sampler's flags, and the stop conditions. Defaults are the engine's. */
export function addSamplingFlags(command: Command): Command {
  command
    .option(
      "-n, --predict <n>",
      "generate at most this many tokens; -1: until the model stops",
      numberFlag({ integer: true, min: 0, also: -1 }),
    )
    .option(
      "--temp <x>",
      "temperature; 0: always the most likely token (default: 0.8)",
      numberFlag({ min: 0 }),
    )
    .option(
      "--top-k <k>",
      "keep the k most likely tokens; 0: all (default: 40)",
      numberFlag({ integer: true, min: 0 }),
    )
    .option(
      "--top-p <p>",
      "keep the most likely tokens whose probabilities add up to this; 1: all (default: 0.95)",
      numberFlag(probability),
    )
    .option(
      "--min-p <p>",
      "drop tokens whose probability is below this fraction of the highest one; 0: none (default: 0.05)",
      numberFlag(probability),
    )
    .option(
      "--typical <p>",
      "locally typical sampling; 1: off (default: 1)",
      numberFlag(probability),
    )
    .option(
      "--repeat-penalty <x>",
      "make recent tokens less likely; 1: off (default: 1)",
      numberFlag({ min: 0 }),
    )
    .option(
      "--repeat-last-n <n>",
      "how many recent tokens the penalties look at; 0: off, -1: all (default: 64)",
      numberFlag({ integer: true, min: 0, also: -1 }),
    )
    .option(
      "--frequency-penalty <x>",
      "penalty for each earlier occurrence of a token (default: 0)",
      numberFlag({}),
    )
    .option(
      "--presence-penalty <x>",
      "penalty for tokens that have occurred at all (default: 0)",
      numberFlag({}),
    )
    .option(
      "--logit-bias <id+x>",
      "change a token's logit, as in 15043+1 or 2-inf; repeatable",
      logitBiasFlag,
    )
    .option(
      "-s, --seed <n>",
      "seed; the same seed gives the same text; -1: a random one (default: -1)",
      numberFlag({ integer: true, min: 0, also: -1 }),
    )
    .option("--stop <text>", "stop before this text; repeatable", repeatedFlag)
    .addOption(
      new Option("-r, --reverse-prompt <text>", "the same as --stop").argParser(repeatedFlag),
    )
    .option("--ignore-eos", "never choose a token that ends the text: write until a limit");
  return addSpeculateFlags(addGrammarFlags(addContextFlags(addMoreSamplingFlags(command))));
}

export function generateOptions(flags: SamplingFlags): GenerateOptions {
  const stop = [...(flags.stop ?? []), ...(flags.reversePrompt ?? [])];
  const options: { [K in keyof GenerateOptions]: GenerateOptions[K] | undefined } = {
    maxTokens: flags.predict === -1 ? undefined : flags.predict,
    temperature: flags.temp,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    typicalP: flags.typical,
    repeatPenalty: flags.repeatPenalty,
    repeatLastN: flags.repeatLastN,
    frequencyPenalty: flags.frequencyPenalty,
    presencePenalty: flags.presencePenalty,
    logitBias: flags.logitBias,
    seed: flags.seed === -1 ? undefined : flags.seed,
    stop: stop.length > 0 ? stop : undefined,
    ignoreEos: flags.ignoreEos,
  };
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return {
    ...(Object.fromEntries(given) as GenerateOptions),
    ...moreSamplingOptions(flags),
    ...contextOptions(flags),
  };
}

export interface PromptFlags {
  prompt?: string;
  file?: string;
}

/** -p, -f */
export function addPromptFlags(command: Command, promptDefault: string): Command {
  return command
    .option("-p, --prompt <text>", `text to continue (default: "${promptDefault}")`)
    .option("-f, --file <path>", "read the prompt from a file; -: from standard input");
}

export async function promptOf(
  flags: PromptFlags,
  promptDefault: string,
  terminal: Terminal,
): Promise<string> {
  const { prompt, file } = flags;
  if (prompt !== undefined && file !== undefined) {
    throw new UsageError(
      "flags: got both -p/--prompt and -f/--file, expected one of them. Drop one",
    );
  }
  if (file === "-") return terminal.readInput();
  if (file !== undefined) return terminal.readText(file);
  return prompt ?? promptDefault;
}
