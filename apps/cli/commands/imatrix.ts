// lantern imatrix: makes an importance matrix, with which "lantern quantize" keeps the columns that matter most on a
// text most exact. The file format is llama.cpp's. docs/use/quantize.md.

import { defaultModel } from "../../../src/catalog/catalog.ts";
import { imatrix, UsageError } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { forceHelp, textFileHelp, windowHelp, windowsHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import { addModelFlags, type ModelFlags, modelOf, openOptions } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { explanation, locateModel, sayWarnings } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { durationText, plural } from "../text.ts";

interface ImatrixFlags extends ModelFlags {
  file?: string;
  output?: string;
  chunks?: number;
  force?: boolean;
}

export const imatrixCommand: CommandBody = {
  examples: [
    "lantern imatrix -m model-f16.gguf -f text.txt -o model.imatrix.gguf --chunks 100",
    "lantern quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M --imatrix model.imatrix.gguf",
  ],
  define(command, context) {
    addModelFlags(command, defaultModel)
      .option("-f, --file <path>", textFileHelp)
      .option("-o, --output <path>", "the file to write (default: imatrix.gguf)")
      .option("--chunks <n>", windowsHelp, numberFlag({ integer: true, min: 1, max: 1 << 24 }))
      .option("--force", forceHelp)
      .action((flags: ImatrixFlags) => run(flags, context));
    const window = command.options.find(({ long }) => long === "--ctx-size")!;
    window.description = windowHelp;
  },
};

async function run(flags: ImatrixFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.file === undefined) {
    throw new UsageError("imatrix: got no text, expected a file. Name one with -f");
  }
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const text =
    flags.file === "-" ? await terminal.readInput() : await terminal.readText(flags.file);
  const path = await locateModel(modelOf(flags), context, signal);
  const output = flags.output ?? "imatrix.gguf";
  const bar = new ShareBar(terminal, "reading");
  try {
    const { contextSize, parallel: _, ...open } = openOptions(flags);
    const result = await imatrix(path, text, output, {
      ...(contextSize !== undefined && { contextSize }),
      ...(flags.chunks !== undefined && { chunks: flags.chunks }),
      dataset: flags.file,
      open: { ...open, onWarning: (warning) => sayWarnings({ warnings: [warning] }, context) },
      replace: flags.force ?? false,
      signal,
      onOpen: (info) => {
        sayWarnings(info, context);
        if (flags.explain) context.asked(explanation(info));
      },
      onProgress: ({ window, windows }) =>
        bar.update(window / windows, `${window} of ${windows} windows`),
    });
    bar.done();
    terminal.err(
      `${output}: ${plural(result.matrices, "matrix", "matrices")}, ${plural(result.windows, "window")} of ${result.contextSize} tokens, in ${durationText(result.ms / 1000)}\n`,
    );
  } finally {
    bar.done();
  }
}
