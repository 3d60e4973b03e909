// lantern embed: the vectors of texts, and the similarity of the texts. Flags and formats are those of llama.cpp's llama-embedding.

import { type Command, Option } from "commander";
import type { Embedding, Model, Pooling } from "../../../src/index.ts";
import { UsageError } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { embeddingFormats } from "../embed-text.ts";
import { separatorHelp, textFileHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import { addRuntimeFlags, type ModelFlags, poolingOption } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { openModel } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { plural } from "../text.ts";
import { type TextsFlags, textsOf } from "../texts-of.ts";

interface EmbedFlags extends Omit<ModelFlags, "model">, TextsFlags {
  pooling?: Pooling;
  embdNormalize: number;
  embdOutputFormat?: string;
  dimensions?: number;
  as?: "query" | "passage";
  json?: boolean;
}

export const embedCommand: CommandBody = {
  examples: [
    'lantern embed stories15m "The cat sat on the mat." "A dog ran in the park."',
    "lantern embed nomic-embed.gguf -f passages.txt --as passage --embd-output-format raw > vectors.txt",
    'lantern embed model.gguf --json "one text" "another"',
  ],
  define(command, context) {
    defineFlags(command).action((name: string, words: string[], flags: EmbedFlags) =>
      embed(name, words, flags, context),
    );
  },
};

function defineFlags(command: Command): Command {
  return addRuntimeFlags(
    command
      .argument("<model>", 'a file, a folder, a URL, or a name from "lantern models"')
      .argument(
        "[texts...]",
        "each is embedded by itself; -: from standard input, one in each line",
      ),
  )
    .option("-f, --file <path>", `${textFileHelp}; one text in each line`)
    .option("--embd-separator <text>", separatorHelp, "\n")
    .addOption(poolingOption())
    .option(
      "--embd-normalize <n>",
      "scale vectors; -1: not at all, 0: the largest value to 32760, 1: taxicab, 2: Euclidean length 1, more: that p-norm",
      numberFlag({ integer: true, min: -1, max: 1024 }),
      2,
    )
    .addOption(
      new Option(
        "--embd-output-format <format>",
        "array: [[..],[..]], json: as OpenAI's API answers, json+: with the matrix of similarities, raw: numbers, one vector in each line (default: a text to read)",
      ).choices(Object.keys(embeddingFormats)),
    )
    .option("--json", "the same as --embd-output-format json")
    .option(
      "--dimensions <n>",
      "keep only the first n values of each vector, for models that were trained for it (Matryoshka)",
      numberFlag({ integer: true, min: 1 }),
    )
    .addOption(
      new Option(
        "--as <role>",
        "put before each text what the model's card asks for before a search query, or before a passage that is searched",
      ).choices(["query", "passage"]),
    );
}

async function embed(
  name: string,
  words: readonly string[],
  flags: EmbedFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const format = formatOf(flags);
  using interrupt = interruptible(terminal);
  const texts = await textsOf(words, flags, terminal, { command: "embed", what: "text" });
  await using model = await openModel(name, flags, context, interrupt.signal);
  const found = await embedAll(model, texts, flags, context, interrupt.signal);
  const [first] = found;
  if (first?.prefix) terminal.err(`Before each text: ${JSON.stringify(first.prefix)}\n`);
  const { size, pooling, labels } = model.info.embedding!;
  terminal.out(
    format({
      model: model.info.name,
      texts,
      found,
      pooling: flags.pooling ?? pooling,
      size: flags.dimensions ?? size,
      labels,
      norm: flags.embdNormalize,
    }),
  );
}

async function embedAll(
  model: Model,
  texts: readonly string[],
  flags: EmbedFlags,
  { terminal }: CliContext,
  signal: AbortSignal,
): Promise<Embedding[]> {
  const bar = new ShareBar(terminal, "embedding");
  try {
    return await model.embed(texts, {
      normalize: flags.embdNormalize,
      ...(flags.pooling && { pooling: flags.pooling }),
      ...(flags.dimensions !== undefined && { dimensions: flags.dimensions }),
      ...(flags.as && { as: flags.as }),
      signal,
      onProgress: ({ doneTexts, totalTexts }) =>
        bar.update(doneTexts / totalTexts, `${doneTexts} of ${plural(totalTexts, "text")}`),
    });
  } finally {
    bar.done();
  }
}

function formatOf({
  json,
  embdOutputFormat = json ? "json" : "",
}: EmbedFlags): (typeof embeddingFormats)[string] {
  if (json && embdOutputFormat !== "json") {
    throw new UsageError(
      `embed: got both --json and --embd-output-format "${embdOutputFormat}", expected one of them. Drop one`,
    );
  }
  return embeddingFormats[embdOutputFormat]!;
}
