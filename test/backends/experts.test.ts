// Experts on the CPU backend: bit for bit the same for a token alone, among others, and on two threads; with rows that
// fill their row panels and rows that do not. (test/conformance compares route, matmul_id and combine with the
// reference, test/models/moe-golden.test.ts whole mixtures with llama.cpp.)

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { loadSamples } from "../support/sample-weights.ts";

const limits = { maxTokens: 24, maxOutputs: 24 };
const f32 = dtypeByName("f32")!;
const [vocab, experts, used] = [32, 8, 2];

function weight(name: string, shape: number[], dtype = f32): Weight {
  return { name, shape, dtype };
}

/** Rows of experts that fill row panels (gate, up, down) and rows that do not (odd), with a bias. */
function mixture(type: string): Graph {
  const dtype = dtypeByName(type)!;
  const embed = Math.max(64, dtype.blockElems);
  const g = new GraphBuilder();
  const x = g.embed(weight("table", [vocab, embed]), "embed"); // [tokens, embed]
  const logits = g.matmul(x, weight("router", [experts, embed]), "logits"); // [tokens, experts]
  const routing = { used, gating: "softmax", normalise: true, scale: 2 } as const;
  const routes = g.route(logits, routing, "routes", weight("choice", [experts])); // [tokens, 2 * used]
  const ofExperts = (name: string) => weight(name, [experts, embed, embed], dtype);
  const gate = g.matmulId(x, routes, ofExperts("gate"), "gate"); // [tokens, used * embed]
  const up = g.matmulId(x, routes, ofExperts("up"), "up"); // [tokens, used * embed]
  const inner = g.gate(gate, up, "silu", "inner"); // [tokens, used * embed]
  const down = g.matmulId(inner, routes, ofExperts("down"), "down"); // [tokens, used * embed]
  const bias = weight("odd.bias", [experts, 40]);
  const odd = g.matmulId(x, routes, weight("odd", [experts, 40, embed], dtype), "odd", bias); // [tokens, used * 40]
  g.combine(odd, routes, "combined odd"); // [tokens, 40]
  const combined = g.combine(down, routes, "combined"); // [tokens, embed]
  const one = g.matmul(x, weight("one", [1, embed]), "one"); // [tokens, 1]
  const gated = g.gate(one, combined, "sigmoid", "gated"); // [tokens, embed]
  return g.finish({ hidden: g.select(gated, "hidden") });
}

const load = (backend: Backend, graph: Graph): Promise<void> => loadSamples(backend, graph, limits);

const table = { blocks: Int32Array.of(0) };

/** Every value of a batch of these tokens, by name; without `tapped`, what is read after it. */
async function run(
  backend: Backend,
  tokens: readonly number[],
  tapped: boolean,
): Promise<Map<string, Float32Array>> {
  const batch = new Batch(limits);
  tokens.forEach((token, position) => {
    batch.add(token, position, table, true);
  });
  const seen = new Map<string, Float32Array>();
  if (tapped) {
    await backend.run(batch, { tap: ({ name }, data) => void seen.set(name, data.slice()) });
    return seen;
  }
  await backend.run(batch);
  for (let row = 0; row < tokens.length; row++) {
    const hidden = new Float32Array(64);
    await backend.read("hidden", row, hidden);
    seen.set(`hidden ${row}`, hidden);
  }
  return seen;
}

const cpu = (options: Partial<CpuOptions>) => () =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...options });
const contestants: [name: string, make: () => CpuBackend][] = [
  ["level 2", cpu({ level: 2 })],
  ["level 3", cpu({})],
  ...nativeHere.map(({ name, native }): (typeof contestants)[number] => [name, cpu({ native })]),
];
const startThread = () => nodePlatform.startThread("compute");
const tokens = [5, 31, 0, 16, 5, 20, 7, 7, 7, 1, 30, 12, 19, 2, 4, 9, 8, 21, 22, 5, 3, 11];

describe.each(contestants)("cpu, %s: alone as among others", (_, make) => {
  test.each(["f32", "f16", "q4_0", "q4_k"])("%s", async (type) => {
    const graph = mixture(type);
    const backend = make();
    await load(backend, graph);
    const together = await run(backend, tokens, true);
    for (const [row, token] of tokens.entries()) {
      for (const [name, alone] of await run(backend, [token], true)) {
        const all = together.get(name)!;
        const cols = all.length / tokens.length;
        expect(all.slice(row * cols, (row + 1) * cols), `${name} of token ${row}`).toEqual(alone);
      }
    }
    // The path that ran is the one that was meant.
    expect(backend.explain().filter((line) => line.includes("reference ("))).toEqual([]);
    backend.dispose();
  });
});

test.each(["f16", "q4_0"])("two threads: the same bits, %s", async (type) => {
  const graph = mixture(type);
  const [one, two] = [cpu({})(), cpu({ threads: 2, startThread })()];
  await load(one, graph);
  await load(two, graph);
  for (const count of [tokens.length, 1, 3, tokens.length]) {
    const batch = tokens.slice(0, count);
    expect(await run(two, batch, false)).toEqual(await run(one, batch, false));
  }
  one.dispose();
  two.dispose();
  await two.ended();
});
