// Every kernel that an instruction uses is one that it names: others are not compiled, and a missing one would
// silently drop a variant. Also: few tokens read their weights in streams.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import type { Kernels } from "../../src/backends/cpu/executor.ts";
import { farLimits } from "../../src/backends/cpu/memory/arena.ts";
import { type Layout, layOut } from "../../src/backends/cpu/memory/layout.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { kernelsOf, makeExecutors } from "../../src/backends/cpu/ops/table.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { buildModel } from "../../src/models/build.ts";
import { nativeHere } from "../support/native.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const kinds = [{ name: "wasm", native: undefined }, ...nativeHere];

function layoutOf(weightType: string, native: (typeof kinds)[number]["native"]): Layout {
  const { graph } = buildModel(tinyModel({ architecture: "qwen3", weightType }));
  const layout = layOut({
    plan: makePlan(graph, { maxTokens: 8, maxOutputs: 8 }),
    kv: evenCapacity(2, dtypeByName("f16")!),
    threads: 1,
    level: 3,
    rowTile: undefined,
    native,
    wasm: detectWasmFeatures(),
    choose: undefined,
    records: false,
    memoryStart: 0,
    far: farLimits,
    guard: false,
  });
  if (typeof layout === "string") throw new Error(layout);
  return layout;
}

/** What executors ask for, whether it is there or not. */
function takenKernels({ compiled, arena }: Layout): Set<string> {
  const taken = new Set<string>();
  const kernels = new Proxy({} as Kernels, {
    get: (_, name) => {
      taken.add(String(name));
      return () => {};
    },
  });
  arena.commit();
  const leader = compiled.leaderNodes.map(() => () => {});
  const { views } = arena;
  const memories = new Memories(views);
  makeExecutors({ program: compiled.program, kernels, views, memories, thread: 0, leader });
  return taken;
}

describe.each(kinds)("$name", ({ native }) => {
  test.each(["q4_0", "q8_0", "f16", "f32"])("%s: what is taken is named and compiled", (type) => {
    const layout = layoutOf(type, native);
    const { program, kernels, nativeKernels } = layout.compiled;
    const named = new Set(program.instructions.flatMap(kernelsOf));
    const compiled = new Set([...kernels, ...nativeKernels].map(({ name }) => name));
    const taken = takenKernels(layout);
    expect(taken.size).toBeGreaterThan(5);
    expect([...taken].filter((name) => !named.has(name))).toEqual([]);
    expect([...named].filter((name) => !compiled.has(name))).toEqual([]);
  });

  test("two tokens stream", () => {
    const { program } = layoutOf("q4_0", native).compiled;
    const streams = program.instructions.flatMap((instruction) =>
      instruction.op === "matmul_blocks"
        ? instruction.variants.flatMap(({ matrix }) => matrix.map(({ inStreams }) => inStreams))
        : [],
    );
    const named = new Set(program.instructions.flatMap(kernelsOf));
    const wanted = streams.filter((name) => name !== undefined);
    expect(wanted.length).toBeGreaterThan(0);
    expect(wanted.filter((name) => !named.has(name))).toEqual([]);
  });
});
