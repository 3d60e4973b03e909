// What adapters cost: tokens a second of one model with 0, 1 and 2 LoRA adapters of a rank in use, and of the model opened without any.
//
//   npm run bench:lora -- MODEL.gguf [-t 2] [-k 16] [-p 256] [-n 64] [-r 5] [--gpu-layers all]
//
// The factors (F16) are random, for all matrices of layers but those of experts. All runs are in turns. "bytes" is what a generated
// token reads beside the model's weights, the ratio that memory bandwidth allows follows from it; "FLOPs" likewise for prompts.

import { measure, median } from "../src/base/measure.ts";
import { inspect, type Model, type OpenOptions, open } from "../src/index.ts";
import { adapterFile } from "../test/support/adapter-file.ts";
import {
  answer,
  bench,
  count,
  load,
  printTable,
  sum,
  text,
  tokensOf,
  withFolder,
} from "./harness.ts";

const flags = {
  threads: count(undefined, "t"),
  rank: count(16, "k"),
  prompt: count(256, "p"),
  tokens: count(64, "n"),
  rounds: count(5, "r"),
  gpuLayers: text(),
};
const matrices = /^blk\..*(attn_(q|k|v|output|qkv)|ffn_(gate|up|down))\.weight$/;

await bench("npm run bench:lora --", "MODEL.gguf", flags, async (given, [file]) => {
  const { rank, prompt, tokens: maxTokens, threads, gpuLayers } = given;
  const { tensors, architecture = "llama" } = await inspect(file!);
  const used = tensors.filter(({ name }) => matrices.test(name));
  /** Values of an adapter: two for each FLOP that a token costs. */
  const values = sum(used.map(({ shape }) => rank * (shape[0]! + shape[1]!)));
  const isTied = !tensors.some(({ name }) => name === "output.weight");
  const read = tensors.filter(({ name }) => isTied || name !== "token_embd.weight");
  const modelBytes = sum(read.map(({ bytes }) => bytes));
  const modelValues = sum(read.map(({ shape }) => shape.reduce((a, b) => a * b, 1)));
  const options: OpenOptions = {
    ...{ parallel: 1, contextSize: prompt + maxTokens + 8 },
    ...(threads !== undefined && { threads }),
    ...(gpuLayers !== undefined && { gpuLayers: gpuLayers === "all" ? "all" : Number(gpuLayers) }),
  };
  const ask = async (model: Model, adapters: number, seed: number) => {
    await model.clearCache();
    const chosen = Array.from({ length: adapters }, (_, id) => ({ id, scale: 1 }));
    return await answer(model, tokensOf(250, prompt, seed), {
      maxTokens,
      ...(model.adapters().length > 0 && { adapters: chosen }),
    });
  };
  await withFolder(async (folder) => {
    const shapes = used.map((tensor) => [tensor.name, tensor] as const);
    const made = (seed: number) =>
      adapterFile(folder, `${seed}`, shapes, { seed, rank, type: "f16", size: 0.01, architecture });
    await using plain = await open(file!, options);
    await using model = await open(file!, { ...options, adapters: [await made(1), await made(2)] });
    const contestants = [
      { name: "opened without adapters", of: plain, used: 0 },
      ...[0, 1, 2].map((used) => ({ name: `${used} of 2 in use`, of: model, used })),
    ];
    const { samples } = await measure({
      contestants,
      rounds: given.rounds,
      warmUps: 1,
      run: (one, round) => ask(one.of, one.used, round),
    });
    const speeds = samples.map((all) =>
      (["promptPerSecond", "generatedPerSecond"] as const).map((kind) =>
        median(all.map((one) => one[kind])),
      ),
    );
    printTable(
      [`rank ${rank}, F16`, "prompt tokens/s", "", "generated tokens/s", "", "limit by bytes"],
      contestants.map(({ name, used }, i) => {
        const cells = speeds[i]!.flatMap((speed, kind) => [
          speed.toFixed(1),
          `${((100 * speed) / speeds[0]![kind]!).toFixed(1)} %`,
        ]);
        const limit = (100 * modelBytes) / (modelBytes + used * 2 * values);
        return [name, ...cells, `${limit.toFixed(1)} %`];
      }),
    );
    const flops = ((100 * values) / modelValues).toFixed(1);
    console.log(
      `an adapter: ${(values / 1e6).toFixed(1)} M values, ${((200 * values) / modelBytes).toFixed(1)} % of the model's bytes, ${flops} % of its FLOPs; load ${load().toFixed(1)}, ${plain.info.backend.name}`,
    );
  });
});
