// Lantern beside wllama (llama.cpp compiled to WebAssembly), in one page of one Chromium, on the same file, with the same
// number of threads: prompt and generation speed of both, and the ratio.
//
//   npm run bench:wllama -- MODEL.gguf ... [-t 1,2] [-p 128] [-n 32] [-r 5] [--json | --markdown] [--force]
//
// The rounds and their rules are bench:peers' (side-by-side.ts, quiet.ts). wllama is looked for as wllama/arena.ts says.

import { basename } from "node:path";
import { Command } from "commander";
import { LanternError, UsageError } from "../src/base/errors.ts";
import { contextFor } from "../src/cli/bench/measure.ts";
import { machineText, statusLine } from "../src/cli/bench/options.ts";
import { openTokenizer, type TextTokenizer } from "../src/index.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { QuietWatch } from "./quiet.ts";
import {
  addCompareFlags,
  type CompareFlags,
  type Line,
  report,
  runRounds,
  type Side,
  settle,
  type Watch,
} from "./side-by-side.ts";
import { Arena, wasmPath } from "./wllama/arena.ts";
import { load, measureLantern, measureWllama, type RoundInput, unload } from "./wllama/page.ts";

interface Bench {
  arena: Arena;
  watch: Watch;
  flags: CompareFlags;
  status(text: string): void;
}

/** Tokens that a generation starts from: the beginning of a text, and a letter or two. */
const startTokens = 3;

async function main(terminal: Terminal): Promise<void> {
  const program = addCompareFlags(
    new Command("bench:wllama").argument("<models...>", "GGUF files of at most 2 GB"),
  ).action((models: string[], flags: CompareFlags) => compare(models, flags, terminal));
  await program.parseAsync();
}

async function compare(models: string[], flags: CompareFlags, terminal: Terminal): Promise<void> {
  const before = terminal.load();
  await settle(new QuietWatch(terminal), flags);
  const status = statusLine(terminal);
  status("building the package, starting Chromium");
  const arena = await Arena.open();
  const lines: Line[] = [];
  try {
    const bench: Bench = { arena, watch: await arena.watch(terminal), flags, status };
    for (const model of models) {
      for (const threads of flags.threads ?? [terminal.machine().cores]) {
        lines.push(await compareOnce(bench, model, threads));
      }
    }
  } finally {
    status("");
    await arena.close();
  }
  const facts = `${machineText(terminal.machine(), before, terminal.load())}; ${arena.versions}`;
  report(terminal, lines, facts, flags);
}

async function compareOnce(bench: Bench, path: string, threads: number): Promise<Line> {
  const { flags, status } = bench;
  const { page } = bench.arena;
  const title = `${basename(path)}, ${threads} threads`;
  status(`${title}: loading`);
  const nextInput = await inputSource(path, flags);
  await page.setInputFiles("input", path);
  const contextSize = contextFor(flags.prompt, flags.predict + startTokens);
  const loaded = await page.evaluate(load, { threads, contextSize, wasm: wasmPath });
  if (loaded.threads.some((got) => got !== threads)) {
    const got = loaded.threads.join(" and ");
    throw new UsageError(
      `bench: Lantern and wllama took ${got} threads, expected ${threads}: ${loaded.notes.join("; ")}`,
    );
  }
  const sides: [Side<RoundInput>, Side<RoundInput>] = [
    { name: "Lantern", samples: [], measure: (input) => page.evaluate(measureLantern, input) },
    { name: "wllama", samples: [], measure: (input) => page.evaluate(measureWllama, input) },
  ];
  status(`${title}: warming up`);
  for (const side of sides)
    await side.measure({ ...nextInput(), predict: Math.min(4, flags.predict) });
  const disturbed = await runRounds(sides, nextInput, bench.watch, {
    repetitions: flags.repetitions,
    force: flags.force === true,
    onRound: (done) => status(`${title}: round ${done + 1}`),
  });
  await page.evaluate(unload);
  return { model: basename(path), threads, sides, disturbed };
}

/** Other texts every time, so that no cache helps, but the same in every run. */
async function inputSource(path: string, flags: CompareFlags): Promise<() => RoundInput> {
  const tokenizer = await openTokenizer(path);
  const random = randomBelow();
  return () => ({
    prompt: textOf(tokenizer, flags.prompt, random),
    promptTokens: flags.prompt,
    start: textOf(tokenizer, startTokens, random),
    predict: flags.predict,
  });
}

/** A text of exactly this many tokens: random letters, each a word of its own where that does not make it too long. */
function textOf(
  tokenizer: TextTokenizer,
  count: number,
  random: (below: number) => number,
): string {
  let text = "";
  for (let tries = 0; tries < 20 * count + 100; tries++) {
    const length = tokenizer.encode(text).length;
    if (length === count) return text;
    const letter = String.fromCharCode(97 + random(26));
    const longer = [`${text} ${letter}`, text + letter].find((candidate) => {
      const got = tokenizer.encode(candidate).length;
      return got > length && got <= count;
    });
    text = longer ?? text;
  }
  throw new UsageError(`bench: no text of ${count} tokens was found for this model`);
}

function randomBelow(): (below: number) => number {
  let state = 0x2f6e2b1;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const terminal = nodeTerminal();
try {
  await main(terminal);
} catch (error) {
  if (!(error instanceof LanternError)) throw error;
  terminal.err(`${error.message}\n`);
  process.exitCode ??= 1;
}
