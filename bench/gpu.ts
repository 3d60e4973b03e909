// How fast models run on this machine's GPU, beside what its memory would allow:
//
//   npm run bench:gpu -- MODEL.gguf ... [--prompt 512] [--generate 128] [--context 16] [--cache-type f16] [--kernels] [--exact] [--tuned] [--json]
//   npm run bench:gpu-users -- MODEL.gguf ... [--users 1,2,8,32,64] [--context 128] [--steps 32]     a batch with one token of each user
//   npm run bench:gpu-cold -- MODEL.gguf ... [--sizes 1,8,64,128,512] [--kv-tokens 8192] [--idle 2]  the first batches of each size, a
//         KV cache that grows by doubling to so many tokens, and a block that is copied out: what the first users wait for
//
// Prompt and generation are batches of the backend, from the tokens to the logits on the host (of a generated token: the best one),
// without the engine around them; LANTERN_LOOKAHEAD=0 computes those one after the other, LANTERN_LAYER_GROUPS=132 in a dispatch
// for each layer, --tuned with what "lantern tune --backend webgpu" stored.
// "lantern bench --backend webgpu" measures all of it. The limit of generation is the memory bandwidth that this program measures, over the bytes of weights that a token
// needs. Synthetic models: scripts/make-model.ts.

import { basename } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { cpuArithmetic } from "../src/backends/cpu/arithmetic.ts";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { median } from "../src/base/measure.ts";
import { kvTypes } from "../src/dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../src/graph/batch.ts";
import { weightBytes as bytesOf } from "../src/graph/cost.ts";
import type { Graph } from "../src/graph/graph.ts";
import { readBandwidth } from "../src/machine/gpu-rates.ts";
import { chooseOptLevel } from "../src/machine/native.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { measuredGpuTuning } from "../src/tune/measured-choices.ts";
import { type GpuModel, loadGpuModel, MOST_TOKENS, printKernels } from "./gpu-model.ts";
import {
  bench,
  choice,
  count,
  counts,
  isOn,
  number,
  printTable,
  timed,
  type Values,
} from "./harness.ts";

const flags = {
  prompt: count(512),
  generate: count(128),
  context: count(16),
  repeat: count(5),
  cacheType: choice("f16", kvTypes),
  kernels: isOn,
  exact: isOn,
  tuned: isOn,
  json: isOn,
  users: counts(),
  steps: count(32),
  cold: isOn,
  sizes: counts([1, 8, 64, 128, 512]),
  kvTokens: count(8192),
  /** Seconds without work, after which a batch is timed again: GPUs slow down meanwhile. */
  idle: number(2),
};
type Given = Values<typeof flags>;

const WARM_UP_MS = 600;

await bench("npm run bench:gpu --", "MODEL.gguf ...", flags, async (given, models) => {
  const access = await nodePlatform.gpu();
  const gpu = await GpuDevice.open(access);
  const { name, driver } = gpu.facts;
  const gigabytes = (await readBandwidth(gpu)) / 1e9;
  gpu.dispose();
  if (!given.json) console.log(`${name} (${driver}): reads ${gigabytes.toFixed(0)} GB/s\n`);
  const rows: Awaited<ReturnType<typeof measureModel>>[] = [];
  for (const path of given.cold ? models : []) await measureCold(path, given);
  for (const path of given.cold ? [] : models) {
    const contextTokens = Math.max(given.prompt, given.context + given.generate);
    const device = await GpuDevice.open(access);
    const native = given.exact && (await chooseOptLevel({ level: undefined }, nodePlatform)).native;
    const tuned = given.tuned ? await measuredGpuTuning(nodePlatform, device.facts) : undefined;
    const model = await loadGpuModel(path, device, contextTokens, {
      tuning: tuned?.tuning,
      exact: native === false ? undefined : cpuArithmetic(native),
      kvType: given.cacheType,
      ...(given.users && { users: Math.max(...given.users) }),
    });
    const layers = model.backend.explain().find((line) => line.startsWith("a layer of a token"));
    if (layers && !given.json) console.log(`${basename(path)}: ${layers}`);
    if (given.users) await measureUsers(basename(path), model, given.users, given);
    else {
      rows.push(await measureModel(basename(path), model, given, gigabytes));
      if (given.kernels && !given.json) await kernels(model, given);
    }
    model.backend.dispose();
  }
  if (given.json) console.log(JSON.stringify({ gpu: name, driver, gigabytes, rows }, null, 2));
  else if (rows.length > 0) {
    const { prompt, generate, context } = given;
    const generation = `generation (${generate} after ${context}): tokens/s`;
    printTable(
      ["model", `prompt ${prompt}: tokens/s`, generation, "limit", "of limit", "GPU alone, ms"],
      rows.map((row) => [
        row.model,
        ...[row.promptPerSecond, row.generatedPerSecond, row.limitPerSecond].map((n) =>
          n.toFixed(0),
        ),
        `${((100 * row.generatedPerSecond) / row.limitPerSecond).toFixed(0)} %`,
        row.gpuMilliseconds.toFixed(2),
      ]),
    );
  }
});

async function measureModel(model: string, gpu: GpuModel, given: Given, gigabytes: number) {
  // Shaders and caches are warm then, and so are the GPU's clocks, which are low for 0.2 s after idling.
  const before = performance.now();
  do await gpu.prompt(given.prompt, 2);
  while (performance.now() - before < WARM_UP_MS);
  return {
    model,
    promptPerSecond: median(await gpu.prompt(given.prompt, given.repeat)),
    generatedPerSecond: 1000 / median(await gpu.generate(given.context, given.generate)),
    /** If memory were all that counts. */
    limitPerSecond: (gigabytes * 1e9) / weightBytes(gpu.graph),
    /** What the GPU alone takes for a token, without the host. */
    gpuMilliseconds: await gpu.gpuTime(given.context),
  };
}

async function measureUsers(
  model: string,
  gpu: GpuModel,
  all: readonly number[],
  { context, steps, kernels }: Given,
): Promise<void> {
  const rows: string[][] = [];
  for (const users of all) {
    const { times, gpuMs } = await gpu.step(users, context, steps);
    const ms = median(times);
    rows.push([String(users), gpuMs.toFixed(2), ms.toFixed(2), ((users * 1000) / ms).toFixed(0)]);
    if (!kernels) continue;
    console.log(`${users} users:`);
    printKernels(await gpu.lastKernels(), 52);
  }
  console.log(`${model}, after ${context} tokens each`);
  printTable(["users", "GPU, ms a step", "with the host, ms", "tokens/s"], rows, 0);
}

async function measureCold(path: string, { sizes, kvTokens, idle }: Given): Promise<void> {
  /** Blocks for the largest batch. */
  const least = Math.ceil(Math.max(...sizes) / KV_BLOCK_TOKENS);
  const gpu = await GpuDevice.open(await nodePlatform.gpu());
  const model = await loadGpuModel(path, gpu, kvTokens, { held: least });
  const { backend } = model;
  const batches = async (size: number, count: number): Promise<string> => {
    const times: number[] = [];
    for (let i = 0; i < count; i++) times.push((await timed(() => model.prompt(size, 1))).ms);
    return `${times.map((ms) => ms.toFixed(ms < 10 ? 2 : 1)).join(", ")} ms`;
  };
  const last = sizes.at(-1)!;
  console.log(`${basename(path)}: loaded in ${model.loadMs.toFixed(0)} ms`);
  for (const size of sizes) {
    console.log(`${size} tokens, one batch after the other: ${await batches(size, 6)}`);
  }
  await pause(1000 * idle);
  console.log(`${last} tokens after ${idle} s without work: ${await batches(last, 3)}`);
  let blocks = least;
  for (; 2 * blocks <= kvTokens / KV_BLOCK_TOKENS; blocks *= 2) {
    const { ms } = await timed(() => backend.growKv([2 * blocks]));
    const megabytes = (backend.memory().kvBytes / 1e6).toFixed(0);
    const after = await batches(last, 3);
    console.log(
      `KV cache of ${megabytes} MB: made in ${ms.toFixed(1)} ms; ${last} tokens after it: ${after}`,
    );
  }
  const block = new Uint8Array(backend.memory().kvBytes / blocks);
  const { ms } = await timed(async () => backend.transfer.readBlock(0, 0, block));
  console.log(`a block of ${(block.length / 1e6).toFixed(2)} MB to the host: ${ms.toFixed(1)} ms`);
  backend.dispose();
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

/** Of both kinds of batches, summed up by kernel. */
async function kernels(model: GpuModel, { prompt, context }: Given): Promise<void> {
  console.log("a token:");
  printKernels(await model.kernels(context, 1), 48);
  const last = Math.min(prompt, MOST_TOKENS);
  console.log(`\nthe last batch of a prompt of ${prompt}:`);
  printKernels(await model.kernels(prompt - last, last), 48);
  console.log("");
}
