// The search for knobs, on times that are made up: it finds what is faster, keeps what is not worth changing, and asks for few
// kernels. And tuning for real with machine code, where it can be run.

import { expect, test } from "vitest";
import { nativeKernels } from "../../src/backends/cpu/native/native.ts";
import type { Schedule } from "../../src/kernels/knobs.ts";
import { type MatmulVariant, variantById } from "../../src/kernels/matmul-variants.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { tunedChoice } from "../../src/tune/choose.ts";
import { identityOf } from "../../src/tune/identity.ts";
import { type KnobSearch, searchKnobs } from "../../src/tune/knobs.ts";
import { runTune, tuneProfiles } from "../../src/tune/run-tune.ts";
import { parseTuneFile, printTuneFile } from "../../src/tune/tune-file.ts";

const target = nativeTargets["x64-avx512"];
const start = variantById("4s.compact", target)!;
const usual: Schedule = { ahead: 2048, unroll: 1, order: "written", pipelined: false };

/** A machine whose times follow from the knobs; counts the variants that it is asked for. */
function madeUp(
  us: (knobs: Schedule, m: number) => number,
  refused: (knobs: Schedule) => boolean = () => false,
): KnobSearch & { asked: string[] } {
  const of = ({ knobs = {} }: MatmulVariant): Schedule => ({ ...usual, ...knobs });
  const asked: string[] = [];
  return {
    asked,
    target,
    rounds: 3,
    accepts: (variant) => !refused(of(variant)),
    open: async (variants) => {
      asked.push(...variants.map(({ id }) => id));
      return {
        measure: async (index, m) => ({ init: 1, compute: us(of(variants[index]!), m) }),
        dispose: () => {},
      };
    },
    onValue: () => {},
  };
}

test("finds the best of each knob, one after the other", async () => {
  const search = madeUp(
    ({ ahead, unroll, pipelined }) =>
      99 * (ahead === 512 ? 0.9 : 1) * (unroll === 2 ? 0.9 : 1) * (pipelined ? 1.2 : 1),
  );
  const found = await searchKnobs(start, 1, [1, 4], search);
  expect(found?.variant.id).toBe("4s.compact.ahead512.unroll2");
  expect(found?.ratios.map((ratio) => ratio?.toFixed(2))).toEqual(["0.81", "0.81"]);
  // Values of four knobs and the final, not their matmul.
  expect(search.asked.length).toBeLessThan(25);
});

test("keeps the usual knobs where others are hardly faster, or lose the final", async () => {
  const hardly = madeUp(({ unroll }) => (unroll === 4 ? 99.2 : 100));
  expect(await searchKnobs(start, 1, [1], hardly)).toBeUndefined();
  let asked = 0;
  const lucky = madeUp(({ unroll }) => (unroll === 4 && asked++ < 4 ? 50 : 100));
  expect(await searchKnobs(start, 1, [1], lucky)).toBeUndefined();
});

test("never takes what has no code, and leaves AMX tiles alone", async () => {
  const search = madeUp(
    ({ unroll }) => 100 / unroll,
    ({ unroll }) => unroll === 4,
  );
  expect((await searchKnobs(start, 1, [1], search))?.variant.id).toBe("4s.compact.unroll2");
  expect(search.asked.some((id) => id.includes("unroll4"))).toBe(false);
  const amx = nativeTargets["x64-amx"];
  const inPanels = variantById("16x16.amx.compact", amx)!;
  const untouched = { ...madeUp(() => 1), target: amx };
  expect(await searchKnobs(inPanels, 32, [32], untouched)).toBeUndefined();
  expect(untouched.asked).toEqual([]);
});

const host = nodeNative();
const native = typeof host === "string" ? host : nativeKernels(host);
const why = typeof native === "string" ? ` [skipped: ${native}]` : "";

test.skipIf(why !== "")(`tunes machine code with its knobs${why}`, async () => {
  if (typeof native === "string") return;
  const platform = await currentPlatform();
  const profiles = tuneProfiles(false, native.target);
  const listed = profiles.length;
  const plan = {
    problems: [{ dtype: "q4_0", n: 128, k: 256 }],
    threads: [1],
    tokens: [1, 8],
    rounds: 2,
    full: false,
    streamBytes: 1 << 17,
    knobsOfTiles: true,
  };
  const seen: number[] = [];
  const groups = await runTune(
    plan,
    profiles,
    {
      startThread: () => platform.startThread("compute"),
      native,
      yieldThread: () => platform.yieldThread(),
    },
    { onProgress: (share) => seen.push(share) },
  );
  expect(seen).toEqual(seen.toSorted((a, b) => a - b));
  expect(seen.at(-1)).toBeLessThanOrEqual(1);
  const here = identityOf({ cpu: platform.cpu(), cores: platform.cores }, native);
  const file = { ...here, date: "2026-11-15", profiles, groups };
  const { lines } = groups[0]!;
  // What was found has a time where it was searched; which it is, is the machine's matter.
  for (const { variant } of profiles.slice(listed)) {
    expect(variantById(variant, native.target)?.knobs).toBeDefined();
    const index = profiles.findIndex((one) => one.variant === variant);
    expect(lines.some(({ times }) => times[index] !== undefined)).toBe(true);
  }
  const text = printTuneFile(file);
  expect(printTuneFile(parseTuneFile(text, "tune.txt"))).toBe(text);
  const { byTokens } = tunedChoice(file, native.target)(plan.problems, 8, 1);
  expect(byTokens).toHaveLength(9);
});
