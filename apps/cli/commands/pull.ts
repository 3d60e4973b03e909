// lantern pull: downloads a model into the cache, resuming an interrupted download. If a hub repository has several
// files, it takes the named one, or the best one for this machine.

import type { CatalogEntry } from "../../../src/catalog/catalog.ts";
import { roughlyFits, variantName } from "../../../src/catalog/hub-choice.ts";
import type { PulledFile } from "../../../src/catalog/pull.ts";
import { pullModel } from "../../../src/catalog/pull-model.ts";
import { choosePull, type PullChoice } from "../../../src/catalog/resolve.ts";
import { AbortedError, UsageError } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { interruptible } from "../interrupt.ts";
import { ProgressBar } from "../progress.ts";
import { bytesText, tableText } from "../text.ts";

interface PullFlags {
  list?: boolean;
}

export const pullCommand: CommandBody = {
  examples: [
    "lantern pull tinyllama-chat",
    "lantern pull Qwen/Qwen3-4B-GGUF",
    "lantern pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
    "lantern pull https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/blob/main/Qwen3-0.6B-Q8_0.gguf",
    "lantern pull Qwen/Qwen3-4B-GGUF --list",
  ],
  define(command, context) {
    command
      .argument(
        "<name>",
        'a name from "lantern models", a repository of the Hugging Face hub (owner/repo, or owner/repo:Q4_K_M for one type), or the address of its page',
      )
      .option("--list", "list the files of the repository; download nothing")
      .action((name: string, flags: PullFlags) => pull(name, flags, context));
  },
};

async function pull(name: string, flags: PullFlags, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  // A named type leaves no choice, but --list shows all of them.
  const asked = flags.list ? name.replace(/(?<=\/[^/:]+):[\w.-]+$/, "") : name;
  const choice = await choosePull(asked, downloads, signal);
  if (flags.list) {
    terminal.out(variantTable(choice, name, downloads.memoryBytes));
    return;
  }
  if (choice.chosen) terminal.err(`${choiceText(choice, name, downloads.memoryBytes)}\n`);
  const label = choice.entries[0]!.name;
  const bar = new ProgressBar(terminal, { label, plainLines: true });
  try {
    const { files } = await pullModel(name, downloads, {
      choice,
      signal,
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
    });
    bar.done();
    for (const { entry, pulled } of files) {
      terminal.out(`${pulled.path}\n`);
      terminal.err(`${pulledText(entry, pulled)}\n`);
    }
  } catch (error) {
    bar.done();
    if (error instanceof AbortedError) {
      terminal.err("What was downloaded is kept. Run the command again to continue.\n");
    }
    throw error;
  }
}

/** "Qwen/Qwen3-4B-GGUF: taking Q4_K_M, 2.5 GB (of Q4_K_M, Q5_K_M, ...)" */
function choiceText({ chosen, variants }: PullChoice, name: string, memoryBytes: number): string {
  const what = `${variantName(chosen!)}, ${bytesText(chosen!.bytes)}`;
  const others = variants!.filter((variant) => variant !== chosen).map(variantName);
  const fits = roughlyFits(chosen!.bytes, memoryBytes)
    ? `which fits in this machine's memory (${bytesText(memoryBytes)})`
    : `which will probably not fit in this machine's memory (${bytesText(memoryBytes)})`;
  const also = others.length > 0 ? ` Also available: ${others.join(", ")}.` : "";
  return `${name}: downloading ${what}, ${fits}.${also}`;
}

function variantTable({ variants, chosen }: PullChoice, name: string, memoryBytes: number): string {
  if (!variants) {
    throw new UsageError(
      `pull: "${name}" names one model, but --list needs a repository of the Hugging Face hub. For example: lantern pull Qwen/Qwen3-4B-GGUF --list`,
    );
  }
  const rows = variants.map((variant) => [
    variantName(variant),
    bytesText(variant.bytes),
    roughlyFits(variant.bytes, memoryBytes) ? "yes" : "no",
    variant === chosen ? "suggested" : "",
    variant.files.length > 1
      ? `${variant.files[0]!.path} and ${variant.files.length - 1} more`
      : variant.files[0]!.path,
  ]);
  return tableText([["TYPE", "SIZE", "FITS", "", "FILE"], ...rows], [1]);
}

function pulledText(entry: CatalogEntry, pulled: PulledFile): string {
  const what = `${entry.name}, ${bytesText(pulled.bytes)}, ${entry.licence}`;
  if (pulled.from !== "download") return `${what}: already downloaded`;
  const resumed = pulled.resumedBytes ? `, of which ${bytesText(pulled.resumedBytes)} earlier` : "";
  const checked =
    pulled.statedBy === "nobody"
      ? `no published sha256 to compare with; it is ${pulled.sha256}`
      : `sha256 matches ${pulled.statedBy}`;
  return `${what}: downloaded${resumed}, ${checked}`;
}
