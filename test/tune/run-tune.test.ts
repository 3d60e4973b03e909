// Tuning for real, on small matrices: every profile is measured, and every variant gives what the default gives.

import { expect, test } from "vitest";
import { AbortedError } from "../../src/base/errors.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { analyzeTuneFile } from "../../src/tune/analyze.ts";
import { checkPoints } from "../../src/tune/check.ts";
import { tunedChoice } from "../../src/tune/choose.ts";
import { basisFor } from "../../src/tune/estimate.ts";
import { identityOf } from "../../src/tune/identity.ts";
import { runTune, tuneProfiles } from "../../src/tune/run-tune.ts";

const platform = await currentPlatform();
const environment = {
  startThread: () => platform.startThread("compute"),
  yieldThread: () => platform.yieldThread(),
};
const plan = {
  problems: [{ dtype: "q4_0", n: 128, k: 256 }],
  threads: [2],
  tokens: [1, 3, 8],
  rounds: 2,
  full: false,
  streamBytes: 1 << 17,
};

test("measures every profile that accepts the problem, in groups", async () => {
  const profiles = tuneProfiles(true);
  const listed = profiles.length;
  const seen: number[] = [];
  const groups = await runTune({ ...plan, sleeping: true }, profiles, environment, {
    onProgress: (share) => seen.push(share),
  });
  // Sleeping threads are tried with what challenges the default.
  expect(profiles.slice(0, listed).every(({ idle }) => idle === "spin")).toBe(true);
  expect(profiles.slice(listed).every(({ idle }) => idle === "sleep")).toBe(true);
  expect(groups).toHaveLength(1);
  const [{ lines, noise = 0, ...facts }] = groups as [(typeof groups)[0]];
  expect(facts).toEqual({ dtype: "q4_0", n: 128, k: 256, threads: 2 });
  expect(lines.map(({ m }) => m)).toEqual([1, 3, 8]);
  expect(noise).toBeGreaterThanOrEqual(0);
  for (const { times } of lines) {
    const timed = times.filter((time) => time !== undefined);
    expect(timed.length).toBeGreaterThan(0); // hopeless ones are given up, the default never
    for (const { init, compute } of timed) {
      expect(init).toBeGreaterThanOrEqual(0);
      expect(compute).toBeGreaterThan(0);
    }
  }
  expect(seen.at(-1)).toBeLessThanOrEqual(1);
  expect(seen).toEqual(seen.toSorted((a, b) => a - b));
  const file = {
    ...identityOf({ cpu: platform.cpu(), cores: platform.cores }),
    date: "2026-11-15",
    profiles,
    groups,
  };
  const { byTokens } = tunedChoice(file, { vectorRegisters: 16 })(plan.problems, 8, 2);
  expect(byTokens).toHaveLength(9);
});

test("measures experts as the backend computes them, apart from matrices of their shape", async () => {
  const [matrix] = plan.problems as [(typeof plan.problems)[0]];
  const experts = { ...matrix, experts: { count: 4, used: 2 } };
  const profiles = tuneProfiles(false);
  const listed = profiles.length;
  const tokens = [1, 8];
  const [group] = await runTune({ ...plan, problems: [experts], tokens }, profiles, environment);
  expect(group).toMatchObject({ ...experts, threads: 2 });
  expect(profiles.slice(listed).map(({ variant }) => variant)).toEqual(["default"]);
  for (const { times } of group!.lines) {
    expect(times.slice(0, listed).every((time) => time === undefined)).toBe(true);
    expect(times[listed]!.compute).toBeGreaterThan(0);
  }
  const identity = identityOf({ cpu: platform.cpu(), cores: platform.cores });
  const file = { ...identity, date: "2026-11-16", profiles, groups: [group!] };
  expect(basisFor(file, matrix, 2)).toBeUndefined();
  expect(basisFor(file, experts, 2)?.stretched).toBe("");
  // Twice as many of twice as many experts: twice the work.
  const more = { ...matrix, experts: { count: 8, used: 4 } };
  expect(basisFor(file, more, 2)?.computeFactor).toBe(2);
  expect(analyzeTuneFile(file).gain.most).toBe(1);
});

test("stops when it is told to", async () => {
  const controller = new AbortController();
  const running = runTune(plan, tuneProfiles(false), environment, {
    signal: controller.signal,
    onProgress: () => controller.abort(),
  });
  await expect(running).rejects.toThrow(AbortedError);
});

test("measures points of a file again, beside what the file says of them", async () => {
  const profiles = tuneProfiles(false);
  const index = profiles.findIndex(({ variant }) => variant === "8x4.compact");
  const times = (us: number) =>
    profiles.map((_, i) => (i === index ? { init: 1, compute: us } : undefined));
  const lines = [
    { m: 4, times: times(9) },
    { m: 8, times: times(19) },
  ];
  const group = { dtype: "q4_0", n: 128, k: 256, lines };
  const file = {
    ...identityOf({ cpu: platform.cpu(), cores: platform.cores }),
    date: "2026-11-15",
    profiles,
    // The last point would be the fifth and sixth thread: it has a turn of its own.
    groups: [1, 2].map((threads) => ({ ...group, threads })),
  };
  const plan = { points: 4, leastMs: 0, streamBytes: 1 << 17, mostThreads: 4 };
  const points = await checkPoints(file, plan, environment, {});
  expect(points.map(({ threads, m }) => [threads, m])).toEqual([
    [1, 6],
    [1, 8],
    [2, 6],
    [2, 8],
  ]);
  // Between 4 and 8 tokens, in proportion.
  expect(points.map(({ predicted }) => predicted)).toEqual([15, 20, 15, 20]);
  for (const { measured, profile } of points) {
    expect(profile).toBe("cpu opt level 3 8x4.compact");
    expect(measured).toBeGreaterThan(0);
  }
});

test("a test of points stops when it is told to", async () => {
  const profiles = tuneProfiles(false);
  const times = profiles.map(() => ({ init: 1, compute: 9 }));
  const group = { dtype: "q4_0", n: 128, k: 256, threads: 1, lines: [{ m: 8, times }] };
  const here = identityOf({ cpu: platform.cpu(), cores: platform.cores });
  const file = { ...here, date: "2026-11-15", profiles, groups: [group] };
  const controller = new AbortController();
  const running = checkPoints(
    file,
    { points: 1, leastMs: 60_000, streamBytes: 1 << 17, mostThreads: 4 },
    environment,
    { signal: controller.signal, onProgress: () => controller.abort() },
  );
  await expect(running).rejects.toThrow(AbortedError);
});
