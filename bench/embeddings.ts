// Lantern beside llama.cpp (node-llama-cpp) as makers of embeddings, on the same files: texts per second of both, and the ratio.
//
//   node bench/embeddings.ts MODEL.gguf ... [-t 1,2] [-p 128,512] [-n 8] [-r 3]
//
// Both run in this process and take turns. Lantern gets all texts of a round at once, llama.cpp one after the other: its package
// has no other way. Texts are random tokens.

import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { rateText, tokenSource } from "../apps/cli/bench/measure.ts";
import { measure, median } from "../src/base/measure.ts";
import { open } from "../src/index.ts";
import { bench, count, counts, load, printTable, timed, type Values } from "./harness.ts";
import { llamaEmbedder, loadLlama } from "./llama-cpp.ts";

const flags = {
  threads: counts([availableParallelism()], "t"),
  prompt: counts([128, 512], "p"),
  texts: count(8, "n"),
  repetitions: count(3, "r"),
};

await bench("node bench/embeddings.ts", "MODEL.gguf ...", flags, async (given, paths) => {
  const rows: string[][] = [];
  for (const path of paths) {
    for (const threads of given.threads) rows.push(...(await compare(path, threads, given)));
  }
  console.log(
    `texts/s, median of ${given.repetitions} rounds of ${given.texts} texts; load ${load().toFixed(1)}\n`,
  );
  printTable(["model", "threads", "tokens", "Lantern", "llama.cpp", "ratio"], rows);
});

async function compare(
  path: string,
  threads: number,
  { prompt, texts, repetitions }: Values<typeof flags>,
): Promise<string[][]> {
  const contextSize = Math.max(...prompt) + 8; // llama.cpp may add tokens at both ends
  await using model = await open(path, { contextSize, threads });
  await using peer = await llamaEmbedder(await loadLlama(), path, threads, contextSize);
  const next = tokenSource(model.info.vocabSize);
  const rows: string[][] = [];
  for (const tokens of prompt) {
    let input: number[][] = [];
    const { samples } = await measure({
      contestants: [() => model.embed(input), () => peer.embed(input)],
      rounds: repetitions,
      warmUps: 1,
      onRound: () => {
        input = Array.from({ length: texts }, () => next(tokens));
      },
      run: async (embed: () => Promise<unknown>) => (1000 * texts) / (await timed(embed)).ms,
    });
    const [own, other] = samples.map(median) as [number, number];
    const cells = [basename(path), threads, tokens, rateText(own), rateText(other)];
    rows.push([...cells.map(String), (own / other).toFixed(2)]);
  }
  return rows;
}
