// Sparse activation (docs/use/sparse.md): a model whose feed-forward networks have ReLU, with neurons that are zero left out, beside
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
import { evenCapacity, type NeuronChoice } from "../src/backends/backend.ts";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { neuronUses, neuronWeights } from "../src/backends/cpu/memory/neuron-weights.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import { measure, median, summarize } from "../src/base/measure.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { Batch } from "../src/graph/batch.ts";
import { weightBytes } from "../src/graph/cost.ts";
import type { Graph, Value } from "../src/graph/graph.ts";
import { makePlan } from "../src/graph/plan.ts";
import { detectWasmFeatures } from "../src/kernels/features.ts";
import { wasmTarget } from "../src/kernels/target.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { nodeNative } from "../src/platform/node-native.ts";
import { bench, count, counts, isOn, printTable, sum, timed, type Values } from "./harness.ts";
import { fillBatch, likeliest, openGraph } from "./raw-model.ts";

const flags = {
  threads: counts([1, 2]),
  tokens: count(24),
  rounds: count(5),
  prompt: count(128),
  wasm: isOn,
  rows: isOn,
};

await bench("npm run bench:sparse --", "MODEL.gguf ...", flags, async (given, paths) => {
  const { tokens, rounds, prompt } = given;
  const how = kernelsOf(given);
  const rows: string[][] = [];
  for (const path of paths) {
    for (const threads of given.threads) rows.push(await compare(path, threads, given, how));
  }
  console.log(
    `${how.target.name}, medians of ${rounds} rounds of ${tokens} tokens, the same text\n`,
  );
  const titles = ["model", "zeros", "threads", "all neurons, ms a token", "sparse", "ratio"];
  printTable([...titles, "limit by bytes", `prompt of ${prompt}`], rows);
});

type Given = Values<typeof flags>;
type How = ReturnType<typeof kernelsOf>;

function kernelsOf({ wasm, rows }: Given) {
  const native = wasm ? undefined : nativeKernels(nodeNative());
  const target = typeof native === "object" ? native.target : wasmTarget(detectWasmFeatures());
  const leftOut: NeuronChoice = { columns: !rows, dense: [] };
  /** As large as the engine's batches of a prompt (docs/inside/architecture.md). */
  const maxTokens = target.amx || target.name.startsWith("arm64") ? 128 : 32;
  return { native, target, leftOut, limits: { maxTokens, maxOutputs: 1 } };
}

interface Loaded {
  readonly graph: Graph;
  /** ms for the prompt, ms for each token, and the tokens. */
  run(): Promise<{ promptMs: number; tokenMs: number[]; text: number[] }>;
  /** The values of a token at the end of a prompt. */
  tapped(see: (value: Value, data: Float32Array) => void): Promise<void>;
  dispose(): void;
}

async function load(
  path: string,
  threads: number,
  { tokens, prompt }: Given,
  { native, limits }: How,
  sparse: false | NeuronChoice,
): Promise<Loaded> {
  const { graph, uploadTo } = await openGraph(path);
  const startThread = () => nodePlatform.startThread("compute");
  const backend = new CpuBackend({ level: 3, threads, startThread, native, sparse });
  const blocks = Math.ceil((prompt + tokens) / 32) + 1;
  await backend.prepare(makePlan(graph, limits), evenCapacity(blocks, dtypeByName("f16")!));
  await uploadTo(backend);
  const vocabulary = graph.outputs.logits!.cols;
  const table = { blocks: Int32Array.from({ length: blocks }, (_, i) => i) };
  const batch = new Batch(limits);
  const logits = new Float32Array(vocabulary);
  const fill = (tokens: number, position: number, first: number) =>
    fillBatch(batch, { tokens, position, first }, table, vocabulary);
  const step = async (count: number, position: number, first: number): Promise<number> => {
    fill(count, position, first);
    await backend.run(batch);
    await backend.read("logits", 0, logits);
    return likeliest(logits);
  };
  return {
    graph,
    run: async () => {
      let next = 1;
      const { ms: promptMs } = await timed(async () => {
        for (let at = 0; at < prompt; at += limits.maxTokens) {
          next = await step(Math.min(limits.maxTokens, prompt - at), at, next);
        }
      });
      const [tokenMs, text]: [number[], number[]] = [[], []];
      for (let i = 0; i < tokens; i++) {
        const { result, ms } = await timed(() => step(1, prompt + i, next));
        next = result;
        tokenMs.push(ms);
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
async function countBytes(
  model: Loaded,
  { target, leftOut }: How,
): Promise<{ all: number; needed: number; zeros: number }> {
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
  const zeros = sum(counts.map((each) => each.zeros)) / sum(counts.map((each) => each.neurons));
  return { all, needed, zeros };
}

async function compare(path: string, threads: number, given: Given, how: How): Promise<string[]> {
  const dense = await load(path, threads, given, how, false);
  const sparse = await load(path, threads, given, how, how.leftOut);
  const { all, needed, zeros } = await countBytes(dense, how);
  const { samples } = await measure({
    contestants: [dense, sparse],
    rounds: given.rounds,
    warmUps: 1, // code and caches are warm from here on
    run: (model) => model.run(),
  });
  const [texts, others] = samples.map((runs) => runs.map(({ text }) => text.join()));
  const differs = texts!.findIndex((text, round) => text !== others![round]);
  if (differs >= 0) {
    throw new Error(`${path}: got other tokens: ${others![differs]}, expected ${texts![differs]}`);
  }
  const tokenMs = samples.map((runs) => runs.map((run) => median(run.tokenMs)));
  const promptMs = samples.map((runs) => runs.map((run) => run.promptMs));
  const ratiosOf = ([one, other]: number[][]) => one!.map((ms, round) => ms / other![round]!);
  const ratio = summarize(ratiosOf(tokenMs));
  const prompt = promptMs.map((ms) => ((given.prompt * 1000) / median(ms)).toFixed(0));
  dense.dispose();
  sparse.dispose();
  return [
    basename(path),
    `${(100 * zeros).toFixed(1)} %`,
    `${threads}`,
    ...tokenMs.map((ms) => median(ms).toFixed(2)),
    `${ratio.median.toFixed(2)} (${ratio.min.toFixed(2)} to ${ratio.max.toFixed(2)})`,
    `${(all / needed).toFixed(2)} (${(all / 1e6).toFixed(0)} -> ${(needed / 1e6).toFixed(0)} MB)`,
    `${median(ratiosOf(promptMs)).toFixed(2)} (${prompt.join(" -> ")} tokens/s)`,
  ];
}
