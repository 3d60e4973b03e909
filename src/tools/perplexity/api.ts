// The public API of perplexity: takes an open model or opens one, opens the base file, and calls src/tools/perplexity/
// to measure. That code is loaded when it is called: a page that only chats never loads it.

import type { Model, ModelLocation, OpenOptions } from "../../api/api.ts";
import { SourceError, UsageError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { open } from "../../open.ts";
import { currentPlatform } from "../../platform/current.ts";
import type { OutputFile } from "../../platform/output-file.ts";
import type { Platform } from "../../platform/platform.ts";
import { inspect } from "../inspect/api.ts";
import type { BaseFile, BaseSink } from "./base-file.ts";
import type { PerplexityOptions, PerplexityResult } from "./perplexity.ts";
import type { QualityPoint } from "./picture.ts";

export type {
  PerplexityOptions,
  PerplexityProgress,
  PerplexityResult,
} from "./perplexity.ts";
export type { QualityPoint } from "./picture.ts";
export type { BaseComparison, Estimate } from "./statistics.ts";

const knownOptions: OptionNames<PerplexityOptions> = {
  contextSize: true,
  chunks: true,
  base: true,
  saveBase: true,
  replace: true,
  parallel: true,
  parseSpecial: true,
  open: true,
  signal: true,
  onOpen: true,
  onProgress: true,
};

/**
 * The perplexity of a model on a text: exp of the mean negative log-probability of its tokens, by llama.cpp's method. The text may
 * be undefined with a base: then it is the one that the base was saved from.
 */
export async function perplexity(
  model: Model | ModelLocation,
  text: string | undefined,
  options: PerplexityOptions = {},
): Promise<PerplexityResult> {
  checkOptionNames("perplexity()", options, knownOptions);
  const platform = await currentPlatform();
  const { measurePerplexity } = await import("./perplexity.ts");
  const base = await openBase(options, platform);
  const output = baseOutput(model, options, platform);
  try {
    await using opened = isModel(model) ? undefined : await openFor(model, base, options);
    const input = {
      model: opened ?? (model as Model),
      text,
      base,
      createBase: output?.create,
      now: () => platform.now(),
    };
    const result = await measurePerplexity(input, options);
    await output?.finish();
    return result;
  } finally {
    await output?.discard();
    await base?.close();
  }
}

interface BaseOutput {
  create(bytes: number): Promise<BaseSink>;
  finish(): Promise<void>;
  discard(): Promise<void>;
}

/**
 * Opens the output of a base once its size is known: a disk that is too small is reported before anything is computed.
 */
function baseOutput(
  model: Model | ModelLocation,
  { saveBase, base, replace = false }: PerplexityOptions,
  platform: Platform,
): BaseOutput | undefined {
  if (saveBase === undefined) return undefined;
  if (typeof saveBase !== "string") {
    return { create: async () => saveBase, finish: async () => {}, discard: async () => {} };
  }
  const { createOutputFile } = platform;
  if (!createOutputFile) {
    throw new UsageError(
      "perplexity(): saveBase: this platform cannot write files. Give an object with a write() method instead of a path",
    );
  }
  const inputs = [model, base]
    .filter((input) => typeof input === "string")
    .map((path) => ({ path, files: [] }));
  let file: OutputFile | undefined;
  return {
    create: async (bytes) => {
      file = await createOutputFile(saveBase, { replace, bytes, inputs });
      return file;
    },
    finish: async () => await file?.finish(),
    discard: async () => await file?.discard(),
  };
}

/** Perplexity by bytes per weight, one point for each file, as SVG text. */
export async function perplexityPicture(points: readonly QualityPoint[]): Promise<string> {
  const { qualityPicture } = await import("./picture.ts");
  return qualityPicture(points);
}

function isModel(model: Model | ModelLocation): model is Model {
  return typeof model === "object" && "score" in model;
}

/** Opens a model with a context of one window, for as many sequences as windows that are computed at once. */
async function openFor(
  location: ModelLocation,
  base: BaseFile | undefined,
  options: PerplexityOptions,
): Promise<Model> {
  const { DEFAULT_WINDOW } = await import("./perplexity.ts");
  const contextSize =
    base?.window ??
    options.contextSize ??
    Math.min(DEFAULT_WINDOW, (await inspect(location)).memory?.contextSize ?? DEFAULT_WINDOW);
  const { parallel, signal } = options;
  const openOptions: OpenOptions = {
    ...options.open,
    contextSize,
    ...(parallel !== undefined && { parallel }),
    ...(signal && { signal }),
  };
  return await open(location, openOptions);
}

async function openBase(
  { base, chunks }: PerplexityOptions,
  platform: Platform,
): Promise<BaseFile | undefined> {
  if (base === undefined) return undefined;
  const { openBaseFile } = await import("./base-file.ts");
  const source = await platform.openModelSource(platform.describeSource(base));
  if (source.main === undefined) {
    throw new SourceError(`${source.name}: got a folder, expected a file of saved probabilities`);
  }
  const file = await source.open(source.main);
  try {
    return await openBaseFile(file, chunks);
  } catch (error) {
    await file.close();
    throw error;
  }
}
