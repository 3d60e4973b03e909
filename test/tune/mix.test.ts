// Matmuls on the device of their own choice, from made-up times: the shortest path with transfers is never longer than one
// device for all, and what it takes for it to be clearly shorter.

import { describe, expect, test } from "vitest";
import { crossingsText } from "../../apps/cli/tune-text.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { compareTunes } from "../../src/index.ts";
import { graphMatmuls } from "../../src/limits/model-matmuls.ts";
import { crossBackends } from "../../src/tune/cross-backends.ts";
import { linkTimes, transferTimes } from "../../src/tune/gpu-transfers.ts";
import { bestMix, type GroupCost } from "../../src/tune/mix.ts";
import { estimateSides, explainSides } from "../../src/tune/sides.ts";
import { parseTuneFile, printTuneFile, type TuneFile } from "../../src/tune/tune-file.ts";
import { resealed } from "./sample.ts";

/** A byte takes a nanosecond each way; an answer 20 us. */
const transfers = linkTimes({
  uploadBytesPerSecond: 1e9,
  downloadBytesPerSecond: 1e9,
  roundTripSeconds: 20e-6,
});

/** 1000 bytes of activations and of results. */
function cost(name: string, cpu: number, gpu: number): GroupCost {
  return { group: { name, inCols: 250, outCols: 250 }, rows: 1, us: [cpu, gpu] };
}

describe("the best mix", () => {
  test("leaves a matmul where it is if its gain is less than its transfers", () => {
    // b gains 21 us, and its way there and back takes 1 + 21.
    const { us, alone, aloneUs, moved, single } = bestMix(
      [cost("a", 10, 100), cost("b", 31, 10), cost("c", 10, 100)],
      transfers,
    );
    expect([us, alone, aloneUs, moved]).toEqual([51, 0, 51, []]);
    expect(single.name).toBe("b");
    expect(single.gainUs).toBeCloseTo(21);
    expect(single.transferUs).toBeCloseTo(22);
  });

  test("moves it if the gain is more, and neighbours together", () => {
    const far = bestMix([cost("a", 10, 100), cost("b", 90, 10), cost("c", 10, 100)], transfers);
    expect(far.moved).toEqual(["b"]);
    expect(far.us).toBeCloseTo(10 + 1 + 10 + 21 + 10);
    // Alone neither of the two gains, but they share the way.
    const both = [cost("a", 10, 100), cost("b", 31, 10), cost("c", 31, 10), cost("d", 10, 100)];
    expect(bestMix(both, transfers).moved).toEqual(["b", "c"]);
  });

  test("the last results are read on the CPU: a GPU for all pays for that, too", () => {
    const { alone, aloneUs } = bestMix([cost("a", 40, 5), cost("b", 40, 5)], transfers);
    expect(alone).toBe(1);
    expect(aloneUs).toBeCloseTo(10 + 21);
  });
});

/** Times of both devices for a matrix and for experts of the same shape. */
function files(gpuExpertsUs: number): { cpu: TuneFile; gpu: TuneFile } {
  const head = { engine: "e", cpu: "c", cores: 2, date: "2026-11-16T00:00:00.000Z" };
  const shape = { dtype: "q4_0", n: 64, k: 64 };
  const experts = { count: 8, used: 2 };
  const lines = (us: number) => [1, 8].map((m) => ({ m, times: [{ init: 1, compute: us * m }] }));
  const profile = { level: 3, variant: "default", idle: "spin" } as const;
  const moves = [1, 8].map((m) => ({ m, there: 2 * m, prepared: m, back: 20 + m }));
  return {
    cpu: {
      ...head,
      features: "wasm relaxed dot4=unsigned",
      profiles: [{ ...profile, backend: "cpu" }],
      groups: [
        { ...shape, threads: 2, lines: lines(100) },
        { ...shape, experts, threads: 2, lines: lines(200) },
      ],
    },
    gpu: {
      ...head,
      features: "webgpu no-subgroups",
      profiles: [{ ...profile, backend: "webgpu" }],
      groups: [
        { ...shape, threads: 1, lines: lines(5), transfers: moves },
        { ...shape, experts, threads: 1, lines: lines(gpuExpertsUs), transfers: moves },
      ],
    },
  };
}

describe("profiles over devices", () => {
  test("init, compute and finish of each, and from where on it is faster than the CPU", () => {
    const { cpu, gpu } = files(50);
    const [matrix, routed] = crossBackends(cpu, gpu);
    expect(matrix!.points[0]!.profiles).toEqual({
      cpu: { init: 1, compute: 100, finish: 0 },
      webgpu: { init: 1, compute: 5, finish: 0 },
      moved: { init: 3, compute: 5, finish: 21 },
      mixed: { init: 2, compute: 5, finish: 21 },
      // 64 x 64 weights of Q4_0 are 2304 bytes, more than any activations that were measured: 16 + 2 us.
      weights: { init: expect.closeTo(18 + 3, 5), compute: 5, finish: 21 },
    });
    expect(routed!.experts).toEqual({ count: 8, used: 2 });
    expect(routed!.crossovers[1]).toEqual({ profile: "moved", m: 1 });
  });

  test("as a table: every profile, the fastest, and the crossovers", () => {
    const { cpu, gpu } = files(50);
    const text = crossingsText(compareTunes(cpu, gpu));
    expect(text).toContain("mixed: the CPU prepares activations, the GPU multiplies");
    expect(text).toContain("q4_0  64 x 64, 2 of 8 experts, 2 threads");
    expect(text).toMatch(/1 +1\.0 \+ 100\.0 +1\.0 \+ 5\.0 +3\.0 \+ 5\.0 \+ 21\.0 .* webgpu/);
    expect(text).toContain("faster than cpu: webgpu from 1 token, moved from 1 token");
    expect(() => compareTunes(gpu, cpu)).toThrow("got times of a GPU, then the CPU");
  });

  test("the crossover lies between measured numbers of tokens", () => {
    // CPU 1 + 10 m; moved 2 m + 1 + 2 m + 20 + m = 21 + 5 m: equal at 4 tokens.
    const { cpu, gpu } = files(2);
    const lines = [1, 8].map((m) => ({ m, times: [{ init: 1, compute: 10 * m }] }));
    const slower = { ...cpu, groups: cpu.groups.map((group) => ({ ...group, lines })) };
    const routed = crossBackends(slower, gpu)[1]!;
    expect(routed.crossovers.find(({ profile }) => profile === "moved")).toEqual({
      profile: "moved",
      m: 5,
    });
  });

  test("experts and transfers are in the file, and older files have neither", () => {
    const { gpu } = files(50);
    const text = printTuneFile(gpu);
    expect(text).toContain("group q4_0 64 64 threads=1 experts=2/8\n");
    expect(text).toContain("transfer 8  16.0  8.0  28.0\n");
    expect(parseTuneFile(text, "test")).toEqual(gpu);
    const older = resealed(text.replace(/^transfer .*\n/gm, ""));
    expect(transferTimes(parseTuneFile(older, "test"))).toBeUndefined();
    const wrong = (from: string, to: string) => () =>
      parseTuneFile(resealed(text.replace(from, to)), "test");
    expect(wrong("experts=2/8", "experts=9/8")).toThrow("experts=9/8");
    expect(wrong("transfer 8  16.0", "transfer 1  16.0")).toThrow("ascending");
    expect(wrong("transfer 8  16.0", "transfer 8  x")).toThrow("transfer M THERE PREPARED BACK");
  });
});

/** Measured: two busy cores of a Neoverse-N1, and SwiftShader on the same cores. */
const measured = {
  cpu: `lantern-tune 2
engine kernels 0
cpu Neoverse-N1 (arm64)
cores 2
features wasm relaxed dot4=unsigned
date 2026-11-16T13:34:00.000Z
profile 0 backend=cpu level=3 variant=8x4.compact idle=spin
group q4_0 768 288 threads=2 noise=0.117
   1  3.3 19.7
   8  51.3 125.1
  32  112.5 1326.5
`,
  gpu: `lantern-tune 2
engine kernels webgpu-1
cpu SwiftShader
cores 1
features webgpu subgroups=4-4 dot4
date 2026-11-16T13:34:00.000Z
profile 0 backend=webgpu level=3 variant=default idle=spin
group q4_0 768 288 threads=1 noise=0.207
   1  0.0 36243.8
   8  255.0 48637.2
  32  1712.9 78818.3
transfer 1  0.0  -  97.5
transfer 8  0.0  0.0  105.9
transfer 32  26.6  21.6  121.4
`,
};

test("on a software adapter no profile beats the CPU, and one token not even its transfers", () => {
  const [cpu, gpu] = [
    parseTuneFile(resealed(measured.cpu), "cpu"),
    parseTuneFile(resealed(measured.gpu), "gpu"),
  ];
  const [{ points, crossovers }] = crossBackends(cpu, gpu) as [ReturnType<typeof crossBackends>[0]];
  expect(crossovers.every(({ m }) => m === undefined)).toBe(true);
  const { first, profiles } = points[0]!;
  // A GPU that computes in no time would still lose: 23.0 us against 97.5 of waiting for results.
  expect(profiles.moved!.finish).toBeGreaterThan(first);
  const group = { name: "ffn_up", inCols: 288, outCols: 768 };
  const costs = points.map(({ m, second }) => {
    return bestMix([{ group, rows: m, us: [first, second] }], transferTimes(gpu)!);
  });
  expect(costs.every(({ alone, moved }) => alone === 0 && moved.length === 0)).toBe(true);
});

/** A layer with attention and experts, then the output matrix. */
function layers() {
  const dtype = dtypeByName("q4_0")!;
  const g = new GraphBuilder();
  const matrix = (name: string) => ({ name, shape: [64, 64], dtype });
  const x = g.embed(matrix("token_embd.weight"), "embed");
  const o = g.matmul(x, matrix("q"), "attn_q");
  const routes = g.route(
    g.matmul(o, { name: "r", shape: [8, 64], dtype }, "router"),
    {
      ...{ used: 2, gating: "softmax", normalise: true, scale: 1 },
    },
    "routes",
  );
  const experts = { name: "e", shape: [8, 64, 64], dtype };
  const out = g.combine(g.matmulId(o, routes, experts, "ffn_up_exps"), routes, "ffn_out");
  return graphMatmuls(g.finish({ logits: g.matmul(out, matrix("output.weight"), "output") }));
}

describe("of a model with experts", () => {
  test("groups are its matmuls in order; those that read the same activations are one", () => {
    expect(
      layers().map(({ name, inCols, outCols, matmuls }) => [name, inCols, outCols, matmuls.length]),
    ).toEqual([
      ["attn_q", 64, 64, 1],
      ["router", 64, 8 + 2 * 64, 2],
      ["output", 64, 64, 1],
    ]);
    expect(layers()[1]!.matmuls[1]!.experts).toEqual({ count: 8, used: 2 });
  });

  const found = (gpuExpertsUs: number) => {
    const both = files(gpuExpertsUs);
    const sides = estimateSides({
      ...both,
      groups: layers(),
      threads: 2,
      transfers: transferTimes(both.gpu)!,
      kvTokenBytes: 256,
      promptTokens: 8,
    });
    if (typeof sides === "string") throw new Error(sides);
    return sides;
  };

  test("experts that the GPU computes slowly would stay on the CPU, and it is said that they do not", () => {
    const { mixes, choice } = found(2000);
    expect(choice).toEqual({ prompt: 0, generation: 0 });
    expect(mixes.map(({ tokens, pays, moved }) => [tokens, pays, moved])).toEqual([
      [1, true, ["attn_q", "output"]],
      [8, true, ["attn_q", "output"]],
    ]);
    const text = explainSides(found(2000)).join("\n");
    expect(text).toContain("2 matmuls on webgpu (attn_q, output)");
    expect(text).toContain("q4_0 64 x 64, 2 of 8 experts, 1 time:");
  });

  test("a GPU that is faster at everything: no mix is worth it, with the inequality", () => {
    const { mixes, choice } = found(10);
    expect(choice).toEqual({ prompt: 1, generation: 1 });
    expect(mixes.every(({ pays, moved }) => !pays && moved.length === 0)).toBe(true);
    expect(explainSides(found(10)).join("\n")).toContain(
      "not worth it\n    no matmul is faster on cpu",
    );
  });

  test("experts that were not measured are named", () => {
    const both = files(10);
    const without = { ...both.gpu, groups: both.gpu.groups.filter(({ experts }) => !experts) };
    const answer = estimateSides({
      ...{ ...both, gpu: without },
      groups: layers(),
      threads: 2,
      transfers: transferTimes(both.gpu)!,
      kvTokenBytes: 256,
      promptTokens: 8,
    });
    expect(answer).toContain("q4_0 64 x 64, 2 of 8 experts was not measured on webgpu");
  });
});
