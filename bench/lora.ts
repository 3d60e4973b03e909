// What adapters cost: tokens a second of one model with 0, 1 and 2 LoRA adapters of a rank in use, and of the model opened without any.
//
//   npm run bench:lora -- MODEL.gguf [-t 2] [-k 16] [-p 256] [-n 64] [-r 5] [--gpu-layers all]
//
// The factors (F16) are random, for all matrices of layers but those of experts. All runs are in turns. "bytes" is what a generated
// token reads beside the model's weights, the ratio that memory bandwidth allows follows from it; "FLOPs" likewise for prompts.

import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { inspect, type Model, type OpenOptions, open } from "../src/index.ts";
import { adapterFile } from "../test/support/adapter-file.ts";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", short: "t" },
    rank: { type: "string", short: "k", default: "16" },
    prompt: { type: "string", short: "p", default: "256" },
    tokens: { type: "string", short: "n", default: "64" },
    rounds: { type: "string", short: "r", default: "5" },
    "gpu-layers": { type: "string" },
  },
});
const [file] = positionals;
if (!file || positionals.length > 1) {
  console.error(
    "usage: npm run bench:lora -- MODEL.gguf [-t THREADS] [-k RANK] [-p TOKENS] [-n TOKENS] [-r ROUNDS] [--gpu-layers all|COUNT]",
  );
  process.exit(2);
}
const [promptTokens, maxTokens] = [Number(flags.prompt), Number(flags.tokens)];

interface Speeds {
  prompt: number;
  generation: number;
}

const matrices = /^blk\..*(attn_(q|k|v|output|qkv)|ffn_(gate|up|down))\.weight$/;
const { tensors, architecture = "llama" } = await inspect(file);
const elements = ({ shape }: { shape: readonly number[] }) => shape.reduce((a, b) => a * b, 1);
const used = tensors.filter(({ name }) => matrices.test(name));
const rank = Number(flags.rank);
/** Values of an adapter: two for each FLOP that a token costs. */
const values = used.reduce((sum, { shape }) => sum + rank * (shape[0]! + shape[1]!), 0);
const isTied = !tensors.some(({ name }) => name === "output.weight");
const read = tensors.filter(({ name }) => isTied || name !== "token_embd.weight");
const modelBytes = read.reduce((sum, { bytes }) => sum + bytes, 0);
const modelValues = read.reduce((sum, tensor) => sum + elements(tensor), 0);

async function speeds(model: Model, adapters: number, seed: number): Promise<Speeds> {
  await model.clearCache();
  const tokens = Array.from({ length: promptTokens }, (_, i) => 3 + ((i * 7 + seed) % 250));
  const { timings } = await model.generate(tokens, {
    ...{ maxTokens, temperature: 0, ignoreEos: true },
    ...(model.adapters().length > 0 && {
      adapters: Array.from({ length: adapters }, (_, id) => ({ id, scale: 1 })),
    }),
  }).result;
  return {
    prompt: (1000 * timings.promptTokens) / timings.promptMs,
    generation: (1000 * (timings.generatedTokens - 1)) / timings.generatedMs,
  };
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;

const folder = mkdtempSync(join(tmpdir(), "lantern-bench-lora-"));
try {
  const shapes = used.map((tensor) => [tensor.name, tensor] as const);
  const made = (seed: number) =>
    adapterFile(folder, `${seed}`, shapes, { seed, rank, type: "f16", size: 0.01, architecture });
  const adapters = [await made(1), await made(2)];
  const layers = flags["gpu-layers"];
  const options: OpenOptions = {
    ...{ speculate: false, parallel: 1, contextSize: promptTokens + maxTokens + 8 },
    ...(flags.threads !== undefined && { threads: Number(flags.threads) }),
    ...(layers !== undefined && { gpuLayers: layers === "all" ? "all" : Number(layers) }),
  };
  await using plain = await open(file, options);
  await using model = await open(file, { ...options, adapters });
  const runs = [
    { name: "opened without adapters", of: plain, count: 0 },
    ...[0, 1, 2].map((count) => ({ name: `${count} of 2 in use`, of: model, count })),
  ].map((run) => ({ ...run, measured: [] as Speeds[] }));
  for (const { of, count } of runs) await speeds(of, count, 0);
  for (let round = 1; round <= Number(flags.rounds); round++) {
    for (const { of, count, measured } of runs) measured.push(await speeds(of, count, round));
  }
  console.log(`| rank ${rank}, F16 | prompt tokens/s | | generated tokens/s | | limit by bytes |`);
  console.log("|---|---|---|---|---|---|");
  const of = (kind: keyof Speeds, measured: Speeds[]) => median(measured.map((one) => one[kind]));
  const first = runs[0]!.measured;
  for (const { name, count, measured } of runs) {
    const cells = (["prompt", "generation"] as const).map((kind) => {
      const speed = of(kind, measured);
      return `${speed.toFixed(1)} | ${((100 * speed) / of(kind, first)).toFixed(1)} %`;
    });
    const limit = (100 * modelBytes) / (modelBytes + count * 2 * values);
    console.log(`| ${name} | ${cells.join(" | ")} | ${limit.toFixed(1)} % |`);
  }
  const flops = ((100 * values) / modelValues).toFixed(1);
  console.log(
    `an adapter: ${(values / 1e6).toFixed(1)} M values, ${((200 * values) / modelBytes).toFixed(1)} % of the model's bytes, ${flops} % of its FLOPs; load ${loadavg()[0]!.toFixed(1)}, ${plain.info.backend.name}`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
