// Lantern beside llama.cpp (node-llama-cpp) on the same files: prompt and generation speed of both, and the ratio.
//
//   npm run bench:peers -- MODEL.gguf ... [-t 1,2] [-p 128] [-n 32] [-r 5] [--level 4] [--json | --markdown] [--force]
//
// Both run in this process and take turns, in alternating order. A round that something disturbed is measured again; a
// line whose rounds were never quiet is marked and gets no ratio, unless --force says that it should. Default opt level: 4 where it can
// be run, otherwise 3.

import { basename } from "node:path";
import {
  type Contestant,
  contextFor,
  lanternContestant,
  tokenSource,
} from "../apps/cli/bench/measure.ts";
import { bestOptLevel } from "../apps/cli/bench/options.ts";
import { type OptLevel, open } from "../src/index.ts";
import { bench, counts, type Values } from "./harness.ts";
import { type Llama, llamaContestant, loadLlama } from "./llama-cpp.ts";
import { type Comparison, compareFlags, comparison, runRounds, type Side } from "./side-by-side.ts";

const flags = { ...compareFlags, level: counts() };

await bench("npm run bench:peers --", "MODEL.gguf ...", flags, async (given, models) => {
  const llama = await loadLlama();
  await comparison(given, async (bench) => {
    for (const model of models) {
      for (const threads of given.threads) {
        for (const level of given.level ?? [await bestOptLevel()]) {
          await compareOnce(bench, llama, given, { model, threads, level: level as OptLevel });
        }
      }
    }
    return `llama.cpp ${llama.llamaCppRelease.release}`;
  });
});

async function compareOnce(
  { watch, lines, status }: Comparison,
  llama: Llama,
  given: Values<typeof flags>,
  { model: path, threads, level }: { model: string; threads: number; level: OptLevel },
): Promise<void> {
  const { prompt, predict, repetitions, force } = given;
  const contextSize = contextFor(prompt, predict);
  status(`${path}, ${threads} threads: loading`);
  await using model = await open(path, { contextSize, threads, level });
  await using peer = await llamaContestant(llama, path, threads, contextSize);
  const next = tokenSource(model.info.vocabSize);
  const side = (name: string, contestant: Contestant): Side<ReturnType<typeof input>> => ({
    name,
    measure: async (given) => ({
      prompt: await contestant.prompt(given.prompt),
      generation: await contestant.generate(given.first, predict),
    }),
  });
  const input = () => ({ prompt: next(prompt), first: next(1)[0]! });
  const sides = [side("Lantern", lanternContestant(model)), side("llama.cpp", peer)];
  for (const one of sides) await one.measure(input()); // warms up
  const name = `${basename(path)}${given.level ? `, level ${level}` : ""}`;
  const onRound = (done: number) => status(`${name}, ${threads} threads: round ${done + 1}`);
  const measured = await runRounds(sides, input, watch, { repetitions, force, onRound });
  lines.push({ model: name, threads, ...measured });
}
