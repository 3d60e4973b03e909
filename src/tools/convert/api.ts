// The public API of conversion to GGUF: opens the model, calls src/tools/convert/ to plan and write, and makes the
// output atomic. The tool is loaded when it is called.

import type { LoadProgress, ModelLocation } from "../../api/api.ts";
import { AbortedError, UsageError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import type { ByteSink } from "../../formats/gguf/writer.ts";
import { openModelFile } from "../../formats/open-model-file.ts";
import { tokenizerOf } from "../../load/compose.ts";
import { locate } from "../../load/locate.ts";
import { currentPlatform } from "../../platform/current.ts";
import { writeOutput } from "../../platform/output-file.ts";
import { recording } from "../../platform/sources/recording.ts";
import type { ConversionWatch } from "./convert.ts";
import type { ConvertType } from "./types.ts";

export type { ByteSink } from "../../formats/gguf/writer.ts";
export type { ConvertType } from "./types.ts";

export interface ConvertOptions {
  /** The type of the matrices; "auto" (the default) keeps each matrix's own type. Vectors are always F32. */
  type?: ConvertType | undefined;
  /** tokenizer.ggml.pre, for a byte-level tokenizer with an unrecognised pre-tokenizer. */
  pre?: string | undefined;
  /** Replace an existing output. A file of the input is never replaced. */
  replace?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** `loadedBytes`: bytes read so far, of all that will be read; some tensors are read twice. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
}

export interface ConvertResult {
  architecture: string;
  parameters: number;
  /** Size of the whole output. */
  bytes: number;
  /** Its tensors, by type. */
  types: { dtype: string; tensors: number; bytes: number }[];
  /** Notes for the user: tensors that stay F32 because they exceed F16's range, a tokenizer that differs. */
  notes: readonly string[];
}

const knownOptions: OptionNames<ConvertOptions> = {
  type: true,
  pre: true,
  replace: true,
  signal: true,
  onProgress: true,
};

/**
 * Writes a model (a Hugging Face folder, a llama2.c checkpoint) as a GGUF file. `output` is a path, which is written
 * atomically, or any sink for bytes.
 */
export async function convert(
  model: ModelLocation,
  output: string | ByteSink,
  options: ConvertOptions = {},
): Promise<ConvertResult> {
  const { convertTypes } = await import("./types.ts");
  checkOptions(options, convertTypes);
  const watch = watchOf(options);
  watch.check();
  const platform = await currentPlatform();
  const spec = platform.describeSource(await locate(model, platform));
  const read = new Set<string>();
  const file = await openModelFile(recording(await platform.openModelSource(spec), read));
  try {
    const tool = await import("./convert.ts");
    const { type = "auto", pre } = options;
    const plan = tool.planConversion(file, tokenizerOf(file), { type, pre });
    const inputs = spec.kind === "path" ? [{ path: spec.path, files: [...read] }] : [];
    let bytes = 0;
    const outputOptions = { replace: options.replace ?? false, bytes: plan.tensorBytes, inputs };
    const converted = await writeOutput(
      output,
      platform.createOutputFile,
      outputOptions,
      (sink) => {
        const counting: ByteSink = {
          write: async (piece) => {
            await sink.write(piece);
            bytes += piece.byteLength;
          },
        };
        return tool.writeConversion(file, plan, counting, watch);
      },
    );
    const architecture = file.metadata.string("general.architecture")!;
    return { architecture, parameters: plan.parameters, bytes, ...converted };
  } finally {
    await file.close();
  }
}

function checkOptions(options: ConvertOptions, types: readonly ConvertType[]): void {
  checkOptionNames("convert()", options, knownOptions);
  const { type } = options;
  if (type !== undefined && !types.includes(type)) {
    throw new UsageError(
      `convert: type: got "${String(type)}", expected one of ${types.join(", ")}. "lantern quantize" makes other types from a GGUF file`,
    );
  }
}

function watchOf({ signal, onProgress }: ConvertOptions): ConversionWatch {
  return {
    progress: (loadedBytes, totalBytes) => onProgress?.({ loadedBytes, totalBytes }),
    check: () => {
      if (signal?.aborted) throw new AbortedError("converting the model", { cause: signal.reason });
    },
  };
}
