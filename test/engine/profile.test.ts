// A profile through the public API and real threads: every millisecond of a generation is in it once. The engine's own
// timings, which another clock reading makes, are the other side of the account.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Model, open, type ProfileReport, UsageError } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile({ weightType: "q8_0", feedForward: 2048 });
});
afterAll(() => file.remove());

async function generate(model: Model): Promise<{ promptMs: number; generatedMs: number }> {
  const prompt = Array.from({ length: 40 }, (_, i) => 10 + i);
  const options = { temperature: 0, maxTokens: 100, ignoreEos: true };
  return (await model.generate(prompt, options).result).timings;
}

function phaseOf(report: ProfileReport, phase: "prompt" | "generation") {
  return report.phases.find((one) => one.phase === phase)!;
}

test.each([1, 2])("%i threads: the times add up to what the run took", async (threads) => {
  await using model = await open(file.path, { profile: true, speculate: false, threads });
  await generate(model);
  const report = await model.profile();
  expect(report.threads).toBe(threads);
  for (const phase of report.phases) {
    const { ms, batchMs, computeMs, waitingMs, betweenMs, ops, layers } = phase;
    expect(computeMs + waitingMs + betweenMs).toBeCloseTo(ms, 6);
    expect(computeMs + waitingMs).toBeCloseTo(batchMs, 6);
    expect(phase.threads).toHaveLength(threads);
    for (const { busyMs, waitingMs: waited } of phase.threads) {
      expect(busyMs + waited).toBeCloseTo(batchMs, 6);
      expect(waited).toBeGreaterThan(-0.01 * batchMs); // nobody is busy for longer than the batches took
    }
    for (const value of Object.values(phase.between)) expect(value).toBeGreaterThanOrEqual(0);
    for (const rows of [ops, layers]) {
      expect(rows.reduce((sum, row) => sum + row.ms, 0)).toBeCloseTo(computeMs, 6);
    }
    expect(layers.map(({ name }) => name)).toEqual(["outside layers", "blk.0", "blk.1"]);
  }
  const prompt = phaseOf(report, "prompt");
  const generation = phaseOf(report, "generation");
  expect(prompt.tokens).toBe(40);
  expect([1, 2]).toContain(prompt.batches); // one where a batch has 128 tokens, for AMX tiles
  expect(generation).toMatchObject({ tokens: 99, batches: 99 }); // the first came from the prompt's logits
  expect(report.load.ms).toBeGreaterThan(0);
  expect(report.bottleneck).toMatch(/^\d+% of (generation|the prompt) is /);
});

test("the engine's own timings say the same", async () => {
  await using model = await open(file.path, { profile: true, speculate: false, threads: 2 });
  const differences: number[] = [];
  // A busy machine may stop the thread between two readings of the clock; what is forgotten is forgotten every time.
  for (let attempt = 0; attempt < 5; attempt++) {
    const { promptMs, generatedMs } = await generate(model);
    const report = await model.profile({ reset: true });
    const recordedMs = report.phases.reduce(
      (sum, { ms, between }) => sum + ms - between.requestMs,
      0,
    );
    differences.push(Math.abs(recordedMs / (promptMs + generatedMs) - 1));
    if (differences.at(-1)! < 0.05) break;
  }
  expect(Math.min(...differences)).toBeLessThan(0.05);
});

test("a trace has the events of every thread; reset begins anew", async () => {
  await using model = await open(file.path, { profile: true, speculate: false, threads: 2 });
  await generate(model);
  const { trace } = await model.profile({ trace: true, reset: true });
  const spans = trace!.traceEvents.filter(({ ph }) => ph === "X");
  const named = trace!.traceEvents.filter(({ name }) => name === "thread_name");
  expect(new Set(named.map(({ tid }) => tid))).toEqual(new Set([1, 2, 3]));
  // Of a model this small one thread may do everything before the other has heard of it.
  const tids = new Set(spans.map(({ tid }) => tid));
  expect(tids).toContain(1);
  expect(tids.size).toBeGreaterThan(1);
  expect([...tids].every((tid) => tid >= 1 && tid <= 3)).toBe(true);
  for (const { ts, dur } of spans) {
    expect(ts).toBeGreaterThanOrEqual(0);
    expect(dur).toBeGreaterThanOrEqual(0);
  }
  const names = new Set(spans.map(({ name }) => name));
  for (const name of ["sampling", "batch", "blk.1.ffn_down", "logits"]) {
    expect(names).toContain(name);
  }
  expect(await model.profile()).toMatchObject({ phases: [], bottleneck: "nothing was run yet" });
  await generate(model);
  expect(phaseOf(await model.profile(), "generation")).toMatchObject({ batches: 99 });
});

test("every computation of a thread lies in one of the engine's batches", async () => {
  await using model = await open(file.path, { profile: true, speculate: false, threads: 2 });
  await generate(model);
  const { trace } = await model.profile({ trace: true });
  const spans = trace!.traceEvents.filter(({ ph }) => ph === "X");
  const batches = spans.filter(({ tid, name }) => tid === 1 && name === "batch");
  // A thread reads its clock after it has left an instruction; on a busy machine that may be much later.
  const starts = spans.filter(({ tid }) => tid !== 1).map(({ ts }) => ts!);
  const slack = 1; // the clocks of two threads agree within a microsecond
  const outside = starts.filter(
    (ts) =>
      !batches.some((batch) => ts >= batch.ts! - slack && ts <= batch.ts! + batch.dur! + slack),
  );
  expect(outside).toEqual([]);
});

test("the reference, opt level 1 on one thread, records its batches as a whole", async () => {
  await using model = await open(file.path, {
    profile: true,
    speculate: false,
    level: 1,
    threads: 1,
  });
  await model.generate([10, 11], { temperature: 0, maxTokens: 3, ignoreEos: true }).result;
  const { phases, bottleneck } = await model.profile();
  for (const { ms, batchMs, betweenMs, ops } of phases) {
    expect(ops).toEqual([]);
    expect(batchMs + betweenMs).toBeCloseTo(ms, 6);
  }
  expect(bottleneck).toContain("computing batches");
});

test("a model that was opened without it has no profile, and says how to get one", async () => {
  await using model = await open(file.path);
  await expect(model.profile()).rejects.toThrow(UsageError);
  await expect(model.profile()).rejects.toThrow("Open it with `profile: true`");
});
