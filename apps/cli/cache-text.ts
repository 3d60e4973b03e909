// lantern models --cache and --clear-cache: copies of conversations on disk, by model, and the copies that running servers report.

import {
  clearStoredState,
  type EngineStatus,
  isStoredAs,
  type StoredState,
  storedState,
  UsageError,
} from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { askServers } from "./commands/ps.ts";
import { defaultCacheMib } from "./flags.ts";
import { bytesText, plural, tableText } from "./text.ts";

export interface CacheFlags {
  json?: boolean;
  clearCache?: string | true;
  cacheFolder?: string;
  yes?: boolean;
}

/** A running server's report of a model's cache. */
interface ServedCache {
  url: string;
  model: string;
  cache: EngineStatus["cache"];
}

const mib = 2 ** 20;
const budgets = { ramBytes: defaultCacheMib.ram * mib, diskBytes: defaultCacheMib.disk * mib };

export async function listCache(flags: CacheFlags, context: CliContext): Promise<void> {
  const { terminal, color } = context;
  const stored = await storedState(flags);
  const served = await servedCaches(context);
  if (flags.json) {
    terminal.out(`${JSON.stringify({ ...stored, defaultBudgets: budgets, servers: served })}\n`);
    return;
  }
  if (stored.models.length > 0) {
    const header = ["MODEL", "KV CACHE", "BACKEND", "SIZE", "LAST USED", "FOLDER"];
    const rows = stored.models.map(({ model, kvType, backend, bytes, usedAt, folder }) => [
      model || "?",
      kvType,
      backend,
      bytesText(bytes),
      usedAt > 0 ? new Date(usedAt).toISOString().slice(0, 16).replace("T", " ") : "-",
      folder,
    ]);
    terminal.out(`${tableText([header, ...rows], [3])}\n`);
  }
  const notes = [placeText(stored), ...served.flatMap(servedText), ...advice(stored)];
  terminal.out(`${color().out.dim(notes.join("\n"))}\n`);
}

async function servedCaches(context: CliContext): Promise<ServedCache[]> {
  const asked = await askServers({}, context);
  return asked.flatMap(({ url, status }) =>
    (status?.models ?? []).flatMap(({ id, cache }) => (cache ? { url, model: id, cache } : [])),
  );
}

function placeText({ path, bytes, freeBytes }: StoredState): string {
  const free = freeBytes === undefined ? "" : `, ${bytesText(freeBytes)} free`;
  return `Copies on disk are in ${path}: ${bytesText(bytes)}${free}. Budgets of "lantern serve" and "lantern chat": ${bytesText(budgets.diskBytes)} on disk (--cache-disk), ${bytesText(budgets.ramBytes)} in memory (--cache-ram).`;
}

function servedText({ url, model, cache }: ServedCache): string[] {
  const { tokens, ram, disk, computedAgain } = cache;
  const all = tokens.kv + tokens.ram + tokens.disk + tokens.computed;
  const held = `${url}, ${model}: ${bytesText(ram.bytes)} of ${bytesText(ram.budgetBytes)} in memory, disk budget ${bytesText(disk.budgetBytes)}.`;
  if (all === 0) return [`${held} No prompt yet.`];
  const share = (count: number) => `${((100 * count) / all).toFixed(0)}%`;
  const again = Object.entries(computedAgain).map(([reason, count]) => `${count} ${reason}`);
  const lost = again.length > 0 ? ` Known but computed again: ${again.join(", ")}.` : "";
  return [
    `${held} Of ${plural(all, "prompt token")}: ${share(tokens.kv)} were in the KV cache, ${share(tokens.ram)} came from memory, ${share(tokens.disk)} from disk, ${share(tokens.computed)} were computed.${lost}`,
  ];
}

function advice({ models }: StoredState): string[] {
  return models.length > 0
    ? ['"lantern models --clear-cache [MODEL]" deletes them.']
    : ["Nothing is stored."];
}

export async function clearCache(flags: CacheFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const model = flags.clearCache === true ? undefined : flags.clearCache;
  const { cacheFolder } = flags;
  const stored = await storedState({ cacheFolder });
  if (model !== undefined && !stored.models.some((one) => isStoredAs(one, model))) {
    const names = [...new Set(stored.models.map((one) => one.model || one.folder))];
    throw new UsageError(
      `models --clear-cache: nothing is stored of ${JSON.stringify(model)}. ${names.length > 0 ? `There are copies of: ${names.join(", ")}` : "There are no copies at all"}`,
    );
  }
  const what = model === undefined ? "of all models" : `of ${model}`;
  const size = model === undefined ? `, ${bytesText(stored.bytes)}` : "";
  if (
    !flags.yes &&
    !(await agreed(`Delete the copies of conversations ${what}${size}?`, context))
  ) {
    terminal.err("Nothing was deleted.\n");
    context.exitCode = 1;
    return;
  }
  const removed = await clearStoredState({ cacheFolder, model });
  const bytes = removed.reduce((sum, one) => sum + one.bytes, 0);
  if (flags.json) terminal.out(`${JSON.stringify({ removed, bytes })}\n`);
  else terminal.out(`${bytesText(bytes)} were deleted (${plural(removed.length, "folder")})\n`);
  const running = await servedCaches(context);
  if (running.length > 0) {
    terminal.err(
      "Running servers keep what they have in memory; the web app's Models page clears that, too.\n",
    );
  }
}

async function agreed(question: string, { terminal }: CliContext): Promise<boolean> {
  if (!terminal.inIsTerminal) {
    throw new UsageError(
      "models --clear-cache: standard input is not a terminal, so nobody can confirm. Use --yes to delete without asking",
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
