// How fast models run on this machine's GPU, beside what its memory would allow:
//
//   npm run bench:gpu -- MODEL.gguf ... [--prompt 512] [--generate 128] [--context 16] [--cache-type f16] [--kernels] [--exact] [--tuned] [--json]
//
// Prompt and generation are batches of the backend, from the tokens to the logits on the host (of a generated token: the best one),
// without the engine around them; LANTERN_FLIGHT=0 computes those one after the other, LANTERN_LAYER_GROUPS=132 in a dispatch
// for each layer (bench/layers.ts compares that in turns), --tuned with what "lantern tune --backend webgpu" stored.
// "lantern bench --backend webgpu" measures all of it. The limit of generation is the memory bandwidth that this program measures, over the bytes of weights that a token
// needs. Synthetic models: scripts/make-model.ts.

import { basename } from "node:path";
import { Command } from "commander";
import { cpuArithmetic } from "../src/backends/cpu/arithmetic.ts";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import type { KernelTime } from "../src/backends/webgpu/time-kernels.ts";
import { isKvType, type KvType, kvTypesText } from "../src/dtypes/kv-types.ts";
import { weightBytes as bytesOf } from "../src/graph/cost.ts";
import type { Graph } from "../src/graph/graph.ts";
import { readBandwidth } from "../src/machine/gpu-rates.ts";
import { chooseOptLevel } from "../src/machine/native.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { measuredGpuTuning } from "../src/tune/measured-choices.ts";
import { type GpuModel, loadGpuModel, MOST_TOKENS, median } from "./gpu-model.ts";

interface Flags {
  prompt: number;
  generate: number;
  context: number;
  repeat: number;
  cacheType: KvType;
  kernels?: boolean;
  exact?: boolean;
  tuned?: boolean;
  json?: boolean;
}

interface Row {
  model: string;
  loadSeconds: number;
  promptPerSecond: number;
  generatedPerSecond: number;
  /** Tokens per second if memory were all that counts. */
  limitPerSecond: number;
  /** What the GPU alone takes for a token, without the host. */
  gpuMilliseconds: number;
}

const positive = (text: string): number => {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new Error(`got "${text}", expected a whole number above 0`);
};

const WARM_UP_MS = 600;

const cacheType = (text: string): KvType => {
  if (isKvType(text)) return text;
  throw new Error(`got "${text}", expected ${kvTypesText}`);
};

await new Command("bench:gpu")
  .argument("<models...>", "GGUF files")
  .option("--prompt <tokens>", "tokens of a prompt, computed 512 at a time", positive, 512)
  .option("--generate <tokens>", "tokens that are written", positive, 128)
  .option("--context <tokens>", "tokens before those that are written", positive, 16)
  .option("--repeat <times>", "prompts that are measured", positive, 5)
  .option("--cache-type <type>", "of the KV cache", cacheType, "f16" as KvType)
  .option("--kernels", "the time of every kernel, by timestamp queries")
  .option("--exact", "kernels that compute the bits of the processor")
  .option("--tuned", "kernels that were tuned on this machine")
  .option("--json", "for programs")
  .action(main)
  .parseAsync();

async function main(models: string[], flags: Flags): Promise<void> {
  const access = await nodePlatform.gpu();
  const gpu = await GpuDevice.open(access);
  const { name, driver } = gpu.facts;
  const gigabytes = (await readBandwidth(gpu)) / 1e9;
  gpu.dispose();
  if (!flags.json) console.log(`${name} (${driver}): reads ${gigabytes.toFixed(0)} GB/s\n`);
  const rows: Row[] = [];
  for (const path of models) {
    const contextTokens = Math.max(flags.prompt, flags.context + flags.generate);
    const device = await GpuDevice.open(access);
    const exact = flags.exact
      ? cpuArithmetic((await chooseOptLevel({ level: undefined }, nodePlatform)).native)
      : undefined;
    const { cacheType } = flags;
    const tuned = flags.tuned ? await measuredGpuTuning(nodePlatform, device.facts) : undefined;
    const model = await loadGpuModel(
      path,
      device,
      contextTokens,
      tuned?.tuning,
      exact,
      undefined,
      cacheType,
    );
    const layers = model.backend.explain().find((line) => line.startsWith("a layer of a token"));
    if (layers && !flags.json) console.log(`${basename(path)}: ${layers}`);
    rows.push(await measure(basename(path), model, flags, gigabytes));
    if (flags.kernels && !flags.json) await printKernels(model, flags);
    model.backend.dispose();
  }
  if (flags.json) console.log(JSON.stringify({ gpu: name, driver, gigabytes, rows }, null, 2));
  else print(rows, flags);
}

async function measure(
  name: string,
  model: GpuModel,
  flags: Flags,
  gigabytes: number,
): Promise<Row> {
  // Shaders and caches are warm then, and so are the GPU's clocks, which are low for 0.2 s after idling.
  const before = performance.now();
  do await model.prompt(flags.prompt, 2);
  while (performance.now() - before < WARM_UP_MS);
  const prompts = await model.prompt(flags.prompt, flags.repeat);
  const tokens = await model.generate(flags.context, flags.generate);
  return {
    model: name,
    loadSeconds: model.loadMs / 1000,
    promptPerSecond: median(prompts),
    generatedPerSecond: 1000 / median(tokens),
    limitPerSecond: (gigabytes * 1e9) / weightBytes(model.graph),
    gpuMilliseconds: await model.gpuTime(flags.context),
  };
}

/** That a token needs: all matrices, of experts those that it uses, of the embedding table one row. */
function weightBytes({ nodes }: Graph): number {
  let bytes = 0;
  for (const node of nodes) {
    if (node.op === "matmul") bytes += bytesOf(node.weight);
    if (node.op !== "matmul_id") continue;
    bytes += (bytesOf(node.weight) * node.routes.cols) / 2 / node.weight.shape[0]!;
  }
  return bytes;
}

function print(rows: readonly Row[], { prompt, generate, context }: Flags): void {
  console.log(
    `| model | prompt ${prompt}: tokens/s | generation (${generate} after ${context}): tokens/s | limit | of limit | GPU alone, ms |`,
  );
  console.log("| --- | ---: | ---: | ---: | ---: | ---: |");
  for (const row of rows) {
    const { model, promptPerSecond, generatedPerSecond, limitPerSecond, gpuMilliseconds } = row;
    const part = `${((100 * generatedPerSecond) / limitPerSecond).toFixed(0)} %`;
    const numbers = [promptPerSecond, generatedPerSecond, limitPerSecond].map((n) => n.toFixed(0));
    console.log(`| ${model} | ${numbers.join(" | ")} | ${part} | ${gpuMilliseconds.toFixed(2)} |`);
  }
}

async function lastBatch(model: GpuModel, prompt: number): Promise<KernelTime[]> {
  const last = Math.min(prompt, MOST_TOKENS);
  return await model.kernels(prompt - last, last);
}

/** Of both kinds of batches, summed up by kernel. */
async function printKernels(model: GpuModel, { prompt, context }: Flags): Promise<void> {
  for (const [title, times] of [
    ["a token", await model.kernels(context, 1)],
    [`the last batch of a prompt of ${prompt}`, await lastBatch(model, prompt)],
  ] as const) {
    console.log(`${title}:`);
    const byName = new Map<string, number[]>();
    for (const { kernel, microseconds } of times) {
      byName.set(kernel.name, [...(byName.get(kernel.name) ?? []), microseconds]);
    }
    for (const [name, each] of byName) {
      const sum = each.reduce((a, b) => a + b, 0);
      console.log(
        `  ${name.padEnd(48)} x ${String(each.length).padStart(3)}  ${median(each).toFixed(1)} us each, ${sum.toFixed(0)} us`,
      );
    }
    console.log("");
  }
}
