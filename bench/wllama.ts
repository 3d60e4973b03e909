// Lantern beside wllama (llama.cpp compiled to WebAssembly), in one page of one Chromium, on the same file, with the same
// number of threads: prompt and generation speed of both, and the ratio.
//
//   npm run bench:wllama -- MODEL.gguf ... [-t 1,2] [-p 128] [-n 32] [-r 5] [--json | --markdown] [--force]
//
// The rounds and their rules are bench:peers' (side-by-side.ts, quiet.ts). wllama is looked for as locatePeer() says. Files have at most 2 GB.

import { basename } from "node:path";
import { contextFor } from "../apps/cli/bench/measure.ts";
import { UsageError } from "../src/base/errors.ts";
import { openTokenizer, type TextTokenizer } from "../src/index.ts";
import { Random } from "../test/support/random.ts";
import { bench } from "./harness.ts";
import {
  type CompareFlags,
  type Comparison,
  compareFlags,
  comparison,
  runRounds,
  type Side,
} from "./side-by-side.ts";
import { type Arena, wasmPath, withArena } from "./wllama/arena.ts";
import { load, measureLantern, measureWllama, type RoundInput, unload } from "./wllama/page.ts";

/** Tokens that a generation starts from: the beginning of a text, and a letter or two. */
const startTokens = 3;

await bench("npm run bench:wllama --", "MODEL.gguf ...", compareFlags, async (given, models) => {
  await comparison(given, async (bench) => {
    let versions = "";
    bench.status("building the package, starting Chromium");
    await withArena(bench.terminal, async (arena) => {
      versions = arena.versions;
      for (const model of models) {
        for (const threads of given.threads) await compareOnce(bench, arena, given, model, threads);
      }
    });
    return versions;
  });
});

async function compareOnce(
  { status, lines }: Comparison,
  { page, watch }: Arena,
  given: CompareFlags,
  path: string,
  threads: number,
): Promise<void> {
  const { prompt, predict, repetitions, force } = given;
  const title = `${basename(path)}, ${threads} threads`;
  status(`${title}: loading`);
  const nextInput = await inputSource(path, given);
  await page.setInputFiles("input", path);
  const contextSize = contextFor(prompt, predict + startTokens);
  const loaded = await page.evaluate(load, { threads, contextSize, wasm: wasmPath });
  if (loaded.threads.some((got) => got !== threads)) {
    const got = loaded.threads.join(" and ");
    throw new UsageError(
      `bench: Lantern and wllama took ${got} threads, expected ${threads}: ${loaded.notes.join("; ")}`,
    );
  }
  const sides: Side<RoundInput>[] = [
    { name: "Lantern", measure: (input) => page.evaluate(measureLantern, input) },
    { name: "wllama", measure: (input) => page.evaluate(measureWllama, input) },
  ];
  status(`${title}: warming up`);
  for (const side of sides) await side.measure({ ...nextInput(), predict: Math.min(4, predict) });
  const onRound = (done: number) => status(`${title}: round ${done + 1}`);
  const measured = await runRounds(sides, nextInput, watch, { repetitions, force, onRound });
  await page.evaluate(unload);
  lines.push({ model: basename(path), threads, ...measured });
}

/** Other texts every time, so that no cache helps, but the same in every run. */
async function inputSource(path: string, given: CompareFlags): Promise<() => RoundInput> {
  const tokenizer = await openTokenizer(path);
  const random = new Random(1);
  return () => ({
    prompt: textOf(tokenizer, given.prompt, random),
    promptTokens: given.prompt,
    start: textOf(tokenizer, startTokens, random),
    predict: given.predict,
  });
}

/** A text of exactly this many tokens: random letters, each a word of its own where that does not make it too long. */
function textOf(tokenizer: TextTokenizer, count: number, random: Random): string {
  let text = "";
  for (let tries = 0; tries < 20 * count + 100; tries++) {
    const length = tokenizer.encode(text).length;
    if (length === count) return text;
    const letter = String.fromCharCode(97 + random.below(26));
    const longer = [`${text} ${letter}`, text + letter].find((candidate) => {
      const got = tokenizer.encode(candidate).length;
      return got > length && got <= count;
    });
    text = longer ?? text;
  }
  throw new UsageError(`bench: no text of ${count} tokens was found for this model`);
}
