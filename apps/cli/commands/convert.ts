// lantern convert: converts a Hugging Face folder or a llama2.c checkpoint to a GGUF file.

import { Option } from "commander";
import { type ConvertResult, type ConvertType, convert } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { forceHelp, jsonHelp } from "../flag-help.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { ProgressBar } from "../progress.ts";
import { bytesText, countText, tableText } from "../text.ts";

interface ConvertFlags {
  type: ConvertType;
  pre?: string;
  force?: boolean;
  json?: boolean;
}

export const convertCommand: CommandBody = {
  examples: [
    "lantern convert ./Qwen3-0.6B qwen3-0.6b.gguf",
    "lantern convert ./Llama-3.2-1B llama.gguf --type f16",
    "lantern convert stories15M.bin stories15M.gguf --type q8_0",
  ],
  define(command, context) {
    command
      .argument("<model>", "the folder or file to convert")
      .argument("<out.gguf>", "the file to write")
      .addOption(
        new Option(
          "--type <type>",
          "type of the matrices: f32, f16, bf16, q8_0, or auto: as stored",
        ).default("auto"),
      )
      .option(
        "--pre <name>",
        "value of tokenizer.ggml.pre, where Lantern does not recognise the tokenizer",
      )
      .option("-f, --force", forceHelp)
      .option("--json", jsonHelp)
      .action((model: string, output: string, flags: ConvertFlags) =>
        convertModel(model, output, flags, context),
      );
  },
};

async function convertModel(
  name: string,
  output: string,
  flags: ConvertFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  using interrupt = interruptible(terminal);
  const path = await locateModel(name, context, interrupt.signal);
  const bar = new ProgressBar(terminal, { label: "converting", plainLines: true });
  let result: ConvertResult;
  try {
    result = await convert(path, output, {
      type: flags.type,
      ...(flags.pre !== undefined && { pre: flags.pre }),
      replace: flags.force ?? false,
      signal: interrupt.signal,
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
    });
  } finally {
    bar.done();
  }
  if (flags.json) {
    terminal.out(`${JSON.stringify({ output, ...result })}\n`);
    return;
  }
  for (const note of result.notes) terminal.err(`Note: ${note}.\n`);
  terminal.out(resultText(output, result));
}

function resultText(output: string, result: ConvertResult): string {
  const { architecture, parameters, bytes, types } = result;
  const rows = types.map(({ dtype, tensors, bytes: size }) => [
    dtype,
    `${tensors} tensors`,
    bytesText(size),
  ]);
  const model = `${architecture}, ${countText(parameters)} parameters`;
  return `${output}: ${model}, ${bytesText(bytes)}\n${tableText(rows, [1, 2])}`;
}
