// lantern tokenize: the token ids of a text, with the vocabulary entry of each.

import { defaultModel } from "../../../src/catalog/catalog.ts";
import { openTokenizer, UsageError } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { modelHelp, noBosHelp } from "../flag-help.ts";
import { modelOption } from "../flags.ts";
import { locateModel } from "../load-model.ts";
import { plural, tableText } from "../text.ts";

interface TokenizeFlags {
  model?: string;
  bos: boolean;
  special: boolean;
  json?: boolean;
}

export const tokenizeCommand: CommandBody = {
  examples: [
    'lantern tokenize "Once upon a time"',
    "lantern tokenize -m tinyllama-chat --json - < notes.txt",
  ],
  define(command, context) {
    command
      .argument("<text...>", "the text; -: from standard input")
      .addOption(modelOption(modelHelp(defaultModel)))
      .option("--no-bos", noBosHelp)
      .option("--no-special", "treat special tokens such as <|im_start|> as plain text")
      .option("--json", "print an array of ids")
      .action((words: string[], flags: TokenizeFlags) => tokenize(words, flags, context));
  },
};

async function tokenize(words: string[], flags: TokenizeFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const [text, ...more] = words as [string, ...string[]];
  if (more.length > 0) {
    throw new UsageError(
      `tokenize: got ${words.length} texts, expected one. Put it in quotes: lantern tokenize ${JSON.stringify(words.join(" "))}`,
    );
  }
  const path = await locateModel(flags.model ?? defaultModel, context);
  const tokenizer = await openTokenizer(path);
  const input = text === "-" ? await terminal.readInput() : text;
  const ids = tokenizer.encode(input, { addSpecial: flags.bos, parseSpecial: flags.special });
  if (flags.json) {
    terminal.out(`${JSON.stringify(ids)}\n`);
    return;
  }
  const rows = ids.map((id) => [String(id), JSON.stringify(tokenizer.tokenText(id))]);
  terminal.out(tableText(rows, [0]));
  terminal.err(
    `${plural(ids.length, "token")}, ${tokenizer.kind}, vocabulary of ${tokenizer.vocabSize}\n`,
  );
}
