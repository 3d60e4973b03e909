// Sparse activation (docs/sparse.md): a model whose feed-forward networks have ReLU, with neurons that are zero left out, beside
// the same model with all of them, on the same kernels otherwise. Both are loaded in one process and take turns; the texts must
// be the same, or the benchmark fails.
//
//   node scripts/make-model.ts reglu-1b-90 q4_0 /tmp/reglu-90.gguf
//   npm run bench:sparse -- /tmp/reglu-90.gguf ... [--threads 1,2] [--tokens 24] [--rounds 5] [--prompt 128] [--rows]
//
// With --rows, only the rows before neurons that are zero are left out, not the columns behind them.
//
// Beside the measured ratio is the predicted one: bytes of weights that a token reads, from the zeros that were counted.

import { basename } from "node:path";
import { parseArgs } from "node:util";
import { evenRoom, type NeuronChoice } from "../src/backends/backend.ts";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { neuronUses, neuronWeights } from "../src/backends/cpu/memory/neuron-weights.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { openModelFile } from "../src/formats/open-model-file.ts";
import { Batch } from "../src/graph/batch.ts";
import { weightBytes } from "../src/graph/cost.ts";
import type { Graph, Value } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { detectWasmFeatures } from "../src/kernels/features.ts";
import { wasmTarget } from "../src/kernels/target.ts";
import { buildModel } from "../src/models/build.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { nodeNative } from "../src/platform/node-native.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", default: "1,2" },
    tokens: { type: "string", default: "24" },
    rounds: { type: "string", default: "5" },
    prompt: { type: "string", default: "128" },
    wasm: { type: "boolean", default: false },
    rows: { type: "boolean", default: false },
  },
});
const [tokens, rounds, promptTokens] = [values.tokens, values.rounds, values.prompt].map(Number);
const native = values.wasm ? undefined : nativeKernels(nodeNative());
const target = typeof native === "object" ? native.target : wasmTarget(detectWasmFeatures());
const leftOut: NeuronChoice = { columns: !values.rows, dense: [] };
/** As large as the engine's batches of a prompt (docs/architecture.md). */
const limits = {
  maxTokens: target.amx || target.name.startsWith("arm64") ? 128 : 32,
  maxOutputs: 1,
};

interface Loaded {
  readonly graph: Graph;
  /** ms for the prompt, ms for each token, and the tokens. */
  run(): Promise<{ promptMs: number; tokenMs: number[]; text: number[] }>;
  /** The values of a token at the end of a prompt. */
  tapped(see: (value: Value, data: Float32Array) => void): Promise<void>;
  dispose(): void;
}

async function load(path: string, threads: number, sparse: false | NeuronChoice): Promise<Loaded> {
  const file = await openModelFile(await nodePlatform.openModelSource({ kind: "path", path }));
  const { graph } = buildModel(file);
  const startThread = () => nodePlatform.startThread("compute");
  const backend = new CpuBackend({ level: 3, threads, startThread, native, sparse });
  const blocks = Math.ceil((promptTokens! + tokens!) / 32) + 1;
  await backend.prepare(makePlan(graph, limits), evenRoom(blocks, dtypeByName("f16")!));
  for (const weight of graph.weights) {
    await backend.upload(weight, async (to, at) => {
      await file.readTensor(file.tensors.get(weight.name)!, to, at);
    });
  }
  await file.close();
  const vocabulary = graph.outputs.logits!.cols;
  const table = { blocks: Int32Array.from({ length: blocks }, (_, i) => i) };
  const batch = new Batch(limits);
  const logits = new Float32Array(vocabulary);
  const fill = (count: number, position: number, first: number) => {
    batch.clear();
    for (let i = 0; i < count; i++) {
      batch.add((first + i * 37) % vocabulary, position + i, table, i === count - 1);
    }
  };
  const step = async (count: number, position: number, first: number): Promise<number> => {
    fill(count, position, first);
    await backend.run(batch);
    await backend.read("logits", 0, logits);
    return logits.reduce((best, value, i) => (value > logits[best]! ? i : best), 0);
  };
  return {
    graph,
    run: async () => {
      let next = 1;
      const started = performance.now();
      for (let at = 0; at < promptTokens!; at += limits.maxTokens) {
        next = await step(Math.min(limits.maxTokens, promptTokens! - at), at, next);
      }
      const promptMs = performance.now() - started;
      const [tokenMs, text]: [number[], number[]] = [[], []];
      for (let i = 0; i < tokens!; i++) {
        const before = performance.now();
        next = await step(1, promptTokens! + i, next);
        tokenMs.push(performance.now() - before);
        text.push(next);
      }
      return { promptMs, tokenMs, text };
    },
    tapped: async (see) => {
      fill(1, 0, 1);
      await backend.run(batch, { tap: see });
    },
    dispose: () => backend.dispose(),
  };
}

/** Bytes of matrices that a token reads: all of them, and those that are needed for what a token has in the networks. */
async function countBytes(model: Loaded): Promise<{ all: number; needed: number; zeros: number }> {
  const { nodes } = model.graph;
  const uses = neuronUses(nodes, target, leftOut);
  let [all, needed] = [0, 0];
  const data = new Map<Value, Float32Array>();
  await model.tapped((value, floats) => data.set(value, floats.slice()));
  for (const node of nodes) {
    if (node.op !== "matmul") continue;
    const bytes = weightBytes(node.weight);
    const use = uses.get(node.weight);
    all += bytes;
    if (typeof use !== "object") needed += bytes;
    else if (use.kind === "rows") {
      const gates = data.get(use.gate)!;
      needed += (bytes * gates.filter((gate) => gate > 0).length) / gates.length;
    } else {
      const x = data.get(node.x)!;
      const active = x.filter((each) => each !== 0).length;
      const { blockBytes, blockElems } = node.weight.dtype;
      let blocks = 0;
      for (let at = 0; at < x.length; at += blockElems) {
        if (x.subarray(at, at + blockElems).some((each) => each !== 0)) blocks++;
      }
      const rows = node.weight.shape[0]!;
      needed += rows * (2 * blocks + (active * (blockBytes - 2)) / blockElems);
    }
  }
  const counts = (neuronWeights(nodes, target)?.values ?? []).map((value) => {
    const x = data.get(value)!;
    return { neurons: x.length, zeros: x.filter((each) => each === 0).length };
  });
  const sum = (of: "neurons" | "zeros") => counts.reduce((before, each) => before + each[of], 0);
  return { all, needed, zeros: sum("zeros") / sum("neurons") };
}

const median = (list: readonly number[]) => list.toSorted((a, b) => a - b)[list.length >> 1]!;

/** A row of a Markdown table. */
const row = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
const titles = ["model", "zeros", "threads", "all neurons, ms a token", "sparse", "ratio"];
const heads = [...titles, "limit by bytes", `prompt of ${promptTokens}`];
console.log(`${target.name}, medians of ${rounds} rounds of ${tokens} tokens, the same text\n`);
console.log(`${row(heads)}\n${row(heads.map(() => "---"))}`);

for (const path of positionals) {
  for (const threads of values.threads.split(",").map(Number)) {
    const dense = await load(path, threads, false);
    const sparse = await load(path, threads, leftOut);
    const { all, needed, zeros } = await countBytes(dense);
    const [ofDense, ofSparse, prompts]: [number[], number[], number[][]] = [[], [], [[], []]];
    for (let round = 0; round < rounds! + 1; round++) {
      const one = await dense.run();
      const other = await sparse.run();
      if (one.text.join() !== other.text.join()) {
        throw new Error(`${path}: got other tokens: ${other.text}, expected ${one.text}`);
      }
      if (round === 0) continue; // code and caches are warm from here on
      ofDense.push(median(one.tokenMs));
      ofSparse.push(median(other.tokenMs));
      prompts[0]!.push(one.promptMs);
      prompts[1]!.push(other.promptMs);
    }
    const ratios = ofDense.map((ms, i) => ms / ofSparse[i]!);
    const promptRatio = median(prompts[0]!.map((ms, i) => ms / prompts[1]![i]!));
    const range = `${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`;
    const prompt = prompts.map((ms) => ((promptTokens! * 1000) / median(ms)).toFixed(0));
    const cells = [
      basename(path),
      `${(100 * zeros).toFixed(1)} %`,
      `${threads}`,
      median(ofDense).toFixed(2),
      median(ofSparse).toFixed(2),
      `${median(ratios).toFixed(2)} (${range})`,
      `${(all / needed).toFixed(2)} (${(all / 1e6).toFixed(0)} -> ${(needed / 1e6).toFixed(0)} MB)`,
      `${promptRatio.toFixed(2)} (${prompt.join(" -> ")} tokens/s)`,
    ];
    console.log(row(cells));
    dense.dispose();
    sparse.dispose();
  }
}
