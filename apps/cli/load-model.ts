// Opens the model of the -m flag, with a progress bar for the download and the load.

import { resolveModel } from "../../src/catalog/resolve.ts";
import { type Model, type ModelInfo, open, UsageError } from "../../src/index.ts";
import { inFlags } from "../../src/options/names.ts";
import { cachePlan } from "./cache-explained.ts";
import type { CliContext } from "./command.ts";
import { shiftText } from "./context-flags.ts";
import { type ModelFlags, openOptions } from "./flags.ts";
import { ProgressBar } from "./progress.ts";
import { speculationLine } from "./speculate-flags.ts";
import { bytesText, plural } from "./text.ts";
import { endBackgroundTune } from "./tune-lock.ts";

/** The path (or URL) of a model's name; downloads a catalog model that is not here yet. */
export async function locateModel(
  name: string,
  context: CliContext,
  signal?: AbortSignal,
): Promise<string> {
  const { terminal, downloads } = context;
  let bar: ProgressBar | undefined;
  try {
    return await resolveModel(name, {
      platform: downloads,
      ...(signal && { signal }),
      onDownload: (entry) => {
        bar?.done();
        const size = entry.bytes > 0 ? ` (${bytesText(entry.bytes)}, ${entry.licence})` : "";
        terminal.err(`Downloading ${entry.name}${size} to ${downloads.cacheFolder}\n`);
        bar = new ProgressBar(terminal, { label: entry.name, plainLines: true });
      },
      onProgress: ({ loadedBytes, totalBytes }) => bar?.update(loadedBytes, totalBytes),
    });
  } finally {
    bar?.done();
  }
}

export async function openModel(
  name: string,
  flags: ModelFlags,
  context: CliContext,
  signal?: AbortSignal,
  label: string = "loading",
): Promise<Model> {
  const path = await locateModel(name, context, signal);
  context.log.debug(`model ${name}: ${path}\n`);
  await endBackgroundTune(context);
  const bar = new ProgressBar(context.terminal, { label, plainLines: false });
  try {
    const model = await open(path, {
      ...openOptions(flags),
      ...(signal && { signal }),
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
      onWarning: (warning) => sayWarnings({ warnings: [warning] }, context),
    });
    bar.done();
    sayWarnings(model.info, context);
    for (const line of gpuLines(model.info, flags)) context.log.info(`${line}\n`);
    const disk = diskText(model.info);
    if (disk !== undefined) context.log.info(`${disk}\n`);
    if (flags.explain) {
      const cache = model.info.generates ? cachePlan((await model.status()).cache) : "";
      context.asked(`${explanation(model.info).trimEnd()}\n${indented(cache)}\n`);
    } else if (context.log.has("debug")) context.log.debug(explanation(model.info));
    return model;
  } finally {
    bar.done();
  }
}

function indented(text: string): string {
  return text.replace(/^(?=.)/gm, "  ");
}

/** Refuses an encoder for generation. */
export function checkGenerates(command: string, name: string, { info }: Model): void {
  if (info.generates) return;
  const ranks = info.embedding?.labels
    ? ` or ranks documents: lantern rerank ${name} -q "a query" "a document"`
    : "";
  throw new UsageError(
    `${command}: ${name} (${info.architecture}) makes embeddings and cannot generate text. It turns texts into vectors: lantern embed ${name} "a text" "another"${ranks}`,
  );
}

/** Requests that were only partly honoured. */
export function sayWarnings(
  { warnings = [] }: { readonly warnings?: readonly string[] },
  { log }: CliContext,
): void {
  for (const warning of warnings) log.warn(`Warning: ${inFlags(warning)}\n`);
}

/** The placement of the layers, if no flag sets it, and the flag that would use a GPU; the offer is for people, not for scripts. */
function gpuLines({ backend, hints = [] }: ModelInfo, flags: ModelFlags): string[] {
  if (flags.backend !== undefined || (flags.gpuLayers ?? "auto") !== "auto") return [];
  const onGpu = backend.placement.find(({ isDevice }) => isDevice);
  const offers = hints.map((hint) => `Note: ${inFlags(hint)} (-ngl 0: do not look for one)`);
  if (!onGpu) return offers;
  const all = backend.placement.reduce((sum, { layers }) => sum + layers, 0);
  const what =
    onGpu.layers === all ? `all ${all} layers` : `the last ${onGpu.layers} of ${all} layers`;
  return [`${what} on the GPU ${onGpu.adapter ?? onGpu.backend} (-ngl 0: on the processor)`];
}

/** The expected speed of a model whose weights stay on disk; undefined: all weights are in memory. */
function diskText({ disk, weightBytes }: ModelInfo): string | undefined {
  if (!disk) return undefined;
  const { memoryBytes, tokenBytes, experts, bytesPerSecond, tokensPerSecond } = disk;
  const which = experts
    ? ` (memory holds ${experts.slots} of ${experts.all} experts of a layer, a token uses ${experts.used}; fewer if it uses the same as the one before)`
    : "";
  const place = `${bytesText(memoryBytes)} of ${bytesText(weightBytes)} of weights are in memory, ${bytesText(tokenBytes)} are read from disk for each token${which}`;
  if (!bytesPerSecond || !tokensPerSecond) return place;
  const rate = (bytesPerSecond / 1e9).toFixed(2);
  return `${place}: at the measured ${rate} GB/s ${experts ? "some" : "at most"} ${tokensPerSecond.toPrecision(3)} tokens/s`;
}

/** The matrices that --weights has changed, and each that it has not. */
function heldText({ heldAs }: ModelInfo): string[] {
  if (!heldAs) return [];
  const { type, matrices, kept } = heldAs;
  return [
    `weights: ${plural(matrices, "matrix", "matrices")} held as ${type}, ${kept.length} as in the file`,
    ...kept.map(({ name, dtype, problem }) => `  ${name} keeps ${dtype}: ${problem}`),
  ];
}

/** The backend of the model, and why. */
export function explanation(info: ModelInfo): string {
  const { backend } = info;
  const threads = `${backend.threads} thread${backend.threads === 1 ? "" : "s"}`;
  const first = info.firstStateBytes === undefined ? "" : ` ${bytesText(info.firstStateBytes)},`;
  const memory = `memory: weights ${bytesText(info.weightBytes)}, KV cache (${info.kvType})${first} up to ${bytesText(info.stateBytes)}`;
  const shift = info.generates ? [shiftText(info)] : [];
  const all = [memory, ...shift, ...speculationLine(info), ...heldText(info), ...backend.notes];
  return `backend ${backend.name}, ${threads}\n  ${all.join("\n  ")}\n\n`;
}
