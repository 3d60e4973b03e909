// A report is arithmetic on recorded times: here with times that a test has made up, so that every number is known.

import { describe, expect, test } from "vitest";
import { profileText } from "../../apps/cli/profile.ts";
import type { PhaseProfile } from "../../src/api/api.ts";
import type { Device } from "../../src/api/rates.ts";
import type { BackendProfile, PhaseTimes, ProfiledPart } from "../../src/backends/backend.ts";
import { joinProfiles } from "../../src/backends/join-profiles.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { Laps } from "../../src/profile/laps.ts";
import { profileReport } from "../../src/profile/report.ts";

const f32 = dtypeByName("f32")!;
const q8 = dtypeByName("q8_0")!;

/** An embedding, a layer with one matrix, and the logits: [64 -> 64 -> 128]. */
function parts(): ProfiledPart[] {
  const weight = (name: string, rows: number, dtype = q8) => ({ name, shape: [rows, 64], dtype });
  const g = new GraphBuilder();
  const x = g.embed(weight("token_embd.weight", 128, f32), "embed"); // [tokens, 64]
  g.layer(0);
  const hidden = g.matmul(x, weight("blk.0.w", 64), "ffn_up"); // [tokens, 64]
  g.layer(undefined);
  const wanted = g.select(hidden, "selected"); // [outputs, 64]
  const logits = g.matmul(wanted, weight("output.weight", 128), "logits"); // [outputs, 128]
  const [embed, up, select, out] = g.finish({ logits }).nodes;
  const part = { rows: "tokens", isAlone: false } as const;
  return [
    { ...part, op: "embed", name: "embed", nodes: [embed!], isAlone: true },
    { ...part, op: "quantize", name: "blk.0.ffn_up", nodes: [] },
    { ...part, op: "matmul", name: "blk.0.ffn_up", nodes: [up!] },
    { ...part, op: "select", name: "selected", nodes: [select!], rows: "outputs" },
    { ...part, op: "matmul", name: "logits", nodes: [out!], rows: "outputs" },
  ];
}

const nothing: PhaseTimes = { batchMs: 0, sizes: [], busyMs: [] };

/** Two threads; 4 batches of one token, one of them without logits. */
const recorded: BackendProfile = {
  parts: parts(),
  phases: {
    prompt: nothing,
    generation: {
      batchMs: 20,
      sizes: [
        { tokens: 1, outputs: 1, batches: 3, context: 5 },
        { tokens: 1, outputs: 0, batches: 1, context: 9 },
      ],
      busyMs: [Float64Array.of(2, 1, 6, 0.5, 6), Float64Array.of(0, 0, 7, 0.5, 5)],
    },
  },
  events: [],
  packMs: 3,
};

const device: Device = {
  id: "test",
  name: "test",
  memoryBytes: undefined,
  bytesPerSecond: 1e6,
  opsPerSecond: { f32: 1e9, int8: 1e9 },
  source: "made up",
};

/** Laps on a clock that the test moves. */
function lapsOf(...batches: [number, ...Parameters<Laps["lap"]>][]): Laps {
  let now = 100;
  const laps = new Laps(() => now);
  laps.resume();
  for (const [ms, section, kind] of batches) {
    now += ms;
    laps.lap(section, kind);
  }
  laps.pause();
  return laps;
}

const laps = (): Laps =>
  lapsOf(
    [2, "load", "start"],
    [10, "load", "open"],
    [5, "load", "prepare"],
    [7, "load", "weights"],
    [1, "generation", "bookkeeping"],
    [22, "generation", "batch"],
    [4, "generation", "sampling"],
    [3, "generation", "messages"],
  );

function generationOf(limits: Device | undefined, profile = recorded): PhaseProfile {
  const input = {
    threads: 2,
    kvType: f32,
    laps: laps(),
    recorded: profile,
    devices: limits && [limits],
  };
  const { phases } = profileReport(input);
  expect(phases.map(({ phase }) => phase)).toEqual(["generation"]);
  return phases[0]!;
}

describe("times", () => {
  test("everything adds up to the phase's time", () => {
    const { ms, batchMs, computeMs, waitingMs, betweenMs, threads, ops, layers, nodes } =
      generationOf(undefined);
    expect({ ms, batchMs, computeMs, waitingMs, betweenMs }).toEqual({
      ms: 30,
      batchMs: 20,
      computeMs: 14, // (15.5 + 12.5) / 2
      waitingMs: 6, // (4.5 + 7.5) / 2
      betweenMs: 10,
    });
    expect(threads).toEqual([
      { busyMs: 15.5, waitingMs: 4.5 },
      { busyMs: 12.5, waitingMs: 7.5 },
    ]);
    for (const rows of [ops, layers, nodes]) {
      expect(rows.reduce((sum, row) => sum + row.ms, 0)).toBeCloseTo(computeMs);
      expect(rows.reduce((sum, row) => sum + row.share, 0)).toBeCloseTo(computeMs / ms);
    }
  });

  test("what the backend takes beyond its batches is bookkeeping", () => {
    expect(generationOf(undefined).between).toEqual({
      requestMs: 0,
      bookkeepingMs: 1 + 2,
      logitsMs: 0,
      samplingMs: 4,
      textMs: 0,
      messagesMs: 3,
    });
  });

  test("load: reading is what is left of the weights beside packing", () => {
    const input = { threads: 2, kvType: f32, laps: laps(), recorded, devices: undefined };
    expect(profileReport(input).load).toEqual({
      ms: 24,
      startMs: 2,
      openMs: 10,
      prepareMs: 5,
      readMs: 4,
      packMs: 3,
    });
  });

  test("one thread alone is the leader's own time, not an average", () => {
    expect(generationOf(undefined).aloneMs).toBe(2);
  });
});

describe("rows", () => {
  test("by op, longest first; by layer, in order; by node", () => {
    const { ops, layers, nodes } = generationOf(undefined);
    const seen = (rows: typeof ops) => rows.map(({ name, calls, ms }) => [name, calls, ms]);
    expect(seen(ops)).toEqual([
      ["matmul", 4 + 3, 12], // no logits in one of the batches
      ["embed", 4, 1],
      ["quantize", 4, 0.5],
      ["select", 3, 0.5],
    ]);
    expect(seen(layers)).toEqual([
      ["outside layers", 4 + 3 + 3, 7],
      ["blk.0", 4 + 4, 7],
    ]);
    expect(nodes.map(({ name }) => name)).toEqual([
      "ffn_up (matmul)",
      "logits (matmul)",
      "embed (embed)",
      "ffn_up (quantize)",
      "selected (select)",
    ]);
  });

  test("rates and limits count the work that was done", () => {
    const matmul = generationOf(device).ops[0]!;
    const bytes = 4 * (64 * 68) + 3 * (128 * 68); // q8_0: 34 bytes for 32 weights
    const ops = 4 * (2 * 64 * 64) + 3 * (2 * 64 * 128);
    expect(matmul.bytesPerSecond).toBeCloseTo(bytes / 0.012);
    expect(matmul.opsPerSecond).toBeCloseTo(ops / 0.012);
    expect(matmul.limit).toEqual({
      resource: "bandwidth",
      fraction: expect.closeTo(bytes / 1e6 / 0.012, 6),
    });
  });

  test("without a device, and for what has no work, no limit is stated", () => {
    expect(generationOf(undefined).ops.map(({ limit }) => limit)).toEqual(Array(4).fill(undefined));
    const quantize = generationOf(device).ops.find(({ name }) => name === "quantize")!;
    expect(quantize.limit).toBeUndefined();
  });
});

describe("the bottleneck", () => {
  test("largest shares first, with the limit of an op", () => {
    const { summary } = generationOf({ ...device, bytesPerSecond: 4e6 });
    expect(summary).toBe(
      "40% of generation is matmul, at 91% of the bandwidth limit; 33% is between batches, mostly sampling; 20% is threads waiting for each other",
    );
  });

  test("work that one thread does alone is named as the reason for waiting", () => {
    const { generation } = recorded.phases;
    const times = { ...generation, busyMs: [Float64Array.of(18, 0, 1, 0, 1), new Float64Array(5)] };
    const profile = { ...recorded, phases: { prompt: nothing, generation: times } };
    expect(generationOf(undefined, profile).summary).toBe(
      "33% of generation is waiting for work that one thread does alone; 33% is between batches, mostly sampling; 30% is embed",
    );
  });

  test("a backend that records nothing computes", () => {
    const input = { threads: 1, kvType: f32, laps: laps(), recorded: undefined, devices: [device] };
    const report = profileReport(input);
    expect(report.phases[0]).toMatchObject({ ops: [], threads: [], batchMs: 22, betweenMs: 8 });
    expect(report.bottleneck).toBe(
      "73% of generation is computing batches; 27% is between batches, mostly sampling",
    );
  });

  test("nothing has run", () => {
    const input = {
      threads: 1,
      kvType: f32,
      laps: lapsOf(),
      recorded: undefined,
      devices: [device],
    };
    expect(profileReport(input)).toMatchObject({ phases: [], bottleneck: "nothing was run yet" });
  });
});

describe("two backends", () => {
  const slow: Device = { ...device, bytesPerSecond: 5e5, source: "half as fast" };
  const memory = { weightBytes: 1, kvBytes: 2, workBytes: 3 };
  const sides = [
    { name: "cpu", profile: recorded, memory },
    { name: "webgpu", profile: { ...recorded, worker: "GPU" }, memory },
  ] as const;
  const joined = joinProfiles("cpu+webgpu", sides);
  const reportOn = (devices: Device[] | undefined) =>
    profileReport({ threads: 2, kvType: f32, laps: laps(), recorded: joined, devices });

  test("each is compared with its own limit, and the sum of both is what one backend reports", () => {
    const alone = generationOf(device);
    const { sides: found, phases, device: whose } = reportOn([device, slow]);
    expect(whose).toBeUndefined();
    expect(found!.map(({ name, device: from }) => [name, from])).toEqual([
      ["cpu", "made up"],
      ["webgpu", "half as fast"],
    ]);
    const [first, second] = found!.map((side) => side.phases[0]!);
    expect(first!.computeMs).toBeCloseTo(alone.computeMs, 9);
    expect(phases[0]!.computeMs).toBeCloseTo(2 * alone.computeMs, 9);
    // The same bytes in the same time, at half the bandwidth: twice the share.
    expect(first!.limit).toMatchObject({ resource: "bandwidth" });
    expect(second!.limit!.fraction).toBeCloseTo(2 * first!.limit!.fraction, 9);
    const text = profileText(reportOn([device, slow]));
    const percent = (side: number) => Math.round(100 * found![side]!.phases[0]!.limit!.fraction);
    for (const [i, name] of ["cpu", "webgpu"].entries()) {
      expect(text).toContain(
        `${name} computed: generation ${first!.computeMs.toFixed(1)} ms, ${percent(i)}% of its bandwidth limit`,
      );
    }
  });

  test("what was not measured is said to be unknown", () => {
    expect(profileText(reportOn(undefined))).toMatch(
      /cpu computed: generation .* ms, its limit is not known/,
    );
    expect(
      profileReport({ threads: 2, kvType: f32, laps: laps(), recorded, devices: [device] }).sides,
    ).toBeUndefined();
  });
});

describe("laps", () => {
  test("time between requests counts for nothing; requests that overlap count once", () => {
    let now = 0;
    const watch = new Laps(() => now);
    watch.resume();
    now = 5;
    watch.resume(); // a second one
    watch.lap("prompt", "batch");
    watch.pause();
    now = 8;
    watch.lap("generation", "batch");
    watch.pause();
    now = 50;
    watch.lap("generation", "batch"); // nobody is at work
    watch.resume();
    now = 51;
    watch.lap("generation", "text");
    watch.pause();
    expect(watch.sectionMs("prompt")).toBe(5);
    expect(watch.ms("generation", "batch")).toBe(3);
    expect(watch.ms("generation", "text")).toBe(1);
    watch.reset();
    expect(watch.sectionMs("prompt") + watch.sectionMs("generation")).toBe(0);
  });
});

describe("the heap", () => {
  /** Laps whose heap grows by so many bytes before each batch; a look at it takes 10. */
  function heapOf(...grown: readonly number[]): Laps {
    let used = 1000;
    const laps = new Laps(
      () => 0,
      () => {
        used += 10;
        return used;
      },
    );
    laps.resume();
    for (const bytes of grown) {
      used += bytes;
      laps.lap("generation", "batch");
    }
    laps.pause();
    return laps;
  }

  test("what a batch takes, without what looking at it takes", () => {
    // The first batch has nothing before it.
    expect(heapOf(5000, 300, 500).heapBytesPerBatch("generation")).toBe(400);
    expect(heapOf(5000, 0, 0).heapBytesPerBatch("generation")).toBe(0);
  });

  test("batches in which garbage was collected do not count", () => {
    expect(heapOf(0, 300, -900, 500).heapBytesPerBatch("generation")).toBe(400);
  });

  test("a platform that does not say is no zero", () => {
    expect(heapOf(5000).heapBytesPerBatch("generation")).toBeUndefined();
    expect(generationOf(undefined).heapBytesPerBatch).toBeUndefined();
  });

  test("what happens between two requests belongs to no batch", () => {
    let used = 0;
    const laps = new Laps(
      () => 0,
      () => used,
    );
    for (const bytes of [100, 1_000_000]) {
      used += bytes;
      laps.resume();
      laps.lap("generation", "batch");
      used += 50;
      laps.lap("generation", "batch");
      laps.pause();
    }
    expect(laps.heapBytesPerBatch("generation")).toBe(50);
    laps.reset();
    expect(laps.heapBytesPerBatch("generation")).toBeUndefined();
  });
});
