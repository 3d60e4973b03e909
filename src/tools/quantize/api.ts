// The public API of quantization: opens the model and the importance matrix, starts threads, calls src/tools/quantize/
// to plan and compute, and makes the output atomic. The tool is loaded when it is called.

import type { LoadProgress, ModelInfo, ModelLocation, OpenOptions } from "../../api/api.ts";
import { AbortedError, ModelError, UsageError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { show } from "../../base/show.ts";
import type { ByteSink } from "../../formats/gguf/writer.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import { openModelFile } from "../../formats/open-model-file.ts";
import { tokenizerOf } from "../../load/compose.ts";
import { locate } from "../../load/locate.ts";
import { open } from "../../open.ts";
import { currentPlatform } from "../../platform/current.ts";
import {
  type InputFiles,
  type OutputFileOptions,
  writeOutput,
} from "../../platform/output-file.ts";
import type { Platform, SourceSpec } from "../../platform/platform.ts";
import { recording } from "../../platform/sources/recording.ts";
import type { AsGguf } from "../convert/as-gguf.ts";
import { inspect } from "../inspect/api.ts";
import type { Importance } from "./importance.ts";
import type { PlannedTensor, TypePattern } from "./plan.ts";
import type { QuantizedTensor } from "./quantize.ts";
import type { WrittenType } from "./written.ts";

export type { QuantizedTensor } from "./quantize.ts";
export type { WrittenType } from "./written.ts";

export interface QuantizeOptions {
  /** Types by name: "attn_v=q8_0". The first pattern found in a tensor's name applies. */
  tensorTypes?: readonly string[] | undefined;
  /** The file of an importance matrix, from imatrix() or llama.cpp. */
  imatrix?: string | undefined;
  /** Default: the machine's cores. */
  threads?: number | undefined;
  /** Use the same type for every matrix, instead of llama.cpp's mix. */
  pure?: boolean | undefined;
  /** Keep output.weight as it is. */
  leaveOutput?: boolean | undefined;
  /** Also quantize tensors that are already quantized, which loses quality twice. */
  allowRequantize?: boolean | undefined;
  /** Measure the error of each tensor. */
  measure?: boolean | undefined;
  /** Replace an existing output. The input is never replaced. */
  replace?: boolean | undefined;
  /** Only report the plan: reads only headers, writes no file. */
  dryRun?: boolean | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: QuantizeProgress) => void) | undefined;
  /** Called with each of QuantizeResult.warnings before anything is written. */
  onWarning?: ((warning: string) => void) | undefined;
}

/** `loadedBytes`: bytes read and quantized so far, of all tensors. */
export interface QuantizeProgress extends LoadProgress {
  tensor: string;
}

export interface QuantizeResult {
  /** The file type's name: "Q4_K_M". */
  type: string;
  tensors: QuantizedTensor[];
  /** Every type that was written, and why where it is not the file's; that with the most bytes first. */
  types: WrittenType[];
  /** The respects in which the file differs from its type's name. */
  warnings: string[];
  /** Total size of all tensors. */
  bytesBefore: number;
  bytesAfter: number;
  parameters: number;
  threads: number;
  ms: number;
}

const knownOptions: OptionNames<QuantizeOptions> = {
  tensorTypes: true,
  imatrix: true,
  threads: true,
  pure: true,
  leaveOutput: true,
  allowRequantize: true,
  measure: true,
  replace: true,
  dryRun: true,
  signal: true,
  onProgress: true,
  onWarning: true,
};

export interface ImatrixOptions {
  /** Window size in tokens (default: 512, or the model's context if that is less). */
  contextSize?: number | undefined;
  /** The most windows to read (default: all). */
  chunks?: number | undefined;
  /** The name of the text, stored in the file. */
  dataset?: string | undefined;
  /** The options to open the model with. */
  open?: Omit<OpenOptions, "contextSize" | "parallel" | "signal"> | undefined;
  /** Called when the model is open. */
  onOpen?: ((info: ModelInfo) => void) | undefined;
  replace?: boolean | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: { window: number; windows: number }) => void) | undefined;
}

export interface ImatrixResult {
  matrices: number;
  windows: number;
  contextSize: number;
  ms: number;
}

const defaultWindow = 512;

const imatrixOptions: OptionNames<ImatrixOptions> = {
  contextSize: true,
  chunks: true,
  dataset: true,
  open: true,
  onOpen: true,
  replace: true,
  signal: true,
  onProgress: true,
};

/** Writes an importance matrix of a model on a text, for quantize(); llama.cpp reads it, too. */
export async function imatrix(
  model: ModelLocation,
  text: string,
  output: string | ByteSink,
  options: ImatrixOptions = {},
): Promise<ImatrixResult> {
  checkOptionNames("imatrix()", options, imatrixOptions);
  const { chunks, dataset, signal, replace = false, onProgress } = options;
  const platform = await currentPlatform();
  const started = platform.now();
  const { collectInputs } = await import("./imatrix.ts");
  const { writeImportance } = await import("./importance.ts");
  const trained = (await inspect(model)).memory?.contextSize ?? defaultWindow;
  const contextSize = options.contextSize ?? Math.min(defaultWindow, trained);
  const spec = platform.describeSource(await locate(model, platform));
  const inputs = spec.kind === "path" ? [{ path: spec.path, files: [] }] : [];
  return await writeOutput(output, platform.createOutputFile, { replace, inputs }, async (sink) => {
    await using opened = await open(model, {
      ...options.open,
      contextSize,
      ...(signal && { signal }),
    });
    options.onOpen?.(opened.info);
    const collected = await collectInputs({
      model: opened,
      text,
      window: contextSize,
      chunks,
      signal,
      onProgress: (window, windows) => onProgress?.({ window, windows }),
    });
    const { matrices, windows } = collected;
    const datasets = dataset === undefined ? [] : [dataset];
    await writeImportance(sink, matrices, { datasets, chunks: windows, chunkTokens: contextSize });
    return { matrices: matrices.length, windows, contextSize, ms: platform.now() - started };
  });
}

/** The file types that a model can be quantized to; with `imatrix: false` only the ones that need no importance matrix. */
export async function quantizeTypes(
  options: { imatrix?: boolean | undefined } = {},
): Promise<string[]> {
  checkOptionNames("quantizeTypes()", options, { imatrix: true });
  const { fileTypes, needsImportance } = await import("./file-types.ts");
  const without = options.imatrix === false;
  return fileTypes.filter((type) => !(without && needsImportance(type))).map(({ name }) => name);
}

/**
 * Quantizes a GGUF file, or a Hugging Face folder or llama2.c checkpoint, which is converted on the way. `output` is a path, which
 * is written atomically, or any sink for bytes.
 */
export async function quantize(
  input: string | URL | File,
  output: string | ByteSink,
  type: string,
  options: QuantizeOptions = {},
): Promise<QuantizeResult> {
  checkOptions(options);
  const platform = await currentPlatform();
  const started = platform.now();
  const { fileTypeNamed } = await import("./file-types.ts");
  const { lackImportance, planTensors } = await import("./plan.ts");
  const { patternsOf } = await import("./patterns.ts");
  const { planWarnings, writtenTypes } = await import("./written.ts");
  const fileType = fileTypeNamed(type);
  const patterns: TypePattern[] = patternsOf(options.tensorTypes ?? []);
  const spec = platform.describeSource(await locate(input, platform));
  const read = new Set<string>();
  const { file, notes } = await openAsGguf(platform, spec, read);
  try {
    await checkComplete(file);
    const importance = await importanceOf(options, platform);
    const wanted = planTensors(file, {
      type: fileType,
      patterns,
      pure: options.pure ?? false,
      leaveOutput: options.leaveOutput ?? false,
      allowRequantize: options.allowRequantize ?? false,
      hasImportance: importance !== undefined,
    });
    const lacking = lackImportance(wanted, fileType, importance);
    if (lacking.length > 0 && !options.dryRun) throw lacksImportance(lacking, fileType, options);
    const threads = options.threads ?? platform.cores;
    const { plan, scannedBytes } = options.dryRun
      ? { plan: wanted, scannedBytes: 0 }
      : await fittingPlan(file, wanted, options);
    const warnings = [...notes, ...planWarnings(plan, fileType)];
    for (const warning of warnings) options.onWarning?.(warning);
    const tensors = options.dryRun
      ? dryRun(plan, lacking)
      : await writeOutput(
          output,
          platform.createOutputFile,
          outputOptions(options, plan, spec, read),
          async (sink) => {
            const { QuantizePool } = await import("./thread.ts");
            const { quantizeInto } = await import("./quantize.ts");
            const pool = new QuantizePool(() => platform.startThread("quantize"), threads);
            try {
              return await quantizeInto(sink, {
                file,
                plan,
                type: fileType,
                importance,
                pool,
                threads,
                measure: options.measure ?? false,
                signal: options.signal,
                onProgress: (done, total, tensor) =>
                  options.onProgress?.({
                    loadedBytes: scannedBytes + done,
                    totalBytes: scannedBytes + total,
                    tensor,
                  }),
              });
            } finally {
              await pool.dispose();
            }
          },
        );
    return {
      type: fileType.name,
      tensors,
      types: writtenTypes(plan, fileType),
      warnings,
      bytesBefore: tensors.reduce((sum, { bytesBefore }) => sum + bytesBefore, 0),
      bytesAfter: tensors.reduce((sum, { bytesAfter }) => sum + bytesAfter, 0),
      parameters: tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
      threads,
      ms: platform.now() - started,
    };
  } finally {
    await file.close();
  }
}

/** The plan without tensors that F16 cannot hold, and the bytes that were read to find them. */
async function fittingPlan(
  file: ModelFile,
  wanted: readonly PlannedTensor[],
  { signal, onProgress }: QuantizeOptions,
): Promise<{ plan: PlannedTensor[]; scannedBytes: number }> {
  const { withoutOverflow } = await import("./half-plan.ts");
  const written = wanted.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
  return await withoutOverflow(file, wanted, (loadedBytes, scanned, tensor) => {
    if (signal?.aborted) throw new AbortedError("quantize", { cause: signal.reason });
    onProgress?.({ loadedBytes, totalBytes: scanned + written, tensor });
  });
}

function checkOptions(options: QuantizeOptions): void {
  checkOptionNames("quantize()", options, knownOptions);
  const { threads, signal } = options;
  if (threads !== undefined && !(Number.isSafeInteger(threads) && threads >= 1 && threads <= 256)) {
    throw new UsageError(`threads: got ${show(threads)}, expected a whole number from 1 to 256`);
  }
  if (signal?.aborted) throw new AbortedError("quantize", { cause: signal.reason });
}

/** The model as it is in GGUF, from any format; `read`: its files that were opened. */
async function openAsGguf(
  platform: Platform,
  spec: SourceSpec,
  read: Set<string>,
): Promise<AsGguf> {
  const file = await openModelFile(recording(await platform.openModelSource(spec), read));
  if (file.tokenizer.kind === "gguf") return { file, notes: [] };
  try {
    const { asGguf } = await import("../convert/as-gguf.ts");
    return asGguf(file, tokenizerOf(file));
  } catch (cause) {
    await file.close();
    throw cause;
  }
}

/**
 * Reports missing tensors now rather than when the new file is opened. Skips architectures that this build does not
 * know.
 */
async function checkComplete({ name, metadata, tensors }: ModelFile): Promise<void> {
  const { allArchs } = await import("../../models/table.ts");
  const architecture = metadata.string("general.architecture");
  const arch = allArchs().find(({ names }) => names.includes(architecture ?? ""));
  if (!arch) return;
  const missing = arch
    .weights(arch.config({ metadata, tensors }))
    .filter((weight) => !weight.optional && !tensors.has(weight.name))
    .map((weight) => weight.name);
  if (missing.length === 0) return;
  const most = 10;
  const more = missing.length > most ? `, and ${missing.length - most} more` : "";
  throw new ModelError(
    `quantize: ${name} is incomplete: it lacks these weights of a ${architecture} model: ${missing.slice(0, most).join(", ")}${more}. Download or convert the model again`,
  );
}

async function importanceOf(
  { imatrix }: QuantizeOptions,
  platform: Platform,
): Promise<Importance | undefined> {
  if (imatrix === undefined) return undefined;
  const { readImportance } = await import("./importance.ts");
  const source = await platform.openModelSource(platform.describeSource(imatrix));
  const file = await openModelFile(source);
  try {
    return await readImportance(file, imatrix);
  } finally {
    await file.close();
  }
}

function dryRun(
  plan: readonly PlannedTensor[],
  lacking: readonly PlannedTensor[],
): QuantizedTensor[] {
  return plan.map((planned) => {
    const { tensor, target, targetBytes } = planned;
    const note = lacking.includes(planned)
      ? `${target.name} needs an importance matrix (--imatrix)`
      : planned.note;
    return {
      name: tensor.name,
      shape: tensor.shape,
      from: tensor.dtype.name,
      to: target.name,
      bytesBefore: tensor.byteLength,
      bytesAfter: targetBytes,
      ...(note !== undefined && { note }),
    };
  });
}

/** Without one the result would be useless, and the search takes long: said before anything is done. */
function lacksImportance(
  lacking: readonly PlannedTensor[],
  { name }: { name: string },
  { imatrix: file }: QuantizeOptions,
): UsageError {
  const { tensor, target } = lacking[0]!;
  const more = lacking.length > 1 ? ` and ${lacking.length - 1} more` : "";
  const has = file === undefined ? "none was given" : `${file} has none for it`;
  return new UsageError(
    `quantize: ${name} needs an importance matrix for "${tensor.name}" (${target.name})${more}, and ${has}. Make one with "lantern imatrix -m MODEL -f TEXT -o FILE" and give it with --imatrix FILE, or choose a type that needs none (IQ3_S, Q2_K)`,
  );
}

/** The input, with all of its files, is never replaced. */
function outputOptions(
  { replace = false, imatrix: matrix }: QuantizeOptions,
  plan: readonly PlannedTensor[],
  spec: SourceSpec,
  read: ReadonlySet<string>,
): OutputFileOptions {
  const inputs: InputFiles[] = spec.kind === "path" ? [{ path: spec.path, files: [...read] }] : [];
  if (matrix !== undefined) inputs.push({ path: matrix, files: [] });
  return { replace, inputs, bytes: plan.reduce((sum, { targetBytes }) => sum + targetBytes, 0) };
}
