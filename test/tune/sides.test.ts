// Which side computes what, from measured times that are made up here: crossovers, the cost of moving the cache, and what is said
// where something was not measured.

import { describe, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { MatmulGroup } from "../../src/limits/model-matmuls.ts";
import { linkTimes } from "../../src/tune/gpu-transfers.ts";
import { estimateSides, explainSides, type SidesRequest } from "../../src/tune/sides.ts";
import { countedProblems } from "../../src/tune/space.ts";
import type { TuneFile } from "../../src/tune/tune-file.ts";

/** One profile, one shape, whose times are `us(m)`. */
function file(backend: string, us: (m: number) => number, dtype = "q4_0"): TuneFile {
  const lines = [1, 8, 64].map((m) => ({ m, times: [{ init: 0, compute: us(m) }] }));
  return {
    engine: "e",
    cpu: "c",
    cores: 2,
    features: "f",
    date: "2026-11-16T00:00:00.000Z",
    profiles: [{ backend, level: 3, variant: "default", idle: "spin" }],
    groups: [{ dtype, n: 1024, k: 1024, threads: backend === "cpu" ? 2 : 1, lines }],
  };
}

/** A matmul that the next one reads. */
function matmul(name: string, more: Partial<MatmulGroup> = {}): MatmulGroup {
  const matmuls = [{ dtype: "q4_0", n: 1024, k: 1024 }];
  return { name, rows: "tokens", inCols: 1024, outCols: 1024, matmuls, ...more };
}

function link(roundTripSeconds: number) {
  const rates = { uploadBytesPerSecond: 1e12, downloadBytesPerSecond: 1e12 };
  return linkTimes({ ...rates, roundTripSeconds });
}

/** A link that moves a byte in a nanosecond and answers at once. */
const slow = linkTimes({
  uploadBytesPerSecond: 1e9,
  downloadBytesPerSecond: 1e9,
  roundTripSeconds: 0,
});

const request: SidesRequest = {
  cpu: file("cpu", (m) => 100 * m),
  gpu: file("webgpu", (m) => 10 + m),
  groups: Array.from({ length: 10 }, (_, i) => matmul(`blk.${i}`)),
  threads: 2,
  transfers: link(0.002),
  kvTokenBytes: 1000,
  promptTokens: 64,
};

function found(more: Partial<SidesRequest> = {}) {
  const answer = estimateSides({ ...request, ...more });
  if (typeof answer === "string") throw new Error(answer);
  return answer;
}

describe("which side", () => {
  test("a processor that is faster for one token, a GPU for many: they take turns", () => {
    // One token: 1 ms against 0.11 + 2; 64: 64 ms against 0.74 + 2.
    const { choice, times, crossovers } = found();
    expect(choice).toEqual({ prompt: 1, generation: 0 });
    expect(times.map(({ tokens }) => tokens)).toEqual([1, 8, 64]);
    expect(times[0]!.cpuMs).toBeCloseTo(1);
    expect(times[0]!.gpuMs).toBeCloseTo(2.11);
    expect(times[2]!.gpuMs).toBeCloseTo(2.74);
    expect(crossovers).toEqual([
      { tokens: 1, faster: "cpu" },
      { tokens: 8, faster: "webgpu" },
    ]);
  });

  test("a cache that is slow to move keeps both on one side", () => {
    const gpu = file("webgpu", (m) => 130 + m);
    const much = found({ gpu, transfers: slow, kvTokenBytes: 1e6 });
    expect(much.moveMs).toBeCloseTo(2);
    expect(much.choice).toEqual({ prompt: 1, generation: 1 });
    expect(found({ gpu, transfers: slow }).choice).toEqual({ prompt: 1, generation: 0 });
  });

  test("a GPU that is faster at everything computes everything, and so does a processor", () => {
    expect(found({ transfers: link(1e-5) }).choice).toEqual({ prompt: 1, generation: 1 });
    const gpu = file("webgpu", (m) => 1000 * m);
    expect(found({ gpu }).choice).toEqual({ prompt: 0, generation: 0 });
  });

  test("a gain of a few percent is not worth a second copy of the weights", () => {
    // Alone 1 + 1 ms; in turns 1 + 0.95.
    const cpu = file("cpu", (m) => 100 * m);
    const gpu = file("webgpu", (m) => (m === 1 ? 120 : 95 * m));
    expect(found({ cpu, gpu, transfers: link(0), kvTokenBytes: 0 }).choice).toEqual({
      prompt: 0,
      generation: 0,
    });
  });

  test("the reverse: prompts on the processor, tokens on the GPU", () => {
    const gpu = file("webgpu", (m) => 10 * m * m);
    expect(found({ gpu, transfers: link(1e-6) }).choice).toEqual({ prompt: 0, generation: 1 });
  });

  test("beyond the numbers of tokens that a side was measured at, its roofline bounds it", () => {
    // The GPU was measured at 64 tokens, the processor at 8 only, where its times still fell.
    const some = file("cpu", (m) => 1000 / m);
    const cpu = {
      ...some,
      groups: some.groups.map((group) => ({ ...group, lines: group.lines.slice(0, 2) })),
    };
    expect(found({ cpu }).times.at(-1)!.cpuMs).toBeCloseTo(0);
    const device = { bytesPerSecond: 1e15, opsPerSecond: { f32: 1e12 } };
    const bounded = found({ cpu, cpuLimits: () => device }).times.at(-1)!;
    // Ten matmuls of 2 * 64 * 2^20 operations.
    expect(bounded.cpuMs).toBeCloseTo((10 * 2 * 64 * 2 ** 20) / 1e9);
    expect(found({ cpu, gpuLimits: () => device }).times.at(-1)!.cpuMs).toBeCloseTo(0);
  });

  test("a type that was not measured is named, with what to do", () => {
    const gpu = file("webgpu", (m) => m, "q8_0");
    expect(estimateSides({ ...request, gpu })).toBe(
      'q4_0 was not measured on webgpu: "lantern tune -m MODEL --backend cpu,webgpu" does',
    );
  });

  test("--explain has the table, the crossover and the price of moving the cache", () => {
    const lines = explainSides(found());
    expect(lines).toContain("     1 tokens: cpu 1.00 ms, webgpu 2.11 ms");
    expect(lines).toContain("  crossover: cpu from 1 token on, webgpu from 8 tokens on");
    // A block of 32 tokens waits for one round trip.
    expect(lines).toContain("  moving a token's keys and values, there and back: 0.0625 ms");
  });
});

test("matrices of a model are counted by shape and type", () => {
  const dtype = dtypeByName("q4_0")!;
  const tensor = (name: string, rows: number) => ({ name, shape: [rows, 64], dtype });
  const tensors = [
    tensor("token_embd.weight", 100),
    tensor("output.weight", 100),
    tensor("blk.0.attn_q.weight", 64),
    tensor("blk.1.attn_q.weight", 64),
    { name: "blk.0.attn_norm.weight", shape: [64], dtype },
  ];
  expect(countedProblems(tensors)).toEqual([
    { dtype: "q4_0", n: 100, k: 64, count: 1 },
    { dtype: "q4_0", n: 64, k: 64, count: 2 },
  ]);
});
