// What op offload gains (docs/journal/gpu.md): a prompt with half of the layers off the GPU, computed on the processor as before, and with
// weights that the GPU gets for each batch:
//
//   npm run bench:offload -- MODEL.gguf ... [--prompt 512] [--rounds 5] [--layers N] [--forced] [--json]
//
// Both models are open at the same time and take turns; the first says what was measured when it was loaded, from how many tokens on
// it offloads, and how many bytes each batch brings. --forced: from 32 tokens on, whatever was measured.

import { basename } from "node:path";
import { measure, median } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { type Answer, answer, bench, count, counts, isOn, timed, tokensOf } from "./harness.ts";

const flags = {
  prompt: counts([512]),
  rounds: count(5),
  layers: count(),
  forced: isOn,
  json: isOn,
};

/** The first of them waits for keys and values that come back from the GPU. */
const maxTokens = 32;

await bench("npm run bench:offload --", "MODEL.gguf ...", flags, async (values, paths) => {
  for (const path of paths) {
    const layers = values.layers ?? (await half(path));
    const contextSize = Math.max(...values.prompt) + 64;
    const options = { gpuLayers: layers, contextSize };
    const forced = values.forced && { opOffload: true };
    const { result, ms } = await timed(() => open(path, { ...options, ...forced }));
    await using offloaded = result;
    await using split = await open(path, { ...options, opOffload: false });
    const said = offloaded.info.backend.notes.filter((note) =>
      /op offload: (no|prompts|demanded)|come from the host for each batch/.test(note),
    );
    if (!values.json) {
      const loaded = `loaded in ${(ms / 1000).toFixed(1)} s`;
      console.log(`${basename(path)} -ngl ${layers} (${loaded})\n  ${said.join("\n  ")}`);
    }
    for (const tokens of values.prompt) {
      const row = await compare(path, tokens, split, offloaded, values.rounds);
      if (values.json) console.log(JSON.stringify({ model: basename(path), layers, said, ...row }));
      else print(row);
    }
  }
});

async function compare(
  path: string,
  tokens: number,
  split: Model,
  offloaded: Model,
  rounds: number,
) {
  const { samples } = await measure({
    contestants: [split, offloaded],
    rounds,
    warmUps: 1, // what is compiled on first use
    run: (model, round) => answer(model, promptOf(model, tokens, round), { maxTokens }),
  });
  const of = (pick: (one: Answer) => number) =>
    samples.map((all) => all.map(pick)) as [number[], number[]];
  const prompts = of(({ promptPerSecond }) => promptPerSecond);
  const [slow, fast] = prompts;
  return {
    tokens,
    split: median(slow),
    offloaded: median(fast),
    times: median(fast) / median(slow),
    slowest: Math.min(...fast) / Math.max(...slow),
    generation: of(({ generatedPerSecond }) => generatedPerSecond).map(median),
    wholeMs: of(({ timings }) => timings.promptMs + timings.generatedMs).map(median),
    apart: await apart(path, tokens, { split, offloaded }),
  };
}

function print(row: Awaited<ReturnType<typeof compare>>): void {
  const [before, after] = row.generation as [number, number];
  const [slow, fast] = row.wholeMs as [number, number];
  console.log(
    [
      `  prompt of ${row.tokens}: ${row.split.toFixed(0)} -> ${row.offloaded.toFixed(0)} tokens/s (${row.times.toFixed(2)} x; its slowest over the split's fastest ${row.slowest.toFixed(2)})`,
      `generation ${before.toFixed(1)} -> ${after.toFixed(1)}`,
      `prompt and ${maxTokens} tokens ${slow.toFixed(0)} -> ${fast.toFixed(0)} ms (${(slow / fast).toFixed(2)} x)`,
      `log probabilities from those of all layers on the GPU: split ${row.apart.split.toExponential(1)}, offloaded ${row.apart.offloaded.toExponential(1)}`,
    ].join("; "),
  );
}

async function half(path: string): Promise<number> {
  await using model = await open(path, { gpuLayers: 1, contextSize: 64, opOffload: false });
  return Math.floor(model.info.layers / 2) + 1;
}

/** No two prompts begin alike. */
function promptOf({ info }: Model, tokens: number, round: number): number[] {
  return tokensOf(info.vocabSize, tokens, round * 31 + tokens);
}

/** How far the best log probabilities of the token after a prompt are from those that the GPU has with all layers. */
async function apart(path: string, tokens: number, models: { split: Model; offloaded: Model }) {
  await using all = await open(path, { gpuLayers: "all", contextSize: tokens + 64 });
  const best = async (model: Model) => {
    const prompt = promptOf(model, tokens, 1000);
    const generation = model.generate(prompt, { temperature: 0, maxTokens: 1, logprobs: 20 });
    const found = new Map<number, number>();
    for await (const { top = [] } of generation.tokens()) {
      for (const { id, logprob } of top) found.set(id, logprob);
    }
    return found;
  };
  const right = await best(all);
  const distance = (found: ReadonlyMap<number, number>) =>
    Math.max(...[...right].map(([id, value]) => Math.abs(value - (found.get(id) ?? value))));
  return {
    split: distance(await best(models.split)),
    offloaded: distance(await best(models.offloaded)),
  };
}
