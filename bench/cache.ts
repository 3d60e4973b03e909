// What copies of state save and cost (docs/journal/cache.md).
//
//   npm run bench:cache -- MODEL.gguf [-p 4096] [-n 64] [-t 2] [-r 3] [--parts restart,switch,branches,llama] [--json]
//
// restart   the first token of a long conversation after a restart beside computing it, with a cold page cache and a warm one; the speed
//           of reading copies beside reading the same files, one large read after the other; generation with and without copies
// switch    200 sessions of --session-tokens that take turns at random, with memory for 20: the first token beside that of a hit in memory
// branches  10 branches of a session, a restart, and each goes on
// llama     the same conversation with llama-server's slots (--llama-server PATH): computed, saved, restored after a restart
//
// In turns, each with the model opened anew. Pages of files are dropped by GNU dd (oflag=nocache), which needs no rights; where that
// fails, the cold numbers say so. Prints medians and the load average.

import { spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "../src/base/errors.ts";
import { median, takeRounds } from "../src/base/measure.ts";
import { type Model, type OpenOptions, open } from "../src/index.ts";
import { type LlamaSlots, llamaSlots } from "./cache-llama.ts";
import {
  type BranchResult,
  goOnBranches,
  type SwitchResult,
  switchSessions,
} from "./cache-sessions.ts";
import {
  answer,
  bench,
  count,
  isOn,
  load,
  sum,
  text,
  texts,
  type Values,
  withFolder,
} from "./harness.ts";

const flags = {
  prompt: count(4096, "p"),
  tokens: count(64, "n"),
  threads: count(undefined, "t"),
  rounds: count(3, "r"),
  parts: texts(["restart"]),
  sessions: count(200),
  sessionTokens: count(256),
  llamaServer: text(),
  json: isOn,
};
type Given = Values<typeof flags>;

const ms = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const mb = (value: number): string => `${value.toFixed(0)} MB/s`;

/** What is measured with each part, and its words. */
interface Conversation extends Given {
  readonly model: string;
  readonly tokenIds: readonly number[];
  readonly options: OpenOptions & { readonly contextSize: number };
}

const parts: Readonly<
  Record<string, (asked: Conversation) => Promise<{ found: unknown; says: string }>>
> = { restart, switch: switching, branches, llama };

await bench("npm run bench:cache --", "MODEL.gguf", flags, async (given, [model]) => {
  const unknown = given.parts.find((part) => !(part in parts));
  if (unknown !== undefined) {
    throw new UsageError(`--parts: got "${unknown}", expected ${Object.keys(parts).join(", ")}`);
  }
  const { prompt: length, threads } = given;
  const tokenIds = Array.from({ length }, (_, i) => 10 + ((i * 7919 + ((i * i) >> 3)) % 200));
  const contextSize = length + given.tokens + 64;
  const options = { contextSize, ...(threads && { threads }) };
  const found: Record<string, unknown> = { model };
  for (const part of Object.keys(parts).filter((name) => given.parts.includes(name))) {
    const result = await parts[part]!({ ...given, model: model!, tokenIds, options });
    found[part] = result.found;
    if (!given.json) console.log(result.says);
  }
  if (given.json) console.log(JSON.stringify(found, null, 2));
});

interface Turn {
  readonly firstTokenMs: number;
  readonly tokensPerSecond: number;
  readonly restored: number;
  readonly restoreMs: number;
}

async function turn(model: Model, prompt: readonly number[], tokens: number): Promise<Turn> {
  const { timings } = await answer(model, prompt, { maxTokens: tokens, speculate: true });
  const { generatedMs, totalMs, generatedTokens, restored } = timings;
  return {
    firstTokenMs: totalMs - generatedMs,
    tokensPerSecond: (1000 * generatedTokens) / generatedMs,
    restored: (restored?.diskTokens ?? 0) + (restored?.ramTokens ?? 0),
    restoreMs: restored?.ms ?? 0,
  };
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

/** The same bytes, one large read after the other into the same memory, or each into memory that nobody has used: MB/s. */
function sequential(files: readonly string[], into: "same" | "new" = "same"): number {
  const bytes = bytesOf(files);
  const step = 8 << 20;
  const buffer = new Uint8Array(into === "new" ? bytes + step : step);
  if (into === "same") buffer.fill(1);
  const started = performance.now();
  let at = 0;
  for (const file of files) {
    const descriptor = openSync(file, "r");
    for (let read = -1; read !== 0; ) {
      read = readSync(descriptor, buffer, at, step, null);
      if (into === "new") at += read;
    }
    closeSync(descriptor);
  }
  return bytes / 1000 / (performance.now() - started);
}

async function restartOnce(folder: string, { model, options, tokenIds, tokens }: Conversation) {
  const stored = { ...options, cacheDiskBytes: 64e9, cacheFolder: folder };
  const average = load();
  const first = async (how: OpenOptions): Promise<Turn> => {
    await using opened = await open(model, how);
    return await turn(opened, tokenIds, tokens);
  };
  const computed = await first(options);
  const saved = await first(stored);
  const files = filesOf(folder);
  /** The model is open before the pages are dropped: its file is not part of this. */
  const restored = async (last: number, isCold: boolean): Promise<Turn> => {
    await using opened = await open(model, stored);
    if (isCold) dropPages(files);
    return await turn(opened, [...tokenIds, last], tokens);
  };
  const isCold = dropPages(files);
  const coldRate = sequential(files);
  dropPages(files);
  const coldNewRate = sequential(files, "new");
  const cold = await restored(11, true);
  const warm = await restored(12, false);
  const rates = { coldRate, coldNewRate, warmRate: sequential(files) };
  return { computed, saved, cold, warm, bytes: bytesOf(files), isCold, ...rates, load: average };
}

async function restart(asked: Conversation) {
  const rounds: Awaited<ReturnType<typeof restartOnce>>[] = [];
  await takeRounds({
    rounds: asked.rounds,
    measure: () => withFolder((folder) => restartOnce(folder, asked)),
    keep: (round) => void rounds.push(round),
  });
  type Round = (typeof rounds)[number];
  const of = (pick: (round: Round) => number): number => median(rounds.map(pick));
  const rate = (pick: (round: Round) => Turn) =>
    of((round) => round.bytes / 1000 / pick(round).restoreMs);
  const r = {
    promptTokens: asked.prompt,
    computedMs: of(({ computed }) => computed.firstTokenMs),
    coldMs: of(({ cold }) => cold.firstTokenMs),
    warmMs: of(({ warm }) => warm.firstTokenMs),
    coldRatio: of(({ computed, cold }) => cold.firstTokenMs / computed.firstTokenMs),
    warmRatio: of(({ computed, warm }) => warm.firstTokenMs / computed.firstTokenMs),
    restoredTokens: of(({ cold }) => cold.restored),
    storedMB: of(({ bytes }) => bytes / 1e6),
    isCold: rounds.every(({ isCold }) => isCold),
    coldMBps: rate(({ cold }) => cold),
    coldSequentialMBps: of(({ coldRate }) => coldRate),
    coldSequentialNewMBps: of(({ coldNewRate }) => coldNewRate),
    warmMBps: rate(({ warm }) => warm),
    warmSequentialMBps: of(({ warmRate }) => warmRate),
    generationWithCopies: of((one) => one.saved.tokensPerSecond / one.computed.tokensPerSecond),
    load: of((one) => one.load),
  };
  const says = `${asked.prompt} tokens of conversation, medians of ${asked.rounds} (load ${r.load.toFixed(1)}):
  first token, computed:       ${ms(r.computedMs)}
  first token after a restart: ${ms(r.coldMs)} (${r.coldRatio.toFixed(4)}x; ${r.restoredTokens} tokens restored) with ${r.isCold ? "a cold" : "an unknown"} page cache
                               ${ms(r.warmMs)} (${r.warmRatio.toFixed(4)}x) with a warm one
  copies:                      ${r.storedMB.toFixed(0)} MB, restored at ${mb(r.coldMBps)}; reading these files: ${mb(r.coldSequentialMBps)} (cold: ${((100 * r.coldMBps) / r.coldSequentialMBps).toFixed(0)}%), into new memory ${mb(r.coldSequentialNewMBps)}
                               ${mb(r.warmMBps)}; reading these files: ${mb(r.warmSequentialMBps)} (warm)
  generation with copies:      ${r.generationWithCopies.toFixed(3)}x of without`;
  return { found: r, says };
}

async function switching({ model, options, sessions, sessionTokens }: Conversation) {
  const { contextSize: _, ...plain } = options;
  const ramSessions = Math.max(1, Math.round(sessions / 10));
  const s: SwitchResult = await withFolder((cacheFolder) => {
    const stored = { cacheFolder, cacheDiskBytes: 64e9 };
    return switchSessions(model, { ...plain, ...stored, sessions, sessionTokens, ramSessions });
  });
  const says = `${s.sessions} sessions of ${s.sessionTokens} tokens at random, memory for ${s.ramSessions} (load ${load().toFixed(1)}):
  first token: ${ms(s.allMs)}, from memory ${ms(s.ramMs)} (${s.fromRam}), from disk ${ms(s.diskMs)} (${s.fromDisk}): ${s.ratio.toFixed(2)}x of a hit in memory`;
  return { found: s, says };
}

async function branches({ model, options, prompt }: Conversation) {
  const b: BranchResult = await withFolder((cacheFolder) =>
    goOnBranches(model, { ...options, cacheFolder, cacheDiskBytes: 64e9, trunk: prompt - 200 }),
  );
  const lines = b.branches.map(
    ({ cached, computed, ms: time, isSame }, i) =>
      `  branch ${i + 1}: ${cached} tokens from disk, ${computed} computed, first token after ${ms(time)}${isSame ? "" : " - ANOTHER TOKEN than without copies"}`,
  );
  const first = `10 branches of a session of ${b.tokens} tokens; the first was computed in ${ms(b.computedMs)}. After a restart:`;
  return { found: b, says: [first, ...lines].join("\n") };
}

async function llama({
  model,
  options,
  threads,
  tokenIds: tokens,
  llamaServer,
  prompt,
}: Conversation) {
  if (!llamaServer) throw new UsageError("--parts llama needs --llama-server PATH");
  const between = (files: readonly string[]) => void dropPages(files);
  const sizes = { contextSize: options.contextSize, threads };
  const l: LlamaSlots = await llamaSlots({ server: llamaServer, model, tokens, between, ...sizes });
  const says = `llama-server's slots, ${prompt} tokens (load ${load().toFixed(1)}):
  prompt, computed: ${ms(l.computedMs)}; saved in ${ms(l.saveMs)} (${(l.fileBytes / 1e6).toFixed(0)} MB), which its user has to ask for
  after a restart:  restored in ${ms(l.restoreMs)} (cold), first token after ${ms(l.firstTokenMs)}; ${l.cachedTokens} tokens cached`;
  return { found: l, says };
}
