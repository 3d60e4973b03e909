// What copies of state save and cost (docs/journal/cache.md): the first token of a long conversation after a restart beside computing it,
// with a cold page cache and a warm one; the speed of reading copies beside reading the same files, one large read after the other; and
// generation with and without copies.
//
//   npm run bench:cache -- MODEL.gguf [-p 4096] [-n 64] [-t 2] [-r 3] [--json]
//
// In turns, each with the model opened anew. Pages of files are dropped by GNU dd (oflag=nocache), which needs no rights; where that
// fails, the cold numbers say so. Prints medians and the load average.

import { spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { median, takeRounds } from "../src/base/measure.ts";
import { type OpenOptions, open } from "../src/index.ts";
import { answer, bench, count, isOn, load, sum, tokensOf, withFolder } from "./harness.ts";

const flags = {
  prompt: count(4096, "p"),
  tokens: count(64, "n"),
  threads: count(undefined, "t"),
  rounds: count(3, "r"),
  json: isOn,
};

const ms = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const mb = (value: number): string => `${value.toFixed(0)} MB/s`;

interface Conversation {
  readonly model: string;
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly options: OpenOptions;
}

type Round = Awaited<ReturnType<typeof restart>>;
type Turn = Round["cold"];
type Found = ReturnType<typeof mediansOf>;

await bench("npm run bench:cache --", "MODEL.gguf", flags, async (given, [model]) => {
  const { prompt: length, tokens: maxTokens, threads } = given;
  const contextSize = length + maxTokens + 64;
  const options = { contextSize, ...(threads && { threads }) };
  const asked = { model: model!, prompt: tokensOf(250, length, 1), maxTokens, options };
  const rounds: Round[] = [];
  await takeRounds({
    rounds: given.rounds,
    measure: () => withFolder((folder) => restart(folder, asked)),
    keep: (round) => void rounds.push(round),
  });
  const found = { promptTokens: length, ...mediansOf(rounds) };
  console.log(given.json ? JSON.stringify(found, null, 2) : textOf(found, given.rounds));
});

function mediansOf(rounds: readonly Round[]) {
  const of = (pick: (round: Round) => number): number => median(rounds.map(pick));
  const rate = (pick: (round: Round) => Turn) =>
    of((round) => round.bytes / 1000 / pick(round).restoreMs);
  return {
    computedMs: of(({ computed }) => computed.firstTokenMs),
    coldMs: of(({ cold }) => cold.firstTokenMs),
    warmMs: of(({ warm }) => warm.firstTokenMs),
    restoredTokens: of(({ cold }) => cold.restored),
    storedMB: of(({ bytes }) => bytes / 1e6),
    isCold: rounds.every(({ isCold }) => isCold),
    coldMBps: rate(({ cold }) => cold),
    coldSequentialMBps: of(({ coldRate }) => coldRate),
    warmMBps: rate(({ warm }) => warm),
    warmSequentialMBps: of(({ warmRate }) => warmRate),
    generationWithCopies: of((one) => one.saved.tokensPerSecond / one.computed.tokensPerSecond),
    load: load(),
  };
}

function textOf(r: Found & { readonly promptTokens: number }, rounds: number): string {
  const ratio = (value: number) => `${ms(value)} (${(value / r.computedMs).toFixed(4)}x)`;
  return [
    `${r.promptTokens} tokens of conversation, medians of ${rounds} (load ${r.load.toFixed(1)}):`,
    `  first token, computed:       ${ms(r.computedMs)}`,
    `  first token after a restart: ${ratio(r.coldMs)} with ${r.isCold ? "a cold" : "an unknown"} page cache, ${ratio(r.warmMs)} with a warm one; ${r.restoredTokens} tokens restored`,
    `  copies:                      ${r.storedMB.toFixed(0)} MB, restored at ${mb(r.coldMBps)} (cold) and ${mb(r.warmMBps)} (warm); reading these files: ${mb(r.coldSequentialMBps)} and ${mb(r.warmSequentialMBps)}`,
    `  generation with copies:      ${r.generationWithCopies.toFixed(3)}x of without`,
  ].join("\n");
}

function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function bytesOf(files: readonly string[]): number {
  return sum(files.map((file) => statSync(file).size));
}

/** Drops the pages of these files, after they were written back; false: it could not. */
function dropPages(files: readonly string[]): boolean {
  return files.every((file) => {
    const drop = [`of=${file}`, "oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
    return spawnSync("dd", drop, { stdio: "ignore" }).status === 0;
  });
}

/** The same bytes, one large read after the other into the same memory: MB/s. */
function sequential(files: readonly string[]): number {
  const buffer = new Uint8Array(8 << 20).fill(1);
  const started = performance.now();
  for (const file of files) {
    const descriptor = openSync(file, "r");
    while (readSync(descriptor, buffer, 0, buffer.length, null) > 0);
    closeSync(descriptor);
  }
  return bytesOf(files) / 1000 / (performance.now() - started);
}

async function restart(folder: string, { model, options, prompt, maxTokens }: Conversation) {
  const stored = { ...options, cacheDiskBytes: 64e9, cacheFolder: folder };
  /** `ready`: called when the model is open, whose file is not part of this. */
  const turn = async (how: OpenOptions, last: readonly number[] = [], ready?: () => void) => {
    await using opened = await open(model, how);
    ready?.();
    const { timings } = await answer(opened, [...prompt, ...last], { maxTokens, speculate: true });
    const { generatedMs, totalMs, generatedTokens, restored } = timings;
    return {
      firstTokenMs: totalMs - generatedMs,
      tokensPerSecond: (1000 * generatedTokens) / generatedMs,
      restored: (restored?.diskTokens ?? 0) + (restored?.ramTokens ?? 0),
      restoreMs: restored?.ms ?? 0,
    };
  };
  const computed = await turn(options);
  const saved = await turn(stored);
  const files = filesOf(folder);
  const isCold = dropPages(files);
  const coldRate = sequential(files);
  const cold = await turn(stored, [11], () => void dropPages(files));
  const warm = await turn(stored, [12]);
  const rates = { coldRate, warmRate: sequential(files) };
  return { computed, saved, cold, warm, bytes: bytesOf(files), isCold, ...rates };
}
