// What copies of state save and cost (docs/cache.md): the first token of a long conversation after a restart beside computing it,
// the speed of reading copies beside reading the same bytes from a file, and generation with and without copies.
//
//   npm run bench:cache -- MODEL.gguf [-p 4096] [-n 64] [-t 2] [-r 3] [--json]
//
// In turns, each with the model opened anew. The page cache holds what was just written: reading is that of a warm disk, on both
// sides of the comparison. Prints medians and the load average.

import { closeSync, mkdtempSync, openSync, readdirSync, readSync, rmSync, statSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type OpenOptions, open } from "../src/index.ts";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prompt: { type: "string", short: "p", default: "4096" },
    tokens: { type: "string", short: "n", default: "64" },
    threads: { type: "string", short: "t" },
    rounds: { type: "string", short: "r", default: "3" },
    json: { type: "boolean", default: false },
  },
});
const [model, ...more] = positionals;
if (model === undefined || more.length > 0) {
  console.error(
    "usage: npm run bench:cache -- MODEL.gguf [-p TOKENS] [-n TOKENS] [-t THREADS] [-r ROUNDS] [--json]",
  );
  process.exit(2);
}

const length = Number(flags.prompt);
const generated = Number(flags.tokens);
const common: OpenOptions = {
  contextSize: length + generated + 64,
  ...(flags.threads && { threads: Number(flags.threads) }),
};
const tokens = Array.from({ length }, (_, i) => 10 + ((i * 7919 + ((i * i) >> 3)) % 200));

interface Turn {
  readonly firstTokenMs: number;
  readonly tokensPerSecond: number;
  readonly restored: number;
  readonly restoreMs: number;
}

async function turn(prompt: readonly number[], options: OpenOptions): Promise<Turn> {
  await using opened = await open(model!, { ...common, ...options });
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

/** The same bytes, one large read after the other: MB/s. */
function sequential(folder: string): { bytes: number; rate: number } {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
  const buffer = new Uint8Array(8 << 20);
  const started = performance.now();
  for (const file of files) {
    const descriptor = openSync(file, "r");
    while (readSync(descriptor, buffer) > 0);
    closeSync(descriptor);
  }
  return { bytes, rate: bytes / 1000 / (performance.now() - started) };
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;

const rounds: {
  computed: Turn;
  saved: Turn;
  again: Turn;
  bytes: number;
  rate: number;
  load: number;
}[] = [];
for (let round = 0; round < Number(flags.rounds); round++) {
  const folder = mkdtempSync(join(tmpdir(), "lantern-bench-cache-"));
  const stored = { cacheDiskBytes: 64e9, cacheFolder: folder };
  try {
    const load = loadavg()[0]!;
    const computed = await turn(tokens, {});
    const saved = await turn(tokens, stored);
    const again = await turn([...tokens, 11], stored);
    rounds.push({ computed, saved, again, ...sequential(folder), load });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
const of = (pick: (round: (typeof rounds)[number]) => number): number => median(rounds.map(pick));
const found = {
  model,
  promptTokens: length,
  computedMs: of(({ computed }) => computed.firstTokenMs),
  restoredMs: of(({ again }) => again.firstTokenMs),
  firstTokenRatio: of(({ computed, again }) => again.firstTokenMs / computed.firstTokenMs),
  restoredTokens: of(({ again }) => again.restored),
  storedMB: of(({ bytes }) => bytes / 1e6),
  restoreMBps: of(({ again, bytes }) => bytes / 1000 / again.restoreMs),
  sequentialMBps: of(({ rate }) => rate),
  generationWithCopies: of(
    ({ computed, saved }) => saved.tokensPerSecond / computed.tokensPerSecond,
  ),
  load: of(({ load }) => load),
};
if (flags.json) console.log(JSON.stringify(found, null, 2));
else {
  console.log(`${length} tokens of conversation, medians of ${rounds.length} (load ${found.load.toFixed(1)}):
  first token, computed:       ${found.computedMs.toFixed(0)} ms
  first token after a restart: ${found.restoredMs.toFixed(0)} ms (${found.firstTokenRatio.toFixed(3)}x; ${found.restoredTokens} tokens restored)
  copies:                      ${found.storedMB.toFixed(0)} MB, restored at ${found.restoreMBps.toFixed(0)} MB/s; reading these files: ${found.sequentialMBps.toFixed(0)} MB/s
  generation with copies:      ${found.generationWithCopies.toFixed(3)}x of without`);
}
