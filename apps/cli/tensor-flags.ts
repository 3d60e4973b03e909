// Flags for tensors on another device than their layer, with llama.cpp's names (-ot, -cmoe, -ncmoe), and for slots of experts.

import { type Command, Option } from "commander";
import type { OpenOptions } from "../../src/index.ts";
import { numberFlag } from "./flag-values.ts";

export interface TensorFlags {
  overrideTensor?: string[];
  cpuMoe?: boolean;
  nCpuMoe?: number;
  expertSlots?: number;
  hotFraction?: number;
  /** false: none. */
  hotNeurons?: number | false;
  opOffload?: boolean;
}

/** -ot, --cpu-moe, --n-cpu-moe */
export function addTensorFlags(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--override-tensor <pattern=place>",
        "put the tensors whose names match a regular expression on the processor (=cpu) or the GPU (=gpu); several with commas, the first that matches counts (also: -ot)",
      ).argParser((text: string, before: string[] | undefined) => [
        ...(before ?? []),
        ...text.split(/(?<==(?:cpu|gpu)),/i),
      ]),
    )
    .addOption(
      new Option(
        "--cpu-moe",
        "keep all experts on the processor, with the rest of their layers on the GPU (also: -cmoe)",
      ),
    )
    .addOption(
      new Option(
        "--n-cpu-moe <n>",
        "the same for the experts of the first n layers (also: -ncmoe)",
      ).argParser(numberFlag({ integer: true, min: 0 })),
    )
    .addOption(
      new Option(
        "--expert-slots <n>",
        "hold n experts of each layer in GPU memory, by recent use, and all of them in the host's; the text is the same",
      ).argParser(numberFlag({ integer: true, min: 1 })),
    )
    .addOption(
      new Option(
        "--hot-fraction <share>",
        "the same for a share of each layer's experts, from 0.01 to 0.99: those that were used last are hot",
      )
        .argParser(numberFlag({ min: 0.01, max: 0.99 }))
        .conflicts("expertSlots"),
    )
    .option("--no-hot-neurons", "leave neurons where their layer is, as --hot-neurons 0");
}

export function tensorPlaces(flags: TensorFlags): OpenOptions {
  const { overrideTensor, cpuMoe, nCpuMoe, hotFraction, hotNeurons, opOffload } = flags;
  const expertSlots = flags.expertSlots ?? hotFraction;
  const cpuExperts = cpuMoe ? "all" : nCpuMoe;
  return {
    ...(overrideTensor && { overrideTensors: overrideTensor }),
    ...(cpuExperts !== undefined && { cpuExperts }),
    ...(expertSlots !== undefined && { expertSlots }),
    ...(hotNeurons !== undefined && { hotNeurons: hotNeurons || 0 }),
    ...(opOffload !== undefined && { opOffload }),
  };
}
