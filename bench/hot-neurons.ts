// What hot neurons on a GPU gain (docs/use/sparse.md): generated tokens of a model with ReLU that does not fit a GPU's memory, divided by
// layers, and with the neurons that are open most often on the GPU, in the same memory:
//
//   node scripts/make-model.ts relullama-7b-hot q4_0 /tmp/hot.gguf
//   npm run bench:hot-neurons -- /tmp/hot.gguf [--share 0.25] [--threads 4,16] [--tokens 48] [--rounds 5] [--json]
//
// Contestants: all layers on the processor; divided by layers, with all neurons and without those that are zero; hot neurons. All of them are
// open at the same time and take turns. The layers of the divided ones are as many as take the GPU memory of the hot neurons.

import { basename } from "node:path";
import { measure, summarize } from "../src/base/measure.ts";
import { type Model, type OpenOptions, open } from "../src/index.ts";
import {
  answer,
  bench,
  count,
  counts,
  firstDifference,
  isOn,
  number,
  sum,
  tokensOf,
} from "./harness.ts";

const flags = {
  share: number(0.25),
  threads: counts([4]),
  tokens: count(48),
  rounds: count(5),
  json: isOn,
};
await bench("npm run bench:hot-neurons --", "MODEL.gguf", flags, async (values, [path]) => {
  for (const threads of values.threads) await compare(path!, threads, values);
});

async function compare(
  path: string,
  threads: number,
  { share, tokens, rounds, json }: { share: number; tokens: number; rounds: number; json: boolean },
): Promise<void> {
  const openWith = (options: OpenOptions) =>
    open(path, { threads, contextSize: 256, opOffload: false, ...options });
  await using hot = await openWith({ gpuLayers: "all", hotNeurons: share, sparse: true });
  const layers = await layersFor(path, gpuBytes(hot));
  await using processor = await openWith({ gpuLayers: 0, sparse: true });
  await using dense = await openWith({ gpuLayers: layers, sparse: false });
  await using split = await openWith({ gpuLayers: layers, sparse: true });
  const contestants = Object.entries({ processor, dense, split, hot });
  const prompt = tokensOf(hot.info.vocabSize, 16, 0);
  const { samples } = await measure({
    contestants,
    rounds,
    warmUps: 1,
    run: ([, model]) => answer(model, prompt, { maxTokens: tokens }),
  });
  const wanted = samples.at(-1)!.at(-1)!.tokenIds;
  const rows = contestants.map(([name, model], i) => {
    const own = samples[i]!;
    const { median, min, max } = summarize(own.map((one) => one.generatedPerSecond));
    const differs = firstDifference(own.at(-1)!.tokenIds, wanted);
    return {
      ...{ name, tokensPerSecond: median, range: [min, max], gpuMiB: gpuBytes(model) / 2 ** 20 },
      text: differs < 0 ? "same text" : `same for ${differs} tokens`,
    };
  });
  const notes = hot.info.backend.notes.filter((note) => /hot neurons|values pass/.test(note));
  if (json) {
    console.log(JSON.stringify({ model: basename(path), threads, layers, notes, rows }));
    return;
  }
  console.log(`${basename(path)}, ${threads} threads, -ngl ${layers}\n  ${notes.join("\n  ")}`);
  for (const { name, tokensPerSecond, range, gpuMiB, text } of rows) {
    const [least, most] = range.map((speed) => speed.toFixed(2));
    console.log(
      `  ${name.padEnd(10)} ${tokensPerSecond.toFixed(2).padStart(8)} tokens/s (${least} to ${most})  ${gpuMiB.toFixed(0)} MiB of weights on the GPU, ${text}`,
    );
  }
}

function gpuBytes({ info }: Model): number {
  const own = info.backend.placement.filter(({ isDevice }) => isDevice);
  return sum(own.map(({ weightBytes }) => weightBytes));
}

/** As many layers as take at most so many bytes. */
async function layersFor(path: string, bytes: number): Promise<number> {
  await using one = await open(path, { gpuLayers: 2, contextSize: 64, opOffload: false });
  await using two = await open(path, { gpuLayers: 3, contextSize: 64, opOffload: false });
  const perLayer = gpuBytes(two) - gpuBytes(one);
  return Math.floor((bytes - gpuBytes(one)) / perLayer) + 2;
}
