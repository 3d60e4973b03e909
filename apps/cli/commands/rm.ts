// lantern rm: deletes a downloaded model, after a confirmation if stdin is a terminal.

import { listMade, removeDerived } from "../../../src/catalog/derived.ts";
import { findRemovable, removeModel } from "../../../src/catalog/remove.ts";
import { UsageError } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { bytesText } from "../text.ts";

interface RmFlags {
  yes?: boolean;
}

export const rmCommand: CommandBody = {
  examples: ["lantern rm tinyllama-chat", "lantern rm hf:Qwen/Qwen3-4B-GGUF:Q4_K_M --yes"],
  define(command, context) {
    command
      .argument("<name>", 'a name from "lantern models"')
      .option("-y, --yes", "delete without asking")
      .action((name: string, flags: RmFlags) => rm(name, flags, context));
  },
};

async function rm(name: string, flags: RmFlags, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  const made = (await listMade(downloads)).find((one) => one.name === name);
  if (made) {
    if (!(await confirmed(`Delete ${name}? The model it was made from stays.`, flags, context)))
      return;
    await removeDerived(name, downloads);
    terminal.out(`${name} was deleted\n`);
    return;
  }
  const listing = await findRemovable(name, downloads);
  const what =
    listing.state === "linked"
      ? `Remove ${listing.name} from the list? The file is kept.`
      : `Delete ${listing.name}, ${bytesText(listing.diskBytes)}?`;
  if (!(await confirmed(what, flags, context))) return;
  const removed = await removeModel(listing.name, downloads);
  terminal.out(
    removed.how === "forgotten"
      ? `${removed.name} was removed from the list\n`
      : `${removed.name} was deleted (${bytesText(removed.bytes)})\n`,
  );
}

async function confirmed(what: string, { yes }: RmFlags, context: CliContext): Promise<boolean> {
  if (yes || (await agreed(what, context))) return true;
  context.terminal.err("Nothing was deleted.\n");
  context.exitCode = 1;
  return false;
}

async function agreed(question: string, { terminal }: CliContext): Promise<boolean> {
  if (!terminal.inIsTerminal) {
    throw new UsageError(
      "rm: standard input is not a terminal, so nobody can confirm. Use --yes to delete without asking",
    );
  }
  const lines = terminal.lines();
  try {
    const answer = await lines.next(`${question} [y/N] `);
    return typeof answer === "string" && /^y(es)?$/i.test(answer.trim());
  } finally {
    lines.close();
  }
}
