// From times to choices: interpolation, scaling, what counts as faster, and what a file of another machine is worth.
// Held against: times made up here.

import { describe, expect, test } from "vitest";
import {
  defaultChoice,
  defaultVariant,
  matmulVariants,
} from "../../src/kernels/matmul-variants.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { analyzeTuneFile } from "../../src/tune/analyze.ts";
import { staleReason, tunedChoice, tunedIdle, tunedThreads } from "../../src/tune/choose.ts";
import { explainedDefault } from "../../src/tune/default-notes.ts";
import { basisFor, estimate } from "../../src/tune/estimate.ts";
import { tunePicture } from "../../src/tune/picture.ts";
import { sleepCosts } from "../../src/tune/sleep-cost.ts";
import { printTuneFile, type TuneFile } from "../../src/tune/tune-file.ts";
import { usableFile, useTuning } from "../../src/tune/use.ts";
import { sampleFile } from "./sample.ts";

const target = { vectorRegisters: 16 };
const problem = { dtype: "q4_0", n: 1024, k: 512 };

describe("an estimate", () => {
  const basis = basisFor(sampleFile, problem, 1)!;

  test("is the measured time where it was measured", () => {
    expect(estimate(basis, 1, 6)).toEqual({ init: 20, compute: 120, stretched: "" });
  });

  test("lies between two measured ones in proportion", () => {
    // From 6 tokens to 12, 9 is half the way.
    expect(estimate(basis, 0, 9)).toEqual({ init: 50, compute: 300, stretched: "" });
  });

  test("goes on as it began beyond the last one, and says so", () => {
    const { init, compute, stretched } = estimate(basis, 0, 18)!;
    expect([init, compute]).toEqual([140, 600]);
    expect(stretched).toBe("beyond 12 tokens");
  });

  test("beyond the last one is never below the roofline", () => {
    // 2 x 1024 x 512 operations per token at 1e10 per second are 105 us.
    const device = { bytesPerSecond: 1e10, opsPerSecond: { f32: 1e9, int8: 1e10 } };
    const [group] = sampleFile.groups as [TuneFile["groups"][0]];
    const flat = {
      ...group,
      lines: group.lines.map(({ m, times }) => ({ m, times: times.map(() => times[0]) })),
    };
    // From 6 tokens to 12 it seemed to take hardly longer.
    flat.lines[2] = {
      m: 12,
      times: flat.lines[1]!.times.map((time) => time && { ...time, compute: 210 }),
    };
    const bounded = basisFor({ ...sampleFile, groups: [flat] }, problem, 1, () => device)!;
    const { compute, stretched } = estimate(bounded, 0, 512)!;
    expect(compute).toBeCloseTo((2 * 1024 * 512 * 512) / 1e4);
    expect(stretched).toBe("beyond 12 tokens, at the limit of this machine");
    // Bandwidth is a limit, too; and a measured time is what it is.
    const slow = { ...device, bytesPerSecond: 1e8 };
    expect(basisFor(sampleFile, problem, 1, () => slow)!.leastUs!(1)).toBeCloseTo(
      (1024 * 512 * 18) / 32 / 100,
    );
    expect(estimate(bounded, 0, 12)).toMatchObject({ compute: 210, stretched: "" });
  });

  test("is none where a profile was given up", () => {
    expect(estimate(basis, 2, 12)).toBeUndefined();
    expect(estimate(basis, 2, 9)).toBeUndefined();
  });

  test("of another shape is in proportion to its size, and of another thread count to the cores", () => {
    const other = basisFor(sampleFile, { dtype: "q4_0", n: 2048, k: 1024 }, 1)!;
    expect(estimate(other, 0, 1)).toEqual({ init: 20, compute: 400, stretched: "from 1024 x 512" });
    // Four threads on two cores are no faster than two.
    const more = basisFor(sampleFile, problem, 4)!;
    expect(estimate(more, 0, 1)).toEqual({ init: 10, compute: 60, stretched: "from 2 threads" });
  });

  test("of another type is none", () => {
    expect(basisFor(sampleFile, { ...problem, dtype: "q8_0" }, 1)).toBeUndefined();
  });
});

describe("a choice", () => {
  const choose = tunedChoice(sampleFile, target);

  test("is the fastest for each number of tokens, the default where nothing is clearly faster", () => {
    const { variants, byTokens } = choose([problem], 12, 1);
    const ids = byTokens.map((index) => variants[index]!.id);
    expect([ids[1], ids[6], ids[7], ids[12]]).toEqual([
      "8x4.compact",
      "16x2.compact",
      "16x2.compact",
      "8x4.compact",
    ]);
  });

  test("is made for all matmuls that share activations: init counts once", () => {
    // 16x2 saves 80 us of compute at six tokens, in both matmuls.
    const { variants, byTokens } = choose([problem, problem], 6, 1);
    expect(variants[byTokens[6]!]!.id).toBe("16x2.compact");
  });

  test("lists every candidate with its estimate or the reason why it is none", () => {
    const { notes } = choose([problem], 12, 1);
    expect(notes[0]).toBe("q4_0 1024 x 512, 1 thread:");
    expect(notes).toContain("  8x4.compact: 1 token 110.0 us, 12 tokens 480.0 us");
    expect(notes).toContain("  4s.compact: 1 token 110.0 us, 12 tokens given up");
    expect(notes.find((note) => note.includes("16x8.compact"))).toMatch(/73 vectors.*16 registers/);
    expect(notes).toContain("  4x2.compact: not measured");
  });

  test("is explained for any numbers of tokens, measured or not, and says which estimate is a guess", () => {
    const explained = [1, 7, 18, 300];
    const { notes } = tunedChoice(sampleFile, target, { explained })([problem], 12, 1);
    // 7 is a sixth of the way from 6 to 12; beyond, times grow as from 6 to 12.
    expect(notes).toContain(
      "  8x4.compact: 1 token 110.0 us, 7 tokens 263.3 us, 18 tokens 740.0 us, 300 tokens 12.96 ms",
    );
    expect(notes).toContain(
      "  4s.compact: 1 token 110.0 us, 7 tokens given up, 18 tokens given up, 300 tokens given up",
    );
    expect(notes).toContain("  4x2.compact: not measured");
    expect(notes).toContain(
      "  chosen: 1 token 8x4.compact, 7 tokens 16x2.compact, 18 tokens 8x4.compact, 300 tokens 8x4.compact",
    );
    expect(notes).toContain("  18 tokens: a guess, beyond 12 tokens");
    expect(notes).toContain("  300 tokens: a guess, beyond 12 tokens");
    expect(notes).toContain("  a batch has at most 12 tokens: 18, 300 are several");
    expect(notes.some((note) => note.startsWith("  7 tokens: a guess"))).toBe(false);
    // Of another shape and thread count, all are estimates, and the first line says from what.
    const other = tunedChoice(sampleFile, target, { explained })([{ ...problem, n: 64 }], 12, 4);
    expect(other.notes[0]).toBe("q4_0 64 x 512, 4 threads (from 1024 x 512, from 2 threads):");
    expect(other.notes).toContain("  18 tokens: a guess, beyond 12 tokens");
  });

  test("without times names the default for the numbers of tokens that were asked about", () => {
    const { notes } = explainedDefault(target, [1, 2, 300])([problem], 12, 1);
    expect(notes.at(-1)).toBe(
      '  chosen: 1 token 8x4.compact, 2 tokens 16x2.4s.compact, 300 tokens 8x4.compact (no estimates: "lantern tune" measures)',
    );
    expect(explainedDefault(target)([problem], 12, 1).notes.join()).not.toContain("chosen");
  });

  test("in doubt is the default: where that changes between two measured numbers of tokens, and before the first", () => {
    const [group] = sampleFile.groups as [TuneFile["groups"][0]];
    const lines = [4, 8, 12].map((m) => ({
      m,
      times: [300, 200, 400].map((compute) => ({ init: 0, compute })),
    }));
    const file = { ...sampleFile, groups: [{ ...group, lines }] };
    const { variants, byTokens } = tunedChoice(file, target)([problem], 13, 1);
    const ids = byTokens.map((index) => variants[index]!.id);
    const isUsual = ids.map((id, m) => id === defaultVariant("q4_0", m, target).id);
    // With 4 tokens the default is another one than with 5 to 12, where 16x2 is a third faster.
    expect(defaultVariant("q4_0", 4, target).id).not.toBe(defaultVariant("q4_0", 5, target).id);
    expect(isUsual.slice(1, 8)).toEqual(new Array(7).fill(true));
    expect(ids.slice(8)).toEqual(new Array(6).fill("16x2.compact"));
  });

  test("of threads looks only at what a matmul can choose", () => {
    // Row by row, two threads seem four times as fast as anything: but no model runs so.
    const rows = { backend: "cpu", level: 2, variant: "rows", idle: "spin" } as const;
    const groups = sampleFile.groups.map(slowerWithTwo).map((group) => ({
      ...group,
      lines: group.lines.map(({ m, times }) => ({
        m,
        times: [...times, { init: 0, compute: group.threads === 2 ? 1 : 1000 }],
      })),
    }));
    const file = { ...sampleFile, profiles: [...sampleFile.profiles, rows], groups };
    expect(tunedThreads(file, [[problem]])?.threads).toBe(1);
  });

  test("stays with the default for a difference that noise explains", () => {
    const close: TuneFile = {
      ...sampleFile,
      groups: sampleFile.groups.map((group) => ({
        ...group,
        lines: [
          {
            m: 1,
            times: [
              { init: 0, compute: 100 },
              { init: 0, compute: 97 },
              { init: 0, compute: 100 },
            ],
          },
        ],
      })),
    };
    const { variants, byTokens } = tunedChoice(close, target)([problem], 1, 1);
    expect(variants[byTokens[1]!]!.id).toBe("8x4.compact");
  });

  test("of threads is the measured count with which a chat is fastest", () => {
    expect(tunedThreads(sampleFile, [[problem]])?.threads).toBe(2);
    const slow = { ...sampleFile, groups: sampleFile.groups.map(slowerWithTwo) };
    expect(tunedThreads(slow, [[problem]])?.threads).toBe(1);
  });

  test("of threads is left alone unless 1 thread and all cores were measured on the same matrices", () => {
    const [one, all] = sampleFile.groups as [TuneFile["groups"][0], TuneFile["groups"][0]];
    const other = { ...problem, n: 2048 };
    const chosen = (groups: TuneFile["groups"], problems: (typeof problem)[]) =>
      useTuning({ ...sampleFile, groups }, problems, target, undefined).threads;
    // "tune -t 1", and "-t 1,2" that was interrupted after the first count: all cores, which is the default.
    expect(chosen([one], [problem])).toBeUndefined();
    expect(chosen([all], [problem])).toBeUndefined();
    // Interrupted within the second count.
    expect(chosen([one, { ...one, n: 2048 }, all], [problem, other])).toBeUndefined();
    // A type that was measured with one thread only.
    const q8 = { ...one, dtype: "q8_0" };
    expect(chosen([one, all, q8], [problem, { ...problem, dtype: "q8_0" }])).toBeUndefined();
    // What was measured on one matrix stands for all, as after a quick tune.
    expect(chosen([one, all], [problem, other])).toBe(2);
  });

  test("of a kernel needs more than the noise of its group", () => {
    const ids = (noise: number) => {
      const groups = sampleFile.groups.map((group) => ({ ...group, noise }));
      const choice = tunedChoice({ ...sampleFile, groups }, target)([problem], 6, 1);
      return choice.variants[choice.byTokens[6]!]!.id;
    };
    // 140 us instead of 220.
    expect(ids(0.02)).toBe("16x2.compact");
    expect(ids(0.4)).toBe("8x4.compact");
  });

  test("is the default where the default has no time", () => {
    const groups = sampleFile.groups.map((group) => ({
      ...group,
      lines: group.lines.map(({ m, times }) => ({ m, times: [undefined, ...times.slice(1)] })),
    }));
    const choice = tunedChoice({ ...sampleFile, groups }, target)([problem], 6, 1);
    expect(choice.variants[choice.byTokens[6]!]!.id).toBe("8x4.compact");
  });

  test("of waiting: what was not measured asleep is a wake-up longer", () => {
    const sleeper = { backend: "cpu", level: 3, variant: "8x4.compact", idle: "sleep" } as const;
    const [group] = sampleFile.groups as [TuneFile["groups"][0]];
    const lines = [1, 32].map((m) => ({
      m,
      times: [{ init: 10, compute: 100 * m }, undefined, undefined, { init: 5, compute: 50 * m }],
    }));
    // 50 us per token are saved in the large matrix; the small one was not measured.
    const small = {
      ...group,
      threads: 2,
      n: 16,
      lines: lines.map(({ m, times }) => ({ m, times: times.slice(0, 1) })),
    };
    const file = {
      ...sampleFile,
      profiles: [...sampleFile.profiles, sleeper],
      groups: [{ ...group, threads: 2, lines }, small],
    };
    const groups = [[problem], [{ ...problem, n: 16 }]];
    const notify = (us: number) => ({ ...file, notify: { us, low: us, high: us } });
    // What sleeping gained in one matrix is not expected of others.
    expect(sleepCosts(file)[0]!.us).toBeLessThan(0);
    expect(tunedIdle(file, groups, 2)).toBe("spin");
    expect(tunedIdle(notify(10), groups, 2)).toBe("sleep");
    expect(tunedIdle(notify(200), groups, 2)).toBe("spin");
  });

  test("of waiting: measured differences, by number of threads, stand for all variants", () => {
    const sleepers = [
      { backend: "cpu", level: 3, variant: "8x4.compact", idle: "sleep" },
      { backend: "cpu", level: 3, variant: "4s.compact", idle: "sleep" },
    ] as const;
    const [one, two] = sampleFile.groups as [TuneFile["groups"][0], TuneFile["groups"][0]];
    const lines = two.lines.map(({ m, times }) => ({
      m,
      // Of the first variant 6 us more, of the third 8; the second was not measured asleep.
      times: [...times, { init: times[0]!.init, compute: times[0]!.compute + 6 }].concat(
        times[2] ? [{ init: times[2].init + 8, compute: times[2].compute }] : [],
      ),
    }));
    const file = {
      ...sampleFile,
      profiles: [...sampleFile.profiles, ...sleepers],
      groups: [one, { ...two, lines }],
    };
    expect(sleepCosts(file)).toEqual([{ threads: 2, us: 6, low: 6, high: 8, pairs: 5 }]);
    expect(analyzeTuneFile(file).sleeping).toEqual(sleepCosts(file));
    expect(tunedIdle(file, [[problem]], 2)).toBe("spin");
  });

  test("of waiting: idle threads sleep only where that was measured to be faster", () => {
    expect(tunedIdle(sampleFile, [[problem]], 2)).toBe("spin");
    const sleeper = { backend: "cpu", level: 3, variant: "8x4.compact", idle: "sleep" } as const;
    const sleepy: TuneFile = {
      ...sampleFile,
      profiles: [...sampleFile.profiles, sleeper],
      groups: sampleFile.groups.map((group) => ({
        ...group,
        lines: group.lines.map(({ m, times }) => ({
          m,
          times: [...times, { init: 1, compute: 20 * m }],
        })),
      })),
    };
    expect(tunedIdle(sleepy, [[problem]], 2)).toBe("sleep");
  });
});

function slowerWithTwo(group: TuneFile["groups"][number]): TuneFile["groups"][number] {
  if (group.threads === 1) return group;
  const lines = group.lines.map(({ m, times }) => ({
    m,
    times: times.map((time) => time && { init: time.init, compute: time.compute * 4 }),
  }));
  return { ...group, lines };
}

describe("a file at load", () => {
  const { engine, cpu, cores, features } = sampleFile;
  const here = { engine, cpu, cores, features };
  const text = printTuneFile(sampleFile);

  test("is used on its own machine", () => {
    expect(usableFile(text, "tune.txt", here)).toEqual(sampleFile);
    const use = useTuning(sampleFile, [problem], target, undefined);
    expect(use.threads).toBe(2);
    expect(use.choose).toBeDefined();
    expect(use.notes[0]).toBe("kernels: tuned 2026-11-15");
  });

  test.each([
    ["cpu", "Another CPU"],
    ["cores", 16],
    ["features", "wasm simd dot4=signed"],
    ["engine", "kernels 12345678"],
  ])("of another %s is not used, and says so", (fact, value) => {
    expect(staleReason(sampleFile, { ...here, [fact]: value })).toMatch(`another ${fact}`);
    const found = usableFile(text, "tune.txt", { ...here, [fact]: value });
    const { choose, notes } = useTuning(found, [problem], target, undefined);
    expect(choose).toBeUndefined();
    expect(notes[0]).toMatch(`defaults; tune.txt is not used: it was made with another ${fact}`);
  });

  test("that is broken is not used, and says so", () => {
    const found = usableFile(text.slice(0, 40), "tune.txt", here);
    expect(found).toMatch(/not used.*tune.txt/);
    // The next tune starts anew: nothing of it is merged.
    for (const broken of [text.slice(0, -20), text.replace("10.0 100.0", "10.0 1.0")]) {
      const refused = usableFile(broken, "tune.txt", here);
      expect(useTuning(refused, [problem], target, undefined).notes[0]).toMatch(
        /^kernels: defaults; it is not used: tune: tune\.txt: end: /,
      );
    }
  });

  test("says nothing of types that were not measured", () => {
    const others = [problem, { ...problem, dtype: "q6_k" }];
    const use = useTuning(sampleFile, others, target, undefined);
    expect(use.threads).toBeUndefined();
    expect(use.notes).toContain("  not tuned, defaults: q6_k");
    const { variants, byTokens } = use.choose!([others[1]!], 4, 2);
    expect(byTokens.map((index) => variants[index]!.id)).toEqual([
      "8x4.compact",
      "8x4.compact",
      "16x2.4s.compact",
      "16x3.4s.compact",
      "8x4.4s.compact",
    ]);
  });

  test("does not override the threads that were asked for", () => {
    expect(useTuning(sampleFile, [problem], target, 1).threads).toBe(1);
  });
});

describe("the analysis", () => {
  test("finds crossovers, the gain over the default and the effect of threads", () => {
    const { groups, threads, gain } = analyzeTuneFile(sampleFile);
    expect(groups[0]!.crossovers.map(({ m }) => m)).toEqual([6, 12]);
    const at6 = groups[0]!.points.find(({ m }) => m === 6)!;
    expect(at6.usual!.us / at6.best.us).toBeCloseTo(220 / 140);
    expect(at6.opsPerSecond).toBeCloseTo((2 * 1024 * 512 * 6) / 140e-6);
    expect(gain.most).toBeCloseTo(220 / 140);
    expect(threads.find(({ m }) => m === 1)!.counts[1]!.gain).toBeCloseTo(110 / 70);
  });

  test("can be drawn", () => {
    const svg = tunePicture({ ...sampleFile, cpu: "<script>&" });
    expect(svg).toMatch(/^<svg /);
    expect(svg).not.toContain("<script");
    expect(svg.match(/<path /g)!.length).toBeGreaterThan(4);
  });
});

test("the default says what it is, what else was possible, and why the rest was refused", () => {
  const problems = [{ dtype: "q4_0", n: 4096, k: 2048 }];
  const { variants, byTokens, notes } = explainedDefault(target)(problems, 32, 2);
  const plain = defaultChoice(target)(problems, 32, 2);
  expect({ variants, byTokens }).toEqual({ variants: plain.variants, byTokens: plain.byTokens });
  expect(notes[0]).toBe("q4_0 4096 x 2048, 2 threads:");
  const usual = notes.find((note) => note.startsWith("  8x4.compact: "));
  expect(usual).toBe("  8x4.compact: the default for 1, 5 to 32 tokens");
  expect(notes.join("\n")).toMatch(
    / {2}refused, keeps \d+ vectors alive, .* 16 registers: 16x8\.compact/,
  );
  expect(notes.join("\n")).toContain(
    "  refused, 4096 rows are enough to split among threads: 4s.compact.serial",
  );
  // Every candidate is in exactly one line.
  for (const { id } of matmulVariants()) {
    const named = notes.filter((note) => note.split(/[\s,:]+/).includes(id));
    expect(named, id).toHaveLength(1);
  }
});

test("a variant whose knobs were found to be faster is chosen and told", () => {
  const target = nativeTargets["x64-avx512"];
  const usual = defaultChoice(target)([{ dtype: "q4_0", n: 64, k: 256 }], 1, 1);
  const profiles = [
    usual.variants[usual.byTokens[1]!]!.id,
    "4s.compact.ahead512.unroll2",
    "4s.compact.ahead77",
  ].map((variant) => ({ backend: "cpu", level: 3, variant, idle: "spin" as const }));
  const times = [100, 80, 10].map((compute) => ({ init: 1, compute }));
  const group = { dtype: "q4_0", n: 64, k: 256, threads: 1, lines: [{ m: 1, times }] };
  const file = { ...sampleFile, features: "x64-avx512 dot4=unsigned", profiles, groups: [group] };
  const choice = tunedChoice(file, target)([{ dtype: "q4_0", n: 64, k: 256 }], 1, 1);
  // A knob that this version does not have is nobody's candidate.
  expect(choice.variants[choice.byTokens[1]!]!.id).toBe("4s.compact.ahead512.unroll2");
  expect(choice.notes.join("\n")).toContain("4s.compact.ahead512.unroll2: 1 token 81.0 us");
});
