// What a GPU takes longer for the first time, or now and then: the first batches of each size, a KV cache that grows, a block that is
// copied to the host. These are what the first users of a server wait for besides computing.
//
//   npm run bench:gpu-cold -- MODEL.gguf ... [--sizes 1,8,64,128,512] [--tokens 8192] [--idle 2] [--warmup]
//
// --tokens: of the whole KV cache, to which it grows by doubling, from room for the largest batch on. --idle: seconds without work, after which a batch is timed
// again: GPUs slow down meanwhile. --warmup: as after a load, with made-up batches first.

import { basename } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { KV_BLOCK_TOKENS } from "../src/graph/batch.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { type GpuModel, loadGpuModel } from "./gpu-model.ts";
import { bench, count, counts, isOn, number, timed, type Values } from "./harness.ts";

const flags = {
  sizes: counts([1, 8, 64, 128, 512]),
  tokens: count(8192),
  idle: number(2),
  warmup: isOn,
};

await bench("npm run bench:gpu-cold --", "MODEL.gguf ...", flags, async (given, paths) => {
  for (const path of paths) await measureCold(path, given);
});

function shown(times: readonly number[]): string {
  return times.map((ms) => ms.toFixed(ms < 10 ? 2 : 1)).join(", ");
}

/** A batch of a prompt, as often as this. */
async function batches(model: GpuModel, size: number, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) times.push((await timed(() => model.prompt(size, 1))).ms);
  return times;
}

/** What the host's calls take, in ms, by name; each call adds to it. */
function watchCalls(device: GPUDevice): Map<string, { calls: number; ms: number }> {
  const times = new Map<string, { calls: number; ms: number }>();
  const watch = (owner: object, name: string): void => {
    const methods = owner as Record<string, (...args: unknown[]) => unknown>;
    const method = methods[name]!.bind(owner);
    methods[name] = (...args) => {
      const started = performance.now();
      const result = method(...args);
      const { calls = 0, ms = 0 } = times.get(name) ?? {};
      times.set(name, { calls: calls + 1, ms: ms + performance.now() - started });
      return result;
    };
  };
  for (const name of ["createBuffer", "createBindGroup"]) watch(device, name);
  watch(device.queue, "submit");
  return times;
}

/** How long this thread was busy at once, at most, while `work` went on: nobody's batch can be submitted meanwhile. */
async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let isDone = false;
  let longest = 0;
  let since = performance.now();
  const done = work().finally(() => {
    isDone = true;
  });
  for (; !isDone; since = performance.now()) {
    longest = Math.max(longest, performance.now() - since);
    await new Promise((resolve) => setImmediate(resolve));
    longest = Math.max(longest, performance.now() - since);
  }
  await done;
  return longest;
}

async function measureCold(path: string, given: Values<typeof flags>): Promise<void> {
  const { sizes, tokens, idle, warmup } = given;
  const most = tokens / KV_BLOCK_TOKENS;
  /** Room for the largest batch. */
  const least = Math.ceil(Math.max(...sizes) / KV_BLOCK_TOKENS);
  const gpu = await GpuDevice.open(await nodePlatform.gpu());
  const model = await loadGpuModel(path, gpu, tokens, { held: least });
  const { backend } = model;
  console.log(`${basename(path)} on ${gpu.facts.name}: loaded in ${model.loadMs.toFixed(0)} ms`);
  if (warmup) {
    await backend.warmUp(tokens);
    console.log(backend.explain().find((line) => line.startsWith("warm-up")) ?? "no warm-up");
  }
  for (const size of sizes) {
    console.log(
      `${size} tokens, one batch after the other: ${shown(await batches(model, size, 6))} ms`,
    );
  }
  await pause(1000 * idle);
  const last = sizes.at(-1)!;
  const rested = await batches(model, last, 3);
  console.log(`${last} tokens after ${idle} s without work: ${shown(rested)} ms`);

  const calls = watchCalls(gpu.device);
  for (let blocks = 2 * least; blocks <= most; blocks *= 2) {
    const before = backend.memory().kvBytes;
    calls.clear();
    let turn = 0;
    const { ms: grown } = await timed(async () => {
      turn = await longestTurn(() => backend.growKv([blocks]));
    });
    const during = [...calls].map(([name, { calls, ms }]) => `${calls} ${name} ${shown([ms])}`);
    const after = await batches(model, last, 3);
    const [from, to] = [before, backend.memory().kvBytes].map((bytes) => (bytes / 1e6).toFixed(0));
    console.log(
      `KV cache from ${from} to ${to} MB: ${shown([grown])} ms, at most ${shown([turn])} at once (${during.join(", ")}); ${last} tokens after it: ${shown(after)} ms`,
    );
  }

  const { kvBytes } = backend.memory();
  let blocks = least;
  while (2 * blocks <= most) blocks *= 2;
  const block = new Uint8Array(kvBytes / blocks);
  const copies: number[] = [];
  for (let i = 0; i < Math.min(6, blocks); i++) {
    copies.push((await timed(async () => backend.transfer.readBlock(0, i, block))).ms);
  }
  console.log(`a block of ${(block.length / 1e6).toFixed(2)} MB to the host: ${shown(copies)} ms`);
  backend.dispose();
}
