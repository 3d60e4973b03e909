// The flags that several commands share, under llama.cpp's names, with strict parsing of their values: a number must
// be in its range, or the command does not start.

import { type Command, InvalidArgumentError, Option } from "commander";
import { defaultModel } from "../../src/catalog/catalog.ts";
import type {
  GenerateOptions,
  HeldType,
  Isa,
  KvType,
  OpenOptions,
  OptLevel,
} from "../../src/index.ts";
import { defaultKvType, heldTypes, isaNames, kvTypes, UsageError } from "../../src/index.ts";
import { generationRows } from "../../src/options/generation.ts";
import { type OpenName, openRows } from "../../src/options/open.ts";
import { samplingRows } from "../../src/options/sampling.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import type { ContextFlags } from "./context-flags.ts";
import { addCpuFlags, type CpuFlags, cpuBinding } from "./cpu-flags.ts";
import { modelHelp } from "./flag-help.ts";
import { numberFlag, onceFlag } from "./flag-values.ts";
import { addGrammarFlags, type GrammarFlags } from "./grammar-flags.ts";
import { adapterOptions, addLoraFlags, type LoraFlags } from "./lora-flags.ts";
import { addMetadataFlags, type MetadataFlags, metadataOptions } from "./metadata-flags.ts";
import { addRowFlags, rowFlag, rowOptions } from "./option-flags.ts";
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

export interface DraftFlags {
  modelDraft?: string;
  threadsDraft?: number;
  gpuLayersDraft?: number | "all" | "auto";
}

export interface ModelFlags
  extends CpuFlags,
    StateCacheFlags,
    SpeculateFlags,
    TensorFlags,
    LoraFlags,
    MetadataFlags,
    DraftFlags {
  model?: string;
  ctxSize?: number;
  threads?: number;
  ram?: number;
  mmap?: boolean;
  level?: OptLevel;
  isa?: Isa;
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
  /** --tokens of a command that explains. */
  explainTokens?: number[];
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

/** The flag of an option of open(). */
export const openFlag = (name: OpenName): Option => rowFlag(openRows[name]);

/** -md, --model-draft */
export function modelDraftOption(): Option {
  return new Option(
    "--model-draft <model>",
    "a small model that drafts tokens, which the model verifies several at a time: the same text, sooner (also: -md; docs/use/speculation.md)",
  ).argParser(onceFlag);
}

/** --predictors */
function predictorsOption(): Option {
  return new Option(
    "--predictors <file>",
    'predict with this file from "lantern sparsify" which neurons are zero, as with --sparse predict (default there: the predictors in the model\'s own file)',
  ).argParser(onceFlag);
}

/** -m, for a command that takes one model. */
export function modelOption(help: string): Option {
  return new Option("-m, --model <model>", help).argParser(onceFlag);
}

/** -m, -c, -t, --level, --backend, --gpu-layers, --exact, --no-exact, --sparse, --explain, --cache-type, --weights */
export function addModelFlags(
  command: Command,
  modelDefault: string | undefined,
  defaults: RuntimeDefaults = {},
): Command {
  return addRuntimeFlags(command.addOption(modelOption(modelHelp(modelDefault))), defaults);
}

interface RuntimeDefaults {
  cacheType?: KvType;
  /** -ngl auto without a flag; measuring commands compute on the device of their flags. */
  usesGpu?: true;
  level?: 1;
  /** For a command that answers more than once. */
  warmup?: true;
}

/** The flags of addModelFlags but -m: how a model is run. */
export function addRuntimeFlags(command: Command, defaults: RuntimeDefaults = {}): Command {
  const { cacheType = defaultKvType, level, warmup = false, usesGpu } = defaults;
  if (usesGpu) command.setOptionValueWithSource("usesGpu", true, "default");
  addRowFlags(command, openRows, { level, warmup })
    .addOption(isaOption())
    .addOption(predictorsOption())
    .addOption(modelDraftOption())
    .option(
      "--explain",
      "show which kernels compute each part of the model, and why; and where the state of a prompt came from",
    );
  addTensorFlags(command);
  addLoraFlags(command);
  addMetadataFlags(command);
  return addCpuFlags(addCacheTypeFlags(command, cacheType).addOption(weightsOption()));
}

/** The engine decides which of them a processor has. */
export function isaOption(): Option {
  return new Option(
    "--isa <name>",
    "instruction set of the kernels, if another than the best of this processor; wasm: as --no-native",
  ).choices([...isaNames]);
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

/** The KV type of these flags; undefined: none was given. */
export function kvTypeOf({
  cacheType,
  cacheTypeK = cacheType,
  cacheTypeV = cacheType,
}: CacheTypeFlags): OpenOptions["kvType"] {
  if (cacheTypeK === cacheTypeV) return cacheTypeK;
  return { k: cacheTypeK ?? defaultKvType, v: cacheTypeV ?? defaultKvType };
}

/** The default of llama-server's --cache-ram. */
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
      "disk for copies that outlast a restart, in MiB; only this user can read them; 0: none (docs/use/cache.md)",
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
    ...rowOptions(openRows, flags),
    ...(flags.isa !== undefined && { isa: flags.isa }),
    ...gpuLayersOf(flags),
    ...tensorPlaces(flags),
    ...adapterOptions(flags),
    ...metadataOptions(flags),
    ...(!flags.warmup && { warmup: false }),
    ...(flags.predictors !== undefined && { predictors: flags.predictors }),
    ...(flags.tuneFile !== undefined && { tuneFile: flags.tuneFile }),
    ...(flags.explainTokens && { explainTokens: flags.explainTokens }),
    ...(kvType !== undefined && { kvType }),
    ...(flags.modelDraft !== undefined && { draftModel: flags.modelDraft }),
    ...(flags.weights && { weights: flags.weights }),
    ...(flags.template !== undefined && { chatTemplate: flags.template }),
    ...(flags.parallel !== undefined && { parallel: flags.parallel }),
    ...(flags.cacheRam && { cacheRamBytes: flags.cacheRam * 2 ** 20 }),
    ...(flags.cacheDisk && { cacheDiskBytes: flags.cacheDisk * 2 ** 20 }),
    ...(flags.cacheFolder !== undefined && { cacheFolder: flags.cacheFolder }),
    ...(flags.profile && { profile: true }),
    ...(flags.restart && { restart: true }),
    ...(flags.hangTimeout !== undefined && { hangSeconds: flags.hangTimeout }),
  };
}

/** "auto" if that is the default and no flag concerns the processor's own way to compute. */
function gpuLayersOf(flags: ModelFlags): Pick<OpenOptions, "gpuLayers"> {
  if (flags.gpuLayers !== undefined) return { gpuLayers: flags.gpuLayers };
  const { opOffload: _, hotNeurons, ...places } = tensorPlaces(flags);
  const ofProcessor = [
    hotNeurons || undefined,
    ...[flags.backend, flags.gpuFor, flags.level, flags.ram, flags.tuneFile, flags.predictors],
    ...[flags.sparse, flags.isa, cpuBinding(flags), ...Object.values(places)],
  ].some((value) => value !== undefined);
  if (!flags.usesGpu || ofProcessor || flags.native === false || flags.exact || flags.mtp)
    return {};
  return { gpuLayers: "auto" };
}

export function modelOf(flags: ModelFlags): string {
  return flags.model ?? defaultModel;
}

/** Those with a row have the names that commander makes of their flags. */
export interface SamplingFlags extends ContextFlags, GrammarFlags {
  samplers?: string;
  samplerSeq?: string;
  logitBias?: Map<number, number>;
}

/** -n, the sampler's flags, and the stop conditions. Defaults are the engine's. */
export function addSamplingFlags(command: Command): Command {
  addRowFlags(addRowFlags(command, generationRows), samplingRows)
    .option(
      "--logit-bias <id+x>",
      "change a token's logit, as in 15043+1 or 2-inf; repeatable",
      logitBiasFlag,
    )
    .option(
      "--samplers <names>",
      "the samplers in the order in which they run (default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
    )
    .option(
      "--sampler-seq <letters>",
      "the same, with one letter for each sampler (default: edskypmxt)",
    );
  return addSpeculateFlags(addGrammarFlags(command));
}

export function generateOptions(flags: SamplingFlags): GenerateOptions {
  const samplers = flags.samplers?.split(";") ?? flags.samplerSeq;
  return {
    ...rowOptions(generationRows, flags),
    ...rowOptions(samplingRows, flags),
    ...(flags.logitBias && { logitBias: flags.logitBias }),
    ...(samplers !== undefined && { samplers }),
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
