// How fast models run on this machine's GPU, beside what its memory would allow:
//
//   npm run bench:gpu -- MODEL.gguf ... [--prompt 512] [--generate 128] [--context 16] [--cache-type f16] [--kernels] [--exact] [--tuned] [--json]
//
// Prompt and generation are batches of the backend, from the tokens to the logits on the host (of a generated token: the best one),
// without the engine around them; LANTERN_LOOKAHEAD=0 computes those one after the other, LANTERN_LAYER_GROUPS=132 in a dispatch
// for each layer (bench/layers.ts compares that in turns), --tuned with what "lantern tune --backend webgpu" stored.
// "lantern bench --backend webgpu" measures all of it. The limit of generation is the memory bandwidth that this program measures, over the bytes of weights that a token
// needs. Synthetic models: scripts/make-model.ts.

import { basename } from "node:path";
import { cpuArithmetic } from "../src/backends/cpu/arithmetic.ts";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { median } from "../src/base/measure.ts";
import { kvTypes } from "../src/dtypes/kv-types.ts";
import { weightBytes as bytesOf } from "../src/graph/cost.ts";
import type { Graph } from "../src/graph/graph.ts";
import { readBandwidth } from "../src/machine/gpu-rates.ts";
import { chooseOptLevel } from "../src/machine/native.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { measuredGpuTuning } from "../src/tune/measured-choices.ts";
import { type GpuModel, loadGpuModel, MOST_TOKENS, printKernels } from "./gpu-model.ts";
import { bench, choice, count, isOn, printTable, type Values } from "./harness.ts";

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
  for (const path of models) {
    const contextTokens = Math.max(given.prompt, given.context + given.generate);
    const device = await GpuDevice.open(access);
    const native = given.exact && (await chooseOptLevel({ level: undefined }, nodePlatform)).native;
    const tuned = given.tuned ? await measuredGpuTuning(nodePlatform, device.facts) : undefined;
    const model = await loadGpuModel(path, device, contextTokens, {
      tuning: tuned?.tuning,
      exact: native === false ? undefined : cpuArithmetic(native),
      kvType: given.cacheType,
    });
    const layers = model.backend.explain().find((line) => line.startsWith("a layer of a token"));
    if (layers && !given.json) console.log(`${basename(path)}: ${layers}`);
    rows.push(await measureModel(basename(path), model, given, gigabytes));
    if (given.kernels && !given.json) await kernels(model, given);
    model.backend.dispose();
  }
  if (given.json) console.log(JSON.stringify({ gpu: name, driver, gigabytes, rows }, null, 2));
  else {
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
    loadSeconds: gpu.loadMs / 1000,
    promptPerSecond: median(await gpu.prompt(given.prompt, given.repeat)),
    generatedPerSecond: 1000 / median(await gpu.generate(given.context, given.generate)),
    /** If memory were all that counts. */
    limitPerSecond: (gigabytes * 1e9) / weightBytes(gpu.graph),
    /** What the GPU alone takes for a token, without the host. */
    gpuMilliseconds: await gpu.gpuTime(given.context),
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

/** Of both kinds of batches, summed up by kernel. */
async function kernels(model: GpuModel, { prompt, context }: Given): Promise<void> {
  console.log("a token:");
  printKernels(await model.kernels(context, 1), 48);
  const last = Math.min(prompt, MOST_TOKENS);
  console.log(`\nthe last batch of a prompt of ${prompt}:`);
  printKernels(await model.kernels(prompt - last, last), 48);
  console.log("");
}
