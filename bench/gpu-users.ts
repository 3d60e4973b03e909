// How many tokens a second a GPU writes for many users at once, without the engine and the server around it:
//
//   npm run bench:gpu-users -- MODEL.gguf [--users 1,2,8,32,64] [--context 128] [--steps 32] [--kernels] [--bits] [--cache-type f16]
//       [--prompt 128,512] [--prompts 1,4] [--beside 0,8,31] [--tuning '{"several":{"most":64,"rows":4,"tiles":[2,4,8]}}']
//
// A step is a batch with one token of every user, each after a context of its own, from the tokens to all logits on the host.
// --bits: whether a user's logits have the same bits in the batch as alone. --prompt: also prompts of so many tokens, each in
// one batch, or so many prompts (--prompts) that share the batch, of which so many (--beside) are tokens that others generate. --tuning: other shapes of the kernels (src/backends/webgpu/tuning.ts); may be given several times.

import { Command } from "commander";
import { evenRoom } from "../src/backends/backend.ts";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { type Tuning, tuningFor } from "../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../src/backends/webgpu/webgpu.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { openModelFile } from "../src/formats/open-model-file.ts";
import { Batch } from "../src/graph/batch.ts";
import { kvGroups } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { weightReader } from "../src/graph/weight-source.ts";
import { buildModel } from "../src/models/build.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { median } from "./gpu-model.ts";

interface Flags {
  users: number[];
  context: number;
  steps: number;
  kernels?: boolean;
  bits?: boolean;
  cacheType: string;
  prompt: number[];
  prompts: number[];
  beside: number[];
  tuning: Partial<Tuning>[];
}

const numbers = (text: string): number[] => text.split(",").map(Number);

await new Command("bench:gpu-users")
  .argument("<model>", "a GGUF file")
  .option("--users <numbers>", "numbers of users", numbers, [1, 2, 4, 8, 16, 32, 64])
  .option("--context <tokens>", "tokens of a user before the first step", Number, 128)
  .option("--steps <count>", "steps that are timed", Number, 32)
  .option("--kernels", "the time of every kernel, by timestamp queries")
  .option("--bits", "compares each user's logits with those of a batch of its own")
  .option("--cache-type <type>", "of the KV cache", "f16")
  .option(
    "--tuning <shapes>",
    "JSON of other shapes of the kernels",
    (text: string, all: Partial<Tuning>[]) => [...all, JSON.parse(text)],
    [] as Partial<Tuning>[],
  )
  .option("--prompt <tokens>", "also times prompts of so many tokens", numbers, [])
  .option("--prompts <count>", "... divided into so many prompts of as many users", numbers, [1])
  .option("--beside <users>", "... of which these are tokens of other users", numbers, [0])
  .action(main)
  .parseAsync();

async function main(path: string, flags: Flags): Promise<void> {
  const gpu = await GpuDevice.open(await nodePlatform.gpu());
  const usual = tuningFor(gpu.facts);
  const most = Math.max(...flags.users);
  const limits = { maxTokens: 512, maxOutputs: most };
  const file = await openModelFile(await nodePlatform.openModelSource({ kind: "path", path }));
  const { graph } = buildModel(file);
  const backend = new WebGpuBackend(gpu, { tuning: usual });
  const each = Math.ceil(Math.max(flags.context + flags.steps + 1, 200, ...flags.prompt) / 32);
  await backend.prepare(makePlan(graph, limits), {
    ...evenRoom(each * most, dtypeByName(flags.cacheType)!, kvGroups(graph).length),
    tableLength: each,
  });
  const readTensor = async (name: string, target: Uint8Array, at: number): Promise<void> => {
    await file.readTensor(file.tensors.get(name)!, target, at);
  };
  for (const weight of graph.weights) {
    await backend.upload(weight, weightReader(weight, readTensor));
  }
  await file.close();
  const vocab = graph.outputs.logits!.cols;
  const tables = Array.from({ length: most }, (_, user) => ({
    blocks: Int32Array.from({ length: each }, (_, i) => user * each + i),
  }));
  const batch = new Batch(limits);
  const tokenOf = (user: number, position: number): number =>
    (user * 91 + position * 37 + 1) % vocab;
  const step = (users: readonly number[], position: number): void => {
    batch.clear();
    for (const user of users) batch.add(tokenOf(user, position), position, tables[user]!, true);
  };
  const rows = (count: number): Float32Array[] =>
    Array.from({ length: count }, () => new Float32Array(vocab));
  console.log(`${gpu.facts.name} (${gpu.facts.driver}), ${path.split("/").at(-1)}`);
  for (const tuning of [{}, ...flags.tuning]) {
    await backend.retune({ ...usual, ...tuning });
    console.log(JSON.stringify(tuning));
    for (const tokens of flags.prompt) {
      for (const prompts of flags.prompts) {
        for (const beside of flags.beside) await timePrompt(tokens, prompts, beside);
      }
    }
    for (const [user, table] of tables.entries()) {
      for (let at = 0; at < flags.context; at += limits.maxTokens) {
        batch.clear();
        for (let i = at; i < Math.min(flags.context, at + limits.maxTokens); i++) {
          batch.add(tokenOf(user, i), i, table, i === flags.context - 1);
        }
        await backend.run(batch);
      }
    }
    console.log(`| users | GPU, ms a step | with the host, ms | tokens/s |`);
    console.log("| ---: | ---: | ---: | ---: |");
    for (const users of flags.users) {
      const all = Array.from({ length: users }, (_, user) => user);
      const logits = rows(users);
      const times: number[] = [];
      for (let i = -2; i < flags.steps; i++) {
        const before = performance.now();
        step(all, flags.context + Math.max(i, 0));
        await backend.run(batch);
        for (const user of all) await backend.read("logits", user, logits[user]!);
        if (i >= 0) times.push(performance.now() - before);
      }
      step(all, flags.context);
      const alone = await backend.timeBatch(batch);
      const ms = median(times);
      console.log(
        `| ${users} | ${alone.toFixed(2)} | ${ms.toFixed(2)} | ${((users * 1000) / ms).toFixed(0)} |`,
      );
      if (flags.kernels) await printKernels();
    }
    if (flags.bits) {
      await compareBits();
      await comparePrompts();
    }
  }
  backend.dispose();

  /** A prompt of 100 tokens alone, and behind others in larger batches. */
  async function comparePrompts(): Promise<void> {
    if (most < 3) return;
    const own = 100;
    const found: Float32Array[] = [];
    for (const before of [0, 50, 150, 400]) {
      batch.clear();
      const first = before - Math.floor(before / 2);
      for (let i = 0; i < first; i++) batch.add(tokenOf(1, i), i, tables[1]!, false);
      for (let i = 0; i < before - first; i++) batch.add(tokenOf(2, i), i, tables[2]!, false);
      for (let i = 0; i < own; i++) batch.add(tokenOf(0, i), i, tables[0]!, i === own - 1);
      await backend.run(batch);
      const [logits] = rows(1);
      await backend.read("logits", 0, logits!);
      found.push(logits!);
      const off = logits!.reduce((sum, v, i) => Math.max(sum, Math.abs(v - found[0]![i]!)), 0);
      console.log(
        `bits, a prompt of ${own} in a batch of ${before + own}: ${off === 0 ? "the same" : `within ${off}`}`,
      );
    }
  }

  /** The first users have prompts, those after them generate. */
  async function timePrompt(tokens: number, prompts: number, beside: number): Promise<void> {
    if (prompts + beside > most) {
      throw new Error(
        `got ${prompts} prompts and ${beside} others, expected at most ${most} users (--users)`,
      );
    }
    batch.clear();
    for (let user = prompts; user < prompts + beside; user++) {
      batch.add(tokenOf(user, flags.context), flags.context, tables[user]!, true);
    }
    const all = tokens - beside;
    for (let user = 0; user < prompts; user++) {
      const own = Math.floor(all / prompts) + (user < all % prompts ? 1 : 0);
      for (let i = 0; i < own; i++) batch.add(tokenOf(user, i), i, tables[user]!, i === own - 1);
    }
    const times: number[] = [];
    for (let i = 0; i < 7; i++) {
      const before = performance.now();
      await backend.run(batch);
      if (i > 1) times.push(performance.now() - before);
    }
    const ms = median(times);
    const alone = await backend.timeBatch(batch);
    console.log(
      `${prompts > 1 ? `${prompts} prompts in a batch` : "prompt"} of ${tokens}${beside > 0 ? ` with ${beside} tokens of others` : ""}: ${ms.toFixed(2)} ms, ${((tokens * 1000) / ms).toFixed(0)} tokens/s; GPU ${alone.toFixed(2)} ms`,
    );
    if (flags.kernels) await printKernels();
  }

  async function printKernels(): Promise<void> {
    const byName = new Map<string, number[]>();
    await backend.timeKernels(batch);
    for (const { kernel, microseconds } of await backend.timeKernels(batch)) {
      byName.set(kernel.name, [...(byName.get(kernel.name) ?? []), microseconds]);
    }
    for (const [name, times] of byName) {
      const sum = times.reduce((a, b) => a + b, 0);
      console.log(
        `    ${name.padEnd(52)} x ${String(times.length).padStart(3)}  ${median(times).toFixed(1)} us each, ${sum.toFixed(0)} us`,
      );
    }
  }

  async function compareBits(): Promise<void> {
    const [alone] = rows(1);
    const singles: Float32Array[] = [];
    for (let user = 0; user < most; user++) {
      step([user], flags.context);
      await backend.run(batch);
      await backend.read("logits", 0, alone!);
      singles.push(alone!.slice());
    }
    for (const users of flags.users) {
      const all = Array.from({ length: users }, (_, user) => user);
      step(all, flags.context);
      await backend.run(batch);
      const [together] = rows(1);
      let [same, worst] = [0, 0];
      for (const user of all) {
        await backend.read("logits", user, together!);
        const single = singles[user]!;
        const off = single.reduce((sum, v, i) => Math.max(sum, Math.abs(v - together![i]!)), 0);
        if (off === 0) same++;
        worst = Math.max(worst, off / single.reduce((sum, v) => Math.max(sum, Math.abs(v)), 0));
      }
      console.log(
        `bits, ${users} users: ${same} the same, others within ${worst.toExponential(1)}`,
      );
    }
  }
}
