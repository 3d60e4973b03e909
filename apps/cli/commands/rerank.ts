// lantern rerank: documents in the order in which they answer a query, by a model that was trained for reranking.

import type { RerankResult } from "../../../src/index.ts";
import { UsageError } from "../../../src/index.ts";
import { plainText } from "../../../src/platform/terminal-text.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp, separatorHelp, textFileHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import { addRuntimeFlags, type ModelFlags } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { openModel } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { plural, tableText } from "../text.ts";
import { type TextsFlags, textsOf } from "../texts-of.ts";

interface RerankFlags extends Omit<ModelFlags, "model">, TextsFlags {
  query?: string;
  topN?: number;
  json?: boolean;
}

export const rerankCommand: CommandBody = {
  examples: [
    'lantern rerank bge-reranker-v2-m3-Q8_0.gguf -q "What is a panda?" "A bear of China." "A city."',
    'lantern rerank reranker.gguf -q "how to reset a password" -f passages.txt --top-n 3 --json',
  ],
  define(command, context) {
    addRuntimeFlags(
      command
        .argument("<model>", 'a file, a folder, a URL, or a name from "lantern models"')
        .argument("[documents...]", "the documents; -: from standard input, one in each line"),
    )
      .option("-q, --query <text>", "what the documents should answer")
      .option("-f, --file <path>", `${textFileHelp}; one document in each line`)
      .option("--embd-separator <text>", separatorHelp, "\n")
      .option(
        "--top-n <n>",
        "show only the best n (default: all)",
        numberFlag({ integer: true, min: 1 }),
      )
      .option("--json", jsonHelp)
      .action((name: string, words: string[], flags: RerankFlags) =>
        rerank(name, words, flags, context),
      );
  },
};

async function rerank(
  name: string,
  words: readonly string[],
  flags: RerankFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const { query, topN } = flags;
  if (query === undefined) {
    throw new UsageError('rerank: got no query, expected one: -q "What is a panda?"');
  }
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const documents = await textsOf(words, flags, terminal, { command: "rerank", what: "document" });
  await using model = await openModel(name, flags, context, signal);
  const bar = new ShareBar(terminal, "ranking");
  const found = await model
    .rerank(query, documents, {
      ...(topN !== undefined && { topN }),
      signal,
      onProgress: ({ doneTexts, totalTexts }) =>
        bar.update(doneTexts / totalTexts, `${doneTexts} of ${plural(totalTexts, "document")}`),
    })
    .finally(() => bar.done());
  if (flags.json) terminal.out(`${JSON.stringify(resultJson(model.info.name, found))}\n`);
  else terminal.out(resultText(found, terminal.columns));
}

/** The JSON of /v1/rerank. */
function resultJson(model: string, { results, tokens }: RerankResult): object {
  return {
    model,
    object: "list",
    usage: { prompt_tokens: tokens, total_tokens: tokens },
    results: results.map(({ index, score, document }) => ({
      index,
      relevance_score: score,
      document: { text: document },
    })),
  };
}

function resultText({ results }: RerankResult, columns: number): string {
  const rows = results.map(({ index, score, document }) => {
    const line = plainText(document).replace(/\s+/g, " ");
    const most = Math.max(20, columns - 20);
    const shown = line.length > most ? `${line.slice(0, most - 3)}...` : line;
    return [score.toFixed(3), String(index), shown];
  });
  return tableText([["score", "index", "document"], ...rows], [0, 1]);
}
