// How many tokens a second a GPU writes for many users at once, without the engine and the server around it:
//
//   npm run bench:gpu-users -- MODEL.gguf [--users 1,2,8,32,64] [--context 128] [--steps 32] [--kernels] [--bits] [--cache-type f16]
//       [--prompt 128,512] [--prompts 1,4] [--beside 0,8,31] [--tuning '{"several":{"most":64,"rows":4,"tiles":[2,4,8]}}']
//
// A step is a batch with one token of every user, each after a context of its own, from the tokens to all logits on the host.
// --bits: whether a user's logits have the same bits in the batch as alone. --prompt: also prompts of so many tokens, each in
// one batch, or so many prompts (--prompts) that share the batch, of which so many (--beside) are tokens that others generate. --tuning: other shapes of the kernels (src/backends/webgpu/tuning.ts); may be given several times.

import { evenCapacity } from "../src/backends/backend.ts";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { type Tuning, tuningFor } from "../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../src/backends/webgpu/webgpu.ts";
import { UsageError } from "../src/base/errors.ts";
import { median } from "../src/base/measure.ts";
import { kvTypes } from "../src/dtypes/kv-types.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { kvGroups } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { printKernels } from "./gpu-model.ts";
import {
  bench,
  choice,
  count,
  counts,
  isOn,
  printTable,
  several,
  timed,
  type Values,
  wholes,
} from "./harness.ts";
import { openGraph } from "./raw-model.ts";

const flags = {
  users: counts([1, 2, 4, 8, 16, 32, 64]),
  context: count(128),
  steps: count(32),
  kernels: isOn,
  bits: isOn,
  cacheType: choice("f16", kvTypes),
  tuning: several("JSON", [], (text) => JSON.parse(text) as Partial<Tuning>),
  prompt: counts([]),
  prompts: counts([1]),
  beside: wholes([0]),
};

await bench("npm run bench:gpu-users --", "MODEL.gguf", flags, (given, [path]) =>
  main(path!, given),
);

async function main(path: string, given: Values<typeof flags>): Promise<void> {
  const { context } = given;
  const gpu = await GpuDevice.open(await nodePlatform.gpu());
  const usual = tuningFor(gpu.facts);
  const most = Math.max(...given.users);
  const limits = { maxTokens: 512, maxOutputs: most };
  const { graph, uploadTo } = await openGraph(path);
  const backend = new WebGpuBackend(gpu, { tuning: usual });
  const each = Math.ceil(Math.max(context + given.steps + 1, 200, ...given.prompt) / 32);
  await backend.prepare(makePlan(graph, limits), {
    ...evenCapacity(each * most, dtypeByName(given.cacheType)!, kvGroups(graph).length),
    tableLength: each,
  });
  await uploadTo(backend);
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
  for (const tuning of [{}, ...given.tuning]) {
    await backend.retune({ ...usual, ...tuning });
    console.log(JSON.stringify(tuning));
    for (const tokens of given.prompt) {
      for (const prompts of given.prompts) {
        for (const beside of given.beside) await timePrompt(tokens, prompts, beside);
      }
    }
    for (const [user, table] of tables.entries()) {
      for (let at = 0; at < context; at += limits.maxTokens) {
        batch.clear();
        for (let i = at; i < Math.min(context, at + limits.maxTokens); i++) {
          batch.add(tokenOf(user, i), i, table, i === context - 1);
        }
        await backend.run(batch);
      }
    }
    const lines: (string | number)[][] = [];
    for (const users of given.users) {
      const all = Array.from({ length: users }, (_, user) => user);
      const logits = rows(users);
      const times: number[] = [];
      for (let i = -2; i < given.steps; i++) {
        const { ms } = await timed(async () => {
          step(all, context + Math.max(i, 0));
          await backend.run(batch);
          for (const user of all) await backend.read("logits", user, logits[user]!);
        });
        if (i >= 0) times.push(ms);
      }
      step(all, context);
      const alone = await backend.timeBatch(batch);
      const ms = median(times);
      lines.push([users, alone.toFixed(2), ms.toFixed(2), ((users * 1000) / ms).toFixed(0)]);
      if (given.kernels) await kernels(`${users} users`);
    }
    printTable(["users", "GPU, ms a step", "with the host, ms", "tokens/s"], lines, 0);
    if (given.bits) {
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
      const off = mostApart(logits!, found[0]!);
      console.log(
        `bits, a prompt of ${own} in a batch of ${before + own}: ${off === 0 ? "the same" : `within ${off}`}`,
      );
    }
  }

  /** The first users have prompts, those after them generate. */
  async function timePrompt(tokens: number, prompts: number, beside: number): Promise<void> {
    if (prompts + beside > most) {
      throw new UsageError(
        `got ${prompts} prompts and ${beside} others, expected at most ${most} users (--users)`,
      );
    }
    batch.clear();
    for (let user = prompts; user < prompts + beside; user++) {
      batch.add(tokenOf(user, context), context, tables[user]!, true);
    }
    const all = tokens - beside;
    for (let user = 0; user < prompts; user++) {
      const own = Math.floor(all / prompts) + (user < all % prompts ? 1 : 0);
      for (let i = 0; i < own; i++) batch.add(tokenOf(user, i), i, tables[user]!, i === own - 1);
    }
    const times: number[] = [];
    for (let i = -2; i < 5; i++) {
      const { ms } = await timed(() => backend.run(batch));
      if (i >= 0) times.push(ms);
    }
    const ms = median(times);
    const alone = await backend.timeBatch(batch);
    console.log(
      `${prompts > 1 ? `${prompts} prompts in a batch` : "prompt"} of ${tokens}${beside > 0 ? ` with ${beside} tokens of others` : ""}: ${ms.toFixed(2)} ms, ${((tokens * 1000) / ms).toFixed(0)} tokens/s; GPU ${alone.toFixed(2)} ms`,
    );
    if (given.kernels) await kernels(`prompt of ${tokens}`);
  }

  async function kernels(title: string): Promise<void> {
    console.log(`${title}:`);
    await backend.timeKernels(batch);
    printKernels(await backend.timeKernels(batch), 52);
  }

  async function compareBits(): Promise<void> {
    const [alone] = rows(1);
    const singles: Float32Array[] = [];
    for (let user = 0; user < most; user++) {
      step([user], context);
      await backend.run(batch);
      await backend.read("logits", 0, alone!);
      singles.push(alone!.slice());
    }
    for (const users of given.users) {
      const all = Array.from({ length: users }, (_, user) => user);
      step(all, context);
      await backend.run(batch);
      const [together] = rows(1);
      let [same, worst] = [0, 0];
      for (const user of all) {
        await backend.read("logits", user, together!);
        const single = singles[user]!;
        const off = mostApart(single, together!);
        if (off === 0) same++;
        worst = Math.max(worst, off / mostApart(single, new Float32Array(vocab)));
      }
      console.log(
        `bits, ${users} users: ${same} the same, others within ${worst.toExponential(1)}`,
      );
    }
  }
}

function mostApart(values: Float32Array, others: Float32Array): number {
  return values.reduce((most, value, i) => Math.max(most, Math.abs(value - others[i]!)), 0);
}
