// lantern verify: a right backend passes, a wrong op is named, wherever it is; the flags, the exit code and --json.
// Held against: ops that the test has made wrong.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { GraphNode } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { weightReader } from "../../src/graph/weight-source.ts";
import { buildModel } from "../../src/models/build.ts";
import { differenceOf } from "../../src/tools/verify/differences.ts";
import { withoutTies } from "../../src/tools/verify/ties.ts";
import { type Verification, verifyBackends } from "../../src/tools/verify/verify.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

/** The reference with one op changed: a bug that we know. */
class WrongBackend extends ReferenceBackend {
  readonly #change: (node: GraphNode) => GraphNode;

  constructor(change: (node: GraphNode) => GraphNode) {
    super();
    this.#change = change;
  }

  override prepare(...[plan, kv]: Parameters<ReferenceBackend["prepare"]>): void {
    const graph = { ...plan.graph, nodes: plan.graph.nodes.map(this.#change) };
    super.prepare({ ...plan, graph }, kv);
  }
}

/** Every matmul is off by a part of its largest value; in batches, it says that it is on matrix units. */
class HalvesBackend extends ReferenceBackend {
  readonly #off: number;

  constructor(off: number) {
    super();
    this.#off = off;
  }

  override run(...[batch, options = {}]: Parameters<ReferenceBackend["run"]>): void {
    const { tap } = options;
    const moved: typeof tap = (value, data) => {
      const isMatmul = /attn_[qkv]$/.test(value.name);
      const largest = data.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
      const off = isMatmul ? data.map((one) => one + this.#off * largest) : data;
      tap!(value, off, isMatmul && batch.tokenCount > 1);
    };
    super.run(batch, tap ? { ...options, tap: moved } : options);
  }
}

/** Right from the reference's inputs; from its own, its logits are off by a part of the largest. */
class DriftingBackend extends ReferenceBackend {
  readonly #off: number;

  constructor(off: number) {
    super();
    this.#off = off;
  }

  override run(...[batch, options = {}]: Parameters<ReferenceBackend["run"]>): void {
    const { tap } = options;
    const isChained = options.replace === undefined;
    const moved: typeof tap = (value, data) => {
      const largest = data.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
      const isOff = isChained && value.name === "logits";
      tap!(value, isOff ? data.map((one) => one + this.#off * largest) : data);
    };
    super.run(batch, tap ? { ...options, tap: moved } : options);
  }
}

/** Right as long as somebody looks on. */
class WrongUnwatchedBackend extends ReferenceBackend {
  override run(...[batch, options]: Parameters<ReferenceBackend["run"]>): void {
    super.run(batch, options);
    if (!options?.tap) super.run(batch, { tap: () => {}, replace: (value) => zeros(value.cols) });
  }
}

function zeros(cols: number): Float32Array {
  return new Float32Array(cols).fill(1);
}

async function verified(
  backend: Backend,
  weightType = "f32",
  layers?: number[],
  architecture = "llama",
  inBatches?: number[],
): Promise<Verification> {
  const model = tinyModel({ weightType, architecture });
  const { graph } = buildModel(model);
  const batches = inBatches ?? (graph.outputs.logits ? [4, 1, 1] : [6]);
  const plan = makePlan(graph, { maxTokens: batches[0]!, maxOutputs: batches[0]! });
  return await verifyBackends({
    plan,
    kv: evenCapacity(1, dtypeByName("f32")!),
    tokens: [3, 1, 4, 1, 5, 9],
    batches,
    tolerance: 1e-4,
    layers: layers && new Set(layers),
    readWeight: (weight) =>
      weightReader(weight, async (name, target, at) => {
        target.set(model.bytes.get(name)!.subarray(at, at + target.length));
      }),
    reference: async () => new ReferenceBackend(),
    backends: [{ name: backend.name, create: async () => backend }],
    yieldThread: async () => {},
    progress: () => {},
  });
}

const changed =
  (name: string, change: object) =>
  (node: GraphNode): GraphNode =>
    node.name === name ? ({ ...node, ...change } as GraphNode) : node;

describe("what is found", () => {
  test.each(["f32", "f16", "q8_0"])("the CPU backend is right: %s weights", async (weightType) => {
    const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const result = await verified(cpu, weightType);
    expect(result.passed).toBe(true);
    expect(result.isExact).toBe(weightType === "f32");
    const [backend] = result.backends;
    expect(backend!.firstBeyond).toBeUndefined();
    expect(backend!.ops.map(({ op }) => op)).toContain("attention");
    expect(Math.max(...backend!.ops.map(({ relative }) => relative))).toBeLessThan(1e-5);
    expect(backend!.logits).toMatchObject({ positions: 6, sameTop: 6 });
  });

  // Encoders have hidden states in place of logits. Ids of experts have no last bits; sums of single values cancel in Gemma 3n, so that rounding alone moves them far.
  test.each(["qwen3moe", "gemma3n", "bert", "glm-dsa"])(
    "the CPU backend is right: %s",
    async (architecture) => {
      const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
      const { passed, rounding } = await verified(cpu, "f32", undefined, architecture);
      expect(rounding.relative).toBeLessThan(1e-3);
      expect(passed).toBe(true);
    },
  );

  test("a wrong op is named, and no op after it that is right", async () => {
    const name = "blk.1.ffn_norm";
    const { passed, backends } = await verified(new WrongBackend(changed(name, { eps: 1 })));
    expect(passed).toBe(false);
    const { firstBeyond, values } = backends[0]!;
    expect(firstBeyond).toMatchObject({ name, op: "rms_norm" });
    const beyond = values.filter(({ alone }) => alone.relative > 1e-4);
    expect(beyond.map((value) => value.name)).toEqual([name]);
    // As it is in use, everything after it is wrong.
    expect(values.find((value) => value.name === "logits")!.chained.relative).toBeGreaterThan(1e-3);
  });

  test("keys that go to the wrong place show in the attention", async () => {
    const wrong = new WrongBackend(changed("blk.0.kv", { state: 1 }));
    const { backends } = await verified(wrong);
    expect(backends[0]!.firstBeyond).toMatchObject({ name: "blk.0.attn", op: "attention" });
  });

  test("what matrix units compute from half floats may be off by more, and nothing else may", async () => {
    const inBatch = await verified(new HalvesBackend(5e-4), "q8_0", undefined, undefined, [6]);
    expect(inBatch.passed).toBe(true);
    expect(inBatch.backends[0]!.halves).toEqual({ values: 6, tolerance: 2e-3 });
    const alone = await verified(new HalvesBackend(5e-4), "q8_0", undefined, undefined, [5, 1]);
    expect(alone.passed).toBe(false);
    expect(alone.backends[0]!.firstBeyond).toMatchObject({ name: "blk.0.attn_q" });
    const far = await verified(new HalvesBackend(5e-3), "q8_0", undefined, undefined, [6]);
    expect(far.passed).toBe(false);
  });

  test("what is only wrong when nobody looks on", async () => {
    const { passed, backends } = await verified(new WrongUnwatchedBackend(), "q8_0");
    expect(backends[0]!.firstBeyond).toBeUndefined();
    expect(backends[0]!.logits.relative).toBeGreaterThan(0.1);
    expect(passed).toBe(false);
  });

  test("chained values have a tolerance and a verdict of their own", async () => {
    const exact = await verified(new DriftingBackend(2e-4));
    expect(exact.passed).toBe(false);
    const [wrong] = exact.backends;
    expect(wrong!.firstBeyond).toBeUndefined(); // op by op all is right
    expect(wrong!.chained).toMatchObject({ tolerance: 1e-4, firstBeyond: { name: "logits" } });
    const rounded = await verified(new DriftingBackend(2e-2), "q8_0");
    expect(rounded.passed).toBe(true);
    const { chained, ops } = rounded.backends[0]!;
    expect(chained).toMatchObject({ tolerance: 0.1, largest: { name: "logits" }, allowed: 0 });
    // What is said is what the table shows.
    expect(chained.largest!.chained.relative).toBe(
      Math.max(...ops.map(({ chainedRelative }) => chainedRelative)),
    );
    const far = await verified(new DriftingBackend(0.5), "q8_0");
    expect(far.passed).toBe(false);
    expect(far.backends[0]!.chained.firstBeyond).toMatchObject({ name: "logits" });
  });

  test("only the layers that were asked for, and what is in none", async () => {
    const { backends } = await verified(new ReferenceBackend(), "f32", [1]);
    const names = backends[0]!.values.map(({ name }) => name);
    expect(names[0]).toBe("embed");
    expect(names.at(-1)).toBe("logits");
    expect(names.some((name) => name.startsWith("blk.1."))).toBe(true);
    expect(names.some((name) => name.startsWith("blk.0."))).toBe(false);
  });

  test("inputs between two steps are moved onto one, and no others", () => {
    const type = dtypeByName("q8_0")!;
    const values = Float32Array.from({ length: 32 }, (_, i) => i / 3);
    values[4] = 127; // the scale is 1
    values[9] = 2.5;
    values[10] = -7.5000005;
    const settled = withoutTies(values, type);
    const moved = [...settled.keys()].filter((i) => settled[i] !== values[i]);
    expect(moved.map((i) => [i, settled[i]])).toEqual([
      [9, 3],
      [10, -8],
    ]);
  });

  test("differences are relative to the row, and what is no number is infinitely far", () => {
    const expected = Float32Array.of(100, 1, 2, 0.5);
    const found = differenceOf(Float32Array.of(100, 1.5, 2, 0.5), expected, 2, 7);
    expect(found).toMatchObject({ absolute: 0.5, relative: 0.005, batch: 7, row: 0, column: 1 });
    const lost = differenceOf(Float32Array.of(100, 1, Number.NaN, 0.5), expected, 2, 0);
    expect(lost).toMatchObject({ relative: Number.POSITIVE_INFINITY, row: 1, column: 0 });
  });
});

describe("lantern verify", () => {
  let file: { path: string; remove(): void };
  beforeAll(async () => {
    file = await tinyFile({ weightType: "q4_0" });
  });
  afterAll(() => file.remove());

  async function verify(...flags: string[]): Promise<{ code: number; out: string; err: string }> {
    const terminal = new FakeTerminal();
    const args = ["verify", "-m", file.path, "-t", "1", "-p", "the cat", ...flags];
    const code = await main(args, terminal);
    return { code, out: terminal.stdout, err: terminal.stderr };
  }

  test("a table for each backend", async () => {
    const { code, out } = await verify("--backends", "cpu,reference");
    expect(code).toBe(0);
    expect(out).toMatch(/^cpu: passed$/m);
    expect(out).toMatch(/^reference: passed$/m);
    expect(out).toMatch(/^matmul +\d+ +\S+ +\S+ +\S+ +\S+/m);
    expect(out).toContain("op by op: every op is within 1.0e-4 of the reference");
    // The model rounds activations: another tolerance, and the largest number of the column.
    const tables = out.split(/^(?=\w+: passed)/m).slice(1);
    expect(tables).toHaveLength(2);
    for (const table of tables) {
      const column = [...table.matchAll(/^\w+ +\d+ +\S+ +\S+ +(\S+) +\S+$/gm)].map(
        ([, text]) => text!,
      );
      const largest = column.reduce((most, one) => (Number(one) > Number(most) ? one : most));
      expect(table).toContain(
        `chained: every value is within 1.0e-1; the largest difference is ${largest} at`,
      );
      expect(table).toMatch(/^as in use: logits within \S+ \(at most 1\.0e-1\)/m);
    }
  });

  test("each verdict that failed says so, and the exit code is 1", async () => {
    const { code, out } = await verify("--backends", "cpu", "--tolerance", "1e-12");
    expect(code).toBe(1);
    expect(out).toMatch(/^cpu: FAILED$/m);
    expect(out).toMatch(/^op by op: FAILED, the first op outside 1\.0e-12 is \S+ \(\w+\), batch/m);
    expect(out).toMatch(/^chained: every value is within 1\.0e-1;/m);
  });

  test("--json, and exit code 1 beyond the tolerance", async () => {
    const { code, out } = await verify("--backends", "cpu", "--tolerance", "1e-12", "--json");
    expect(code).toBe(1);
    const { passed, backends } = JSON.parse(out) as {
      passed: boolean;
      backends: { name: string; passed: boolean; first_beyond: { name: string } }[];
    };
    expect(passed).toBe(false);
    expect(backends[0]).toMatchObject({ name: "cpu", first_beyond: { name: expect.any(String) } });
  });

  test("what is not there is refused by name", async () => {
    const backend = await verify("--backends", "cpu,cuda");
    expect(backend).toMatchObject({ code: 2 });
    expect(backend.err).toContain("backends: got cuda, expected some of cpu, webgpu, reference");
    const layers = await verify("--backends", "cpu", "--layers", "0,9");
    expect(layers).toMatchObject({ code: 2 });
    expect(layers.err).toContain("layers: got 9, but this model has layers 0 to 1");
  });

  test("without a GPU: cpu by default, and a sentence when the GPU was asked for", () => {
    const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
    const env = { ...process.env, LANTERN_GPU: "off" };
    const run = (...flags: string[]) =>
      spawnSync(process.execPath, [bin, "verify", "-m", file.path, "-p", "cat", ...flags], {
        encoding: "utf8",
        env,
      });
    const usual = run("--json");
    expect(usual.status).toBe(0);
    const { backends } = JSON.parse(usual.stdout) as { backends: { name: string }[] };
    expect(backends.map(({ name }) => name)).toEqual(["cpu"]);
    const asked = run("--backends", "webgpu");
    expect(asked.stderr).toContain('backend "webgpu": LANTERN_GPU=off says to use none');
    expect(asked.status).toBe(2);
  });
});
