// lantern pull: downloads a model into the cache, continuing where a stopped download left off.

import type { CatalogEntry } from "../../catalog/catalog.ts";
import { type PulledFile, pullEntry } from "../../catalog/pull.ts";
import { findEntries, unknownModel } from "../../catalog/resolve.ts";
import { AbortedError } from "../../index.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { interruptible } from "../interrupt.ts";
import { ProgressBar } from "../progress.ts";
import { bytesText } from "../text.ts";

export const pullCommand: CliCommand = {
  name: "pull",
  summary: "download a model",
  examples: [
    "lantern pull tinyllama-chat",
    "lantern pull hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf",
  ],
  define(command, context) {
    command
      .argument("<name>", 'a name of "lantern models", or hf:owner/repo/file.gguf')
      .action((name: string) => pull(name, context));
  },
};

async function pull(name: string, context: CliContext): Promise<void> {
  const entries = findEntries(name);
  if (!entries) throw unknownModel(name);
  using interrupt = interruptible(context.terminal);
  for (const entry of entries) {
    const pulled = await pullWithBar(entry, context, interrupt.signal);
    context.terminal.out(`${pulled.path}\n`);
    context.terminal.err(`${pulledText(entry, pulled)}\n`);
  }
}

async function pullWithBar(
  entry: CatalogEntry,
  context: CliContext,
  signal: AbortSignal,
): Promise<PulledFile> {
  const { terminal, downloads } = context;
  const bar = new ProgressBar(terminal, { label: entry.name, plainLines: true });
  try {
    return await pullEntry(entry, downloads, {
      signal,
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
    });
  } catch (error) {
    bar.done();
    if (error instanceof AbortedError) {
      terminal.err("What has arrived is kept: run the command again to continue.\n");
    }
    throw error;
  } finally {
    bar.done();
  }
}

function pulledText(entry: CatalogEntry, pulled: PulledFile): string {
  const what = `${entry.name}, ${bytesText(pulled.bytes)}, ${entry.licence}`;
  if (pulled.from !== "download") return `${what}: already here`;
  const resumed = pulled.resumedBytes ? `, ${bytesText(pulled.resumedBytes)} from before` : "";
  const checked =
    pulled.statedBy === "nobody"
      ? `nobody states a hash for it; its sha256 is ${pulled.sha256}`
      : `sha256 as stated by ${pulled.statedBy}`;
  return `${what}: downloaded${resumed}, ${checked}`;
}
