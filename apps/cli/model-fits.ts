// The list of models with how each runs on this machine, best first: for `lantern models` and the Models page.

import { mainType } from "../../src/base/file-type-names.ts";
import { quantizationOf } from "../../src/catalog/hub-choice.ts";
import { listModels, type ModelListing } from "../../src/catalog/list.ts";
import {
  type FitOptions,
  inspect,
  ModelError,
  type ModelFit,
  modelFits,
  type OpenOptions,
} from "../../src/index.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import type { LoadPlan } from "../server/serve.ts";

export interface FittedModel extends ModelListing {
  fit: ModelFit;
}

/** Reading speed in tokens per second: slower answers try one's patience. */
const readingSpeed = 6;
/** Memory bandwidth of a common computer, to sort by if nothing was measured. */
const commonRate = 15e9;

export async function listWithFits(
  platform: DownloadPlatform,
  options: FitOptions = {},
): Promise<FittedModel[]> {
  return await withFits(await listModels(platform), options);
}

/** The same for a list that was already read. */
export async function withFits(
  listings: readonly ModelListing[],
  options: FitOptions = {},
): Promise<FittedModel[]> {
  const fits = await modelFits(
    listings.map(({ path, shape, bytes, source }) => ({
      path,
      shape,
      bytes,
      type: weightType(source),
    })),
    options,
  );
  return bestFirst(
    listings.map((listing, at) => {
      const fit = fits[at]!;
      return { ...listing, chat: fit.hasChatTemplate ?? listing.chat, fit };
    }),
  );
}

/** "…-Q4_K_M.gguf" -> "q4_k": the type of most weights in such a file. */
export function weightType(file: string): string | undefined {
  const name = quantizationOf(file)?.replace(/^ud-/i, "");
  return name && mainType(name);
}

/**
 * Chat models that fit and answer at reading speed, the largest (and so the best) first; then slower ones, those that
 * fit when other programs end, models that only continue text, and those that do not fit.
 */
export function bestFirst<M extends Pick<FittedModel, "chat" | "bytes" | "fit">>(
  models: readonly M[],
): M[] {
  return models.toSorted((a, b) => classOf(a) - classOf(b) || withinClass(a, b));
}

type Ranked = Pick<FittedModel, "chat" | "bytes" | "fit">;

function classOf({ chat, fit, bytes }: Ranked): number {
  if (fit.fits === "no") return 5;
  if (fit.fits === "unknown") return 4;
  if (!chat) return 3;
  if (fit.fits === "tight") return 2;
  return (fit.expected ?? commonRate / bytes) >= readingSpeed ? 0 : 1;
}

/** Among fast models the larger is better; among slow or tight ones, the smaller. */
function withinClass(a: Ranked, b: Ranked): number {
  return classOf(a) === 0 ? b.bytes - a.bytes : a.bytes - b.bytes;
}

/** The memory that loading a file would take, from its header. */
export async function loadPlan(
  path: string,
  wanted: number | undefined,
  kvType: OpenOptions["kvType"],
  weights?: OpenOptions["weights"],
): Promise<Omit<LoadPlan, "memoryBytes" | "freeMemoryBytes">> {
  const options = { contextSize: wanted, kvType, weights };
  const { memory, metadata, architecture, tensors } = await inspect(path, options);
  if (!memory) {
    throw new ModelError(
      `this file cannot be run: ${architecture ? `Lantern does not support its architecture, ${architecture}` : "it holds no model"}`,
    );
  }
  const trained = metadata.find(({ key }) => key === `${architecture}.context_length`)?.preview;
  const trainedContext = trained && "value" in trained ? Number(trained.value) : memory.contextSize;
  const { weightBytes, kvBytes, activationBytes: workBytes, totalBytes, contextSize } = memory;
  const layers = new Set(tensors.map(({ name }) => /^blk\.(\d+)\./.exec(name)?.[1])).size - 1;
  return { weightBytes, kvBytes, workBytes, totalBytes, contextSize, trainedContext, layers };
}
