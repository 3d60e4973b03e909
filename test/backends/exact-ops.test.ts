// Op by op, a GPU that computes exactly gives the bits of the CPU's kernels: of this machine's, of WebAssembly without a fused
// multiply-add, and of vectors of other widths, whose kernels are interpreted. What has no exact kernel is refused by
// supports(). Whole models at every split: exact-splits.test.ts.

import { expect, onTestFinished, test } from "vitest";
import { cpuArithmetic } from "../../src/backends/cpu/arithmetic.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import type { OpKind } from "../../src/graph/graph.ts";
import { type OpenOptions, open } from "../../src/index.ts";
import type { Arithmetic } from "../../src/kernels/arithmetic.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { opCases } from "../conformance/op-cases.ts";
import { type Batches, type CaseModel, runCase } from "../conformance/run-case.ts";
import { modelOf, opModel } from "../conformance/table.ts";
import { leftOut, someOnSecond } from "../support/exhaustive.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { interpretedNative } from "../support/interpreted-native.ts";
import { nativeHere } from "../support/native.ts";
import { tinyFile } from "../support/tiny-file.ts";

interface Processor {
  readonly name: string;
  readonly arithmetic: Arithmetic;
  readonly options: Partial<CpuOptions>;
}

const features = detectWasmFeatures();
const interpreted = (["x64-avx512", "x64-avx2"] as const).map((name) => {
  const native = interpretedNative(nativeTargets[name], lowerings[name], () => {});
  return { name: `${name}, interpreted`, native };
});

const here: readonly Processor[] = [...nativeHere, ...interpreted].map(({ name, native }) => ({
  name,
  arithmetic: cpuArithmetic(native),
  options: { native },
}));

const processors: readonly Processor[] = [
  ...here,
  {
    name: "wasm without relaxed SIMD",
    arithmetic: { fused: false, lanes: () => 4 },
    options: { wasm: { ...features, relaxed: false, dot4: "words" } },
  },
];

/** One token, some of two sequences, and enough for sums of several vectors. */
const batches: Batches = [
  [1, 0],
  [3, 2],
  [12, 0],
  [8, 4],
];

function isSupported(model: CaseModel, gpu: WebGpuBackend): boolean {
  return model.graph.nodes.every((node) => gpu.supports(node) === true);
}

const allOps = Object.keys(opCases) as OpKind[];

/** Those whose sums depend on how wide vectors are. */
const laneOps: readonly OpKind[] = ["rms_norm", "layer_norm", "softmax", "attention"];

/** The supported cases of each op in a graph for each number of columns: what a row's sums are depends on it. */
function opModels(gpu: WebGpuBackend, ops: readonly OpKind[], columns: number[]): CaseModel[] {
  return columns.flatMap((cols) =>
    ops.flatMap((op) => {
      const own = opCases[op].filter((each) => {
        if (each.columns && !each.columns.includes(cols)) return false;
        return isSupported(opModel(op, [{ ...each, columns: [cols] }]), gpu);
      });
      return own.length > 0
        ? [
            opModel(
              op,
              own.map((each) => ({ ...each, columns: [cols] })),
            ),
          ]
        : [];
    }),
  );
}

const moreTypes = ["bf16", "q4_1", "q5_0", "q8_0/q4_0", "q5_1/f16"];

/** Heads of 32 values, which every cache has whole blocks for. */
function attentionModels(): readonly CaseModel[] {
  const own = opCases.attention.filter(({ name }) => !/sinks|all options/.test(name));
  const model = opModel(
    "attention",
    own.slice(0, 4).map((each) => ({ ...each, columns: [128] })),
  );
  const types = ["f16", "q8_0", "q4_0", "q5_1", ...(leftOut ? [] : moreTypes)];
  return types.map((kvType) => ({ ...model, kvType }));
}

/** Sums of several vectors and the rest of one, other caches, and all ops together. */
function wholeModels(gpu: WebGpuBackend): CaseModel[] {
  return [
    ...opModels(gpu, laneOps, [300]),
    ...attentionModels(),
    modelOf({ weightType: "q4_1", architecture: "qwen3" }),
    modelOf({ weightType: "f16", kvType: "f16" }),
  ];
}

async function otherBits(model: CaseModel, { arithmetic, options }: Processor, gpu: WebGpuBackend) {
  const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...options });
  const expected = await runCase(cpu, model, batches);
  cpu.dispose();
  expect(arithmetic.lanes("rms_norm", [64])).toBeGreaterThanOrEqual(4);
  const got = await runCase(gpu, model, batches);
  expect(got.map(({ name }) => name)).toEqual(expected.map(({ name }) => name));
  return got.flatMap(({ name, batch, values }, i) => {
    const wrong = values.findIndex((value, j) => value !== expected[i]!.values[j]);
    if (wrong < 0) return [];
    return [`batch ${batch}, ${name}, ${wrong}: ${values[wrong]}, ${expected[i]!.values[wrong]}`];
  });
}

describeGpu("exact", () => {
  const few = [processors[0]!, processors.at(-1)!];
  for (const processor of someOnSecond("processors", processors, few)) {
    test(`the bits of ${processor.name}`, { timeout: 600_000 }, async () => {
      const device = await openGpu();
      const gpu = () => new WebGpuBackend(device, { exact: processor.arithmetic });
      const models = [
        ...opModels(gpu(), processor.name.includes("interpreted") ? laneOps : allOps, [64]),
        ...(nativeHere.some(({ name }) => name === processor.name) ? wholeModels(gpu()) : []),
        ...(leftOut ? [] : attentionModels()),
      ];
      for (const model of models) expect(await otherBits(model, processor, gpu())).toEqual([]);
      device.dispose();
    });
  }

  test("what has no exact kernel is refused with a reason", async () => {
    const gpu = new WebGpuBackend(await openGpu(), { exact: processors.at(-1)!.arithmetic });
    const answers = (
      [
        ["route", 70],
        ["short_conv", 64],
        ["attention", 64],
        ["gate", 64],
      ] as const
    ).map(([op, cols]) =>
      opModel(
        op,
        opCases[op]
          .filter(({ columns = [cols] }) => columns.includes(cols))
          .map((each) => ({ ...each, columns: [cols] })),
      )
        .graph.nodes.map((node) => gpu.supports(node))
        .find((answer) => answer !== true),
    );
    expect(answers).toEqual([
      'exact kernels lack the op "route"; use `exact: false`',
      'exact kernels lack the op "short_conv"; use `exact: false`',
      expect.stringContaining("attention with sinks"),
      expect.stringContaining("gates of one column"),
    ]);
    gpu.dispose();
  });

  test("open() with exact: the text of the processor; other opt levels are refused", async () => {
    const file = await tinyFile({ weightType: "q4_1" });
    onTestFinished(() => file.remove());
    const text = async (options: OpenOptions): Promise<string> => {
      await using model = await open(file.path, { threads: 1, contextSize: 64, ...options });
      const lines = model.info.backend.notes.join("\n");
      expect(lines.includes("exact: the bits of the CPU")).toBe(options.exact ?? false);
      return (await model.generate("the cat", { temperature: 0, maxTokens: 6 }).result).text;
    };
    expect(await text({ gpuLayers: 2, exact: true })).toBe(await text({}));
    await expect(text({ gpuLayers: 2, exact: true, level: 2 })).rejects.toThrow(
      'exact: a GPU can compute the bits of `backend: "cpu"` at opt levels 3 and 4, got opt level 2.',
    );
  });
});
