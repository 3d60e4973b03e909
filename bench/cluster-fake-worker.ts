// Workers that compute nothing, for bench/cluster.ts --fake: SERVERS RATE. Eight of them in this process, of a tiny random model; an answer is
// as many tokens as were asked for, RATE per second, all with the same text.

import { connectNats } from "../apps/cluster/connect.ts";
import { ClusterWorker } from "../apps/cluster/worker.ts";
import { startGeneration } from "../src/engine/generation.ts";
import { type GenerateOptions, type Model, open } from "../src/index.ts";
import { tinyFile } from "../test/support/tiny-file.ts";

const [servers = "", rate = "50"] = process.argv.slice(2);
const file = await tinyFile();
const model = await open(file.path, { threads: 1, contextSize: 512, tuned: false });
const measured = await model.generate("a", { maxTokens: 2 }).result;
const fake = new Proxy(model, {
  get(target, name) {
    if (name === "generate") return generate;
    const value: unknown = Reflect.get(target, name, target);
    return typeof value === "function" ? value.bind(target) : value;
  },
}) as Model;

function generate(_prompt: unknown, { maxTokens = 64, signal }: GenerateOptions = {}) {
  return startGeneration(async (emit, either) => {
    const ids: number[] = [];
    const began = performance.now();
    while (ids.length < maxTokens && !either.aborted) {
      const due = began + (1000 * (ids.length + 1)) / Number(rate);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
      ids.push(100);
      emit({ id: 100, text: " word" } as Parameters<typeof emit>[0]);
    }
    const timings = { ...measured.timings, generatedTokens: ids.length };
    const text = " word".repeat(ids.length);
    return { ...measured, text, tokenIds: ids, reason: "length" as const, timings };
  }, signal);
}

const options = { modelId: "bench", capacity: 512, version: "bench", model: fake };
for (let i = 0; i < 8; i++) {
  const connection = await connectNats({ servers: servers.split(","), name: "fake worker" });
  new ClusterWorker({ ...options, connection });
}
console.log(JSON.stringify({ ready: true }));
