// lantern search: repositories with GGUF files on the Hugging Face hub.

import { searchHub } from "../../../src/catalog/hub-client.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { numberFlag } from "../flag-values.ts";
import { interruptible } from "../interrupt.ts";
import { countText, tableText } from "../text.ts";

interface SearchFlags {
  limit: number;
  json?: boolean;
}

export const searchCommand: CommandBody = {
  examples: ["lantern search qwen3", "lantern search smollm2 instruct --limit 5"],
  define(command, context) {
    command
      .argument("<words...>", "words that the names contain")
      .option(
        "--limit <n>",
        "show at most this many repositories",
        numberFlag({ integer: true, min: 1, max: 100 }),
        20,
      )
      .option("--json", "print one JSON array")
      .action((words: string[], flags: SearchFlags) => search(words.join(" "), flags, context));
  },
};

async function search(words: string, flags: SearchFlags, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const found = await searchHub(words, downloads, { limit: flags.limit, signal });
  if (flags.json) {
    terminal.out(`${JSON.stringify(found)}\n`);
    return;
  }
  if (found.length === 0) {
    terminal.err(
      `No repository with GGUF files on the Hugging Face hub matches "${words}". Try fewer words.\n`,
    );
    return;
  }
  const rows = found.map(({ repo, downloads: count, likes, updated, gated }) => [
    repo,
    countText(count),
    String(likes),
    updated.slice(0, 10),
    gated ? "accept its licence on its page first" : "",
  ]);
  terminal.out(tableText([["REPOSITORY", "DOWNLOADS", "LIKES", "CHANGED", ""], ...rows], [1, 2]));
  const { out } = context.color();
  terminal.out(
    `\n${out.dim('"lantern pull REPOSITORY" downloads the file that suits this machine; with --list it lists all files.')}\n`,
  );
}
