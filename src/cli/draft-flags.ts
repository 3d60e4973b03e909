// The flags of a draft model, under llama.cpp's names.

import { type Command, Option } from "commander";
import type { OpenOptions } from "../index.ts";
import { numberFlag, onceFlag } from "./flag-values.ts";

export interface DraftFlags {
  modelDraft?: string;
  threadsDraft?: number;
  gpuLayersDraft?: number | "all" | "auto";
}

/** --model-draft, --threads-draft, --gpu-layers-draft */
export function addDraftFlags(
  command: Command,
  layersFlag: (text: string) => number | "all" | "auto",
): Command {
  return command
    .addOption(
      new Option(
        "--model-draft <model>",
        "a small model that drafts tokens, which the model verifies several at a time: the same text, sooner (also: -md; docs/speculation.md)",
      ).argParser(onceFlag),
    )
    .option(
      "--threads-draft <n>",
      "compute threads of the draft model (also: -td) (default: 1 up to 8 MB, else as --threads)",
      numberFlag({ integer: true, min: 1, max: 256 }),
    )
    .addOption(
      new Option(
        "--gpu-layers-draft <n>",
        "layers of the draft model on the GPU (also: -ngld) (default: all if the model has some there, else 0)",
      ).argParser(layersFlag),
    );
}

export function draftOptions({
  modelDraft,
  threadsDraft,
  gpuLayersDraft,
}: DraftFlags): Pick<OpenOptions, "draftModel" | "draftThreads" | "draftGpuLayers"> {
  return {
    ...(modelDraft !== undefined && { draftModel: modelDraft }),
    ...(threadsDraft !== undefined && { draftThreads: threadsDraft }),
    ...(gpuLayersDraft !== undefined && { draftGpuLayers: gpuLayersDraft }),
  };
}
