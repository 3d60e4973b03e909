// Whether a candidate beats the default: in turns with it, beyond the noise of the moment. Times are made up, with a
// generator of random numbers that always gives the same ones.

import { describe, expect, test } from "vitest";
import { challengeDefault } from "../../src/tune/challenge.ts";
import { confirm } from "../../src/tune/confirm.ts";
import { withoutContradicted } from "../../src/tune/contradict.ts";
import { profileText, type StageTimes } from "../../src/tune/tune-file.ts";
import { sampleFile } from "./sample.ts";

/** From 0 to 1. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const at = (us: number): StageTimes => ({ init: us / 10, compute: (us * 9) / 10 });

/** A machine on which something takes `us`, and others make it up to `share` longer. */
function machine(us: Record<string, number>, share: number, seed: number) {
  const next = random(seed);
  return async (name: string) => at(us[name]! * (1 + share * next()));
}

const rounds = 7;
const seeds = Array.from({ length: 40 }, (_, i) => i + 1);

async function confirmed(us: Record<string, number>, share: number): Promise<number> {
  let wins = 0;
  for (const seed of seeds) {
    const measure = machine(us, share, seed);
    const plan = { rounds, candidates: 1 };
    const result = await confirm({
      ...plan,
      measure: (i) => measure(i < 0 ? "usual" : "other"),
    });
    if (result.verdicts[0]!.isFaster) wins++;
  }
  return wins;
}

describe("a confirmation", () => {
  test("finds what is faster on a quiet machine", async () => {
    expect(await confirmed({ usual: 100, other: 80 }, 0.02)).toBe(seeds.length);
    expect(await confirmed({ usual: 100, other: 90 }, 0.02)).toBe(seeds.length);
  });

  test("never takes what is slower, however noisy the machine is", async () => {
    for (const share of [0.02, 0.3, 1, 3]) {
      expect(await confirmed({ usual: 100, other: 116 }, share)).toBeLessThanOrEqual(1);
    }
  });

  test("rarely takes what is the same", async () => {
    for (const share of [0.02, 0.3, 3]) {
      expect(await confirmed({ usual: 100, other: 100 }, share)).toBeLessThan(seeds.length / 10);
    }
  });

  test("knows the noise: the default's two times", async () => {
    const times = [100, 80, 125, 125, 80, 100, 100, 80, 125];
    const result = await confirm({
      rounds: 3,
      candidates: 1,
      measure: async () => at(times.shift()!),
    });
    expect(result.noise).toBeCloseTo(0.25);
    expect(result.usual).toBeCloseTo(112.5);
    // In every round the faster, by 20 %, which is less than the noise.
    expect(result.verdicts[0]).toMatchObject({ isFaster: false, isSlower: false });
  });
});

describe("a challenge", () => {
  const challenge = {
    usual: "usual",
    rounds,
    canSleep: () => false,
    notifyUs: 0,
  };

  test("a kernel that is 16 % slower and was lucky in the first rounds does not replace the default", async () => {
    const known = new Map([
      ["usual", at(100)],
      ["lucky", at(70)],
      ["third", at(75)],
      ["fourth", at(80)],
      ["slow", at(130)],
    ]);
    const measure = machine({ usual: 100, lucky: 116, third: 116 }, 0.5, 1);
    const { spinning, noise } = await challengeDefault({ ...challenge, known, measure });
    // The fourth had no turn: what is not confirmed is not kept.
    expect([...spinning.keys()].filter((name) => name !== "lucky" && name !== "third")).toEqual([
      "usual",
      "slow",
    ]);
    for (const [name, time] of spinning) {
      if (name !== "usual") expect(time.init + time.compute).toBeGreaterThan(96);
    }
    expect(noise).toBeGreaterThan(0);
  });

  test("what is faster keeps its time, beside the default's of the same moment", async () => {
    const known = new Map([
      ["usual", at(100)],
      ["fast", at(70)],
    ]);
    // The machine is half as fast now.
    const measure = machine({ usual: 200, fast: 140 }, 0.01, 1);
    const { spinning } = await challengeDefault({ ...challenge, known, measure });
    const { init, compute } = spinning.get("fast")!;
    expect(Math.abs(init + compute - 70)).toBeLessThan(1);
  });

  test("the default and what challenges it are tried asleep, too, unless a wake-up takes too long", async () => {
    const known = new Map([
      ["usual", at(100)],
      ["fast", at(70)],
      ["slow", at(130)],
    ]);
    const asked = new Set<string>();
    const tried = async (notifyUs: number) => {
      asked.clear();
      const measure = async (name: string, idle: string) => {
        asked.add(`${name} ${idle}`);
        return at(name === "fast" ? 70 : 100);
      };
      const { sleeping } = await challengeDefault({
        ...challenge,
        known,
        measure,
        canSleep: () => true,
        notifyUs,
      });
      return [...sleeping.keys()];
    };
    expect(await tried(10)).toEqual(["usual", "fast"]);
    expect(asked).toEqual(new Set(["usual spin", "fast spin", "usual sleep", "fast sleep"]));
    expect(await tried(25)).toEqual(["usual"]);
    expect(await tried(50)).toEqual([]);
  });

  test("nothing is measured where nothing seems faster", async () => {
    const known = new Map([
      ["usual", at(100)],
      ["other", at(98)],
    ]);
    const measure = () => Promise.reject(new Error("measured"));
    const { spinning, noise } = await challengeDefault({ ...challenge, known, measure });
    expect(spinning).toBe(known);
    expect(noise).toBeUndefined();
  });
});

test("a choice that is slower than the default now is dropped, with all that run the same kernel", () => {
  const point = {
    ...{ dtype: "q4_0", n: 1024, k: 512, threads: 1, m: 4 },
    profile: profileText(sampleFile.profiles[1]!),
    predicted: 100,
    measured: 120,
    overDefault: 1.16,
  };
  expect(withoutContradicted(sampleFile, [{ ...point, isSlower: false }])).toBeUndefined();
  const twin = { ...sampleFile.profiles[1]!, variant: "16x2.replicated" };
  const file = {
    ...sampleFile,
    profiles: [...sampleFile.profiles, twin],
    groups: sampleFile.groups.map((group) => ({
      ...group,
      lines: group.lines.map(({ m, times }) => ({ m, times: [...times, times[1]] })),
    })),
  };
  const [first, second] = withoutContradicted(file, [{ ...point, isSlower: true }])!.groups;
  // Between 1 and 6 tokens: both lose it; 12 tokens and two threads do not.
  expect(first!.lines.map(({ times }) => times.map((time) => time !== undefined))).toEqual([
    [false, false, false, false],
    [true, false, true, false],
    [true, true, false, true],
  ]);
  expect(second).toEqual(file.groups[1]);
});
