// What copies of state save and cost (docs/cache.md).
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
import { closeSync, mkdtempSync, openSync, readdirSync, readSync, rmSync, statSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type OpenOptions, open } from "../src/index.ts";
import { type LlamaSlots, llamaSlots } from "./cache-llama.ts";
import {
  type BranchResult,
  goOnBranches,
  median,
  type SwitchResult,
  switchSessions,
} from "./cache-sessions.ts";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prompt: { type: "string", short: "p", default: "4096" },
    tokens: { type: "string", short: "n", default: "64" },
    threads: { type: "string", short: "t" },
    rounds: { type: "string", short: "r", default: "3" },
    parts: { type: "string", default: "restart" },
    sessions: { type: "string", default: "200" },
    "session-tokens": { type: "string", default: "256" },
    "llama-server": { type: "string" },
    json: { type: "boolean", default: false },
  },
});
const [model, ...more] = positionals;
const partNames = ["restart", "switch", "branches", "llama"];
const parts = flags.parts.split(",");
if (model === undefined || more.length > 0 || parts.some((part) => !partNames.includes(part))) {
  console.error(
    `usage: npm run bench:cache -- MODEL.gguf [-p TOKENS] [-n TOKENS] [-t THREADS] [-r ROUNDS] [--parts ${partNames.join(",")}]
  [--sessions N] [--session-tokens N] [--llama-server PATH] [--json]`,
  );
  process.exit(2);
}

const length = Number(flags.prompt);
const generated = Number(flags.tokens);
const threads = flags.threads ? Number(flags.threads) : undefined;
const contextSize = length + generated + 64;
const common: OpenOptions = { contextSize, ...(threads && { threads }) };
const tokens = Array.from({ length }, (_, i) => 10 + ((i * 7919 + ((i * i) >> 3)) % 200));

interface Turn {
  readonly firstTokenMs: number;
  readonly tokensPerSecond: number;
  readonly restored: number;
  readonly restoreMs: number;
}

async function turn(prompt: readonly number[], options: OpenOptions): Promise<Turn> {
  await using opened = await open(model!, { ...common, ...options });
  return await answer(opened, prompt);
}

async function answer(
  opened: Awaited<ReturnType<typeof open>>,
  prompt: readonly number[],
): Promise<Turn> {
  const generation = opened.generate([...prompt], {
    maxTokens: generated,
    temperature: 0,
    ignoreEos: true,
  });
  const { timings } = await generation.result;
  const { generatedMs, totalMs, restored } = timings;
  return {
    firstTokenMs: totalMs - generatedMs,
    tokensPerSecond: (1000 * timings.generatedTokens) / generatedMs,
    restored: (restored?.diskTokens ?? 0) + (restored?.ramTokens ?? 0),
    restoreMs: restored?.ms ?? 0,
  };
}

const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));

/** Drops the pages of these files, after they were written back; false: it could not. */
function dropPages(files: readonly string[]): boolean {
  return files.every((file) => {
    const drop = [`of=${file}`, "oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
    return spawnSync("dd", drop, { stdio: "ignore" }).status === 0;
  });
}

/** The same bytes, one large read after the other into the same memory, or each into memory that nobody has used: MB/s. */
function sequential(files: readonly string[], into: "same" | "new" = "same"): number {
  const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
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

async function restart(folder: string) {
  const stored = { cacheDiskBytes: 64e9, cacheFolder: folder };
  const load = loadavg()[0]!;
  const computed = await turn(tokens, {});
  const saved = await turn(tokens, stored);
  const files = filesOf(folder);
  const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
  /** The model is open before the pages are dropped: its file is not part of this. */
  const restored = async (last: number, isCold: boolean): Promise<Turn> => {
    await using opened = await open(model!, { ...common, ...stored });
    if (isCold) dropPages(files);
    return await answer(opened, [...tokens, last]);
  };
  const isCold = dropPages(files);
  const coldRate = sequential(files);
  dropPages(files);
  const coldNewRate = sequential(files, "new");
  const cold = await restored(11, true);
  const warm = await restored(12, false);
  return {
    computed,
    saved,
    cold,
    warm,
    bytes,
    isCold,
    coldRate,
    coldNewRate,
    warmRate: sequential(files),
    load,
  };
}

async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-bench-cache-"));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface RestartResult {
  promptTokens: number;
  computedMs: number;
  coldMs: number;
  warmMs: number;
  coldRatio: number;
  warmRatio: number;
  restoredTokens: number;
  storedMB: number;
  isCold: boolean;
  coldMBps: number;
  coldSequentialMBps: number;
  coldSequentialNewMBps: number;
  warmMBps: number;
  warmSequentialMBps: number;
  generationWithCopies: number;
  load: number;
}

async function measureRestart(): Promise<RestartResult> {
  const rounds: Awaited<ReturnType<typeof restart>>[] = [];
  for (let round = 0; round < Number(flags.rounds); round++) rounds.push(await withFolder(restart));
  type Round = (typeof rounds)[number];
  const of = (pick: (round: Round) => number): number => median(rounds.map(pick));
  const rate = (pick: (round: Round) => Turn) =>
    of((round) => round.bytes / 1000 / pick(round).restoreMs);
  return {
    promptTokens: length,
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
    generationWithCopies: of(
      ({ computed, saved }) => saved.tokensPerSecond / computed.tokensPerSecond,
    ),
    load: of(({ load }) => load),
  };
}

const isJson = flags.json;
const say = (line: string): void => {
  if (!isJson) console.log(line);
};
const ms = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const found: {
  model: string;
  restart?: RestartResult;
  switch?: SwitchResult;
  branches?: BranchResult;
  llama?: LlamaSlots;
} = { model };

if (parts.includes("restart")) {
  const r = await measureRestart();
  found.restart = r;
  say(`${length} tokens of conversation, medians of ${flags.rounds} (load ${r.load.toFixed(1)}):
  first token, computed:       ${ms(r.computedMs)}
  first token after a restart: ${ms(r.coldMs)} (${r.coldRatio.toFixed(4)}x; ${r.restoredTokens} tokens restored) with ${r.isCold ? "a cold" : "an unknown"} page cache
                               ${ms(r.warmMs)} (${r.warmRatio.toFixed(4)}x) with a warm one
  copies:                      ${r.storedMB.toFixed(0)} MB, restored at ${r.coldMBps.toFixed(0)} MB/s; reading these files: ${r.coldSequentialMBps.toFixed(0)} MB/s (cold: ${((100 * r.coldMBps) / r.coldSequentialMBps).toFixed(0)}%), into new memory ${r.coldSequentialNewMBps.toFixed(0)} MB/s
                               ${r.warmMBps.toFixed(0)} MB/s; reading these files: ${r.warmSequentialMBps.toFixed(0)} MB/s (warm)
  generation with copies:      ${r.generationWithCopies.toFixed(3)}x of without`);
}
if (parts.includes("switch")) {
  const sessions = Number(flags.sessions);
  const sessionTokens = Number(flags["session-tokens"]);
  const { contextSize: _, ...plain } = common;
  const s = await withFolder((cacheFolder) =>
    switchSessions(model, {
      ...plain,
      ...{ cacheFolder, cacheDiskBytes: 64e9, sessions, sessionTokens },
      ramSessions: Math.max(1, Math.round(sessions / 10)),
    }),
  );
  found.switch = s;
  say(`${s.sessions} sessions of ${s.sessionTokens} tokens at random, memory for ${s.ramSessions} (load ${loadavg()[0]!.toFixed(1)}):
  first token: ${ms(s.allMs)}, from memory ${ms(s.ramMs)} (${s.fromRam}), from disk ${ms(s.diskMs)} (${s.fromDisk}): ${s.ratio.toFixed(2)}x of a hit in memory`);
}
if (parts.includes("branches")) {
  const b = await withFolder((cacheFolder) =>
    goOnBranches(model, { ...common, cacheFolder, cacheDiskBytes: 64e9, trunk: length - 200 }),
  );
  found.branches = b;
  say(`10 branches of a session of ${b.tokens} tokens; the first was computed in ${ms(b.computedMs)}. After a restart:
${b.branches.map(({ cached, computed, ms: time, isSame }, i) => `  branch ${i + 1}: ${cached} tokens from disk, ${computed} computed, first token after ${ms(time)}${isSame ? "" : " - ANOTHER TOKEN than without copies"}`).join("\n")}`);
}
if (parts.includes("llama")) {
  const server = flags["llama-server"];
  if (!server) throw new Error("--parts llama needs --llama-server PATH");
  const between = (files: readonly string[]) => void dropPages(files);
  const l = await llamaSlots({ server, model, contextSize, threads, tokens, between });
  found.llama = l;
  say(`llama-server's slots, ${length} tokens (load ${loadavg()[0]!.toFixed(1)}):
  prompt, computed: ${ms(l.computedMs)}; saved in ${ms(l.saveMs)} (${(l.fileBytes / 1e6).toFixed(0)} MB), which its user has to ask for
  after a restart:  restored in ${ms(l.restoreMs)} (cold), first token after ${ms(l.firstTokenMs)}; ${l.cachedTokens} tokens cached`);
}
if (isJson) console.log(JSON.stringify(found, null, 2));
