// Times that the machine cannot reach are refused by name, when they are measured and when a file is read; all others stay.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { MachineMeasurement } from "../../src/api/rates.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { loweringText, machineToText } from "../../src/machine/file.ts";
import { expectedTarget, nativeHere } from "../../src/machine/native.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { identityOf } from "../../src/tune/identity.ts";
import { measuredTuning } from "../../src/tune/measured-choices.ts";
import { fileWithinRoofline, peakOf, withinRoofline } from "../../src/tune/roofline.ts";
import { rememberedTuning, rememberTuning } from "../../src/tune/store.ts";
import type { StageTimes, TuneFile } from "../../src/tune/tune-file.ts";
import { sampleFile } from "./sample.ts";

const rate = (perSecond: number) => [{ threads: 1, perSecond }];
/** 1024 x 512 in Q4_0 are 294,912 bytes: 29.5 us from memory, 14.7 from the cache; 1.05e6 operations a token take 10.5 us. */
const machine: MachineMeasurement = {
  ...{ cpu: "Example CPU", cores: 1, memoryBytes: undefined, lowering: "none" },
  ...{ readBytes: rate(1e10), cachedReads: [{ setBytes: 1 << 22, readBytes: rate(2e10) }] },
  ...{ f32Ops: rate(1e10), int8Ops: rate(1e11), measuredAt: "2026-11-19T05:00:00.000Z" },
};
const profiles = sampleFile.profiles.slice(0, 1);
const groupOf = (...times: (StageTimes & { m: number })[]): TuneFile["groups"][0] => ({
  ...{ dtype: "q4_0", n: 1024, k: 512, threads: 1 },
  lines: times.map(({ m, init, compute }) => ({ m, times: [{ init, compute }] })),
});

describe("a time above the roofline", () => {
  const peak = peakOf(machine);

  test("is refused by its shape, threads, tokens and profile, with what is possible", () => {
    // Half again as fast as the measured rates: 9.8 us of bandwidth, 7.0 us of arithmetic a token.
    const group = groupOf(
      { m: 1, init: 1, compute: 8.5 },
      { m: 2, init: 10, compute: 10 },
      { m: 8, init: 0, compute: 55 },
    );
    const checked = withinRoofline(group, profiles, peak);
    expect(checked.refused).toEqual([
      "q4_0 1024 x 512, 1 thread, 1 token, cpu opt level 3 8x4.compact: got 9.5 us, expected at least 9.8, which this machine's peak rates allow",
      "q4_0 1024 x 512, 1 thread, 8 tokens, cpu opt level 3 8x4.compact: got 55.0 us, expected at least 55.9, which this machine's peak rates allow",
    ]);
    expect(checked.group.lines.map(({ times }) => times)).toEqual([
      [undefined],
      [{ init: 10, compute: 10 }],
      [undefined],
    ]);
  });

  test("is one that a quick measurement of the machine allows for, if it is not far above", () => {
    const group = groupOf({ m: 1, init: 1, compute: 7 });
    expect(withinRoofline(group, profiles, peak).refused).toHaveLength(1);
    const quick = withinRoofline(group, profiles, peakOf({ ...machine, quick: true }));
    expect(quick).toEqual({ group, refused: [] });
  });

  test("leaves a file alone that has none, and types that are not known", () => {
    expect(fileWithinRoofline(sampleFile, peak)).toBe(sampleFile);
    const other = { ...groupOf({ m: 1, init: 0, compute: 0 }), dtype: "q9_x" };
    expect(withinRoofline(other, profiles, peak)).toEqual({ group: other, refused: [] });
  });
});

describe("a stored file", () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-roofline-"));
  beforeAll(() => {
    vi.stubEnv("LANTERN_CACHE", folder);
    vi.stubEnv("LANTERN_NO_LIMIT", ""); // tests do not look at the machine, usually
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  test("is read without them, and --explain names them; so is a file that the user names", async () => {
    const platform = await currentPlatform();
    const native = await nativeHere(platform);
    const here = { cpu: platform.cpu(), cores: platform.cores };
    const lowering = loweringText(await expectedTarget(platform));
    const onAll = <T>(rates: readonly T[]) =>
      [...new Set([1, here.cores])].map((threads) => ({ ...rates[0]!, threads }));
    const text = machineToText({
      ...{ ...machine, ...here, lowering },
      ...{ readBytes: onAll(machine.readBytes), f32Ops: onAll(machine.f32Ops) },
      ...{ int8Ops: onAll(machine.int8Ops) },
      cachedReads: machine.cachedReads!.map((set) => ({ ...set, readBytes: onAll(set.readBytes) })),
    });
    await platform.smallFiles().write("machine.json", text);
    const group = groupOf({ m: 1, init: 0, compute: 5 }, { m: 2, init: 10, compute: 300 });
    const file = { ...sampleFile, ...identityOf(here, native), profiles, groups: [group] };
    await rememberTuning(platform, file, native);
    const found = (await rememberedTuning(platform, native)) as TuneFile;
    expect(found.groups[0]!.lines.map(({ times }) => times[0]?.compute)).toEqual([undefined, 300]);
    const weight = { name: "output.weight", shape: [1024, 512], dtype: dtypeByName("q4_0")! };
    const tensors = new Map([[weight.name, weight]]) as unknown as ModelFile["tensors"];
    const refused = /^ {2}not used: q4_0 1024 x 512, 1 thread, 1 token, cpu .*: got 5\.0 us, /;
    for (const given of [undefined, { name: "mine.txt", file }]) {
      const { notes } = await measuredTuning(platform, { tensors }, 1, native, given);
      expect(notes).toContainEqual(expect.stringMatching(refused));
    }
    // What it was stored with again is not in it any more.
    await rememberTuning(platform, found, native);
    const again = (await rememberedTuning(platform, native)) as TuneFile;
    expect(again.refused).toBeUndefined();
    expect(again.groups[0]!.lines[0]!.times).toEqual([undefined]);
  });
});
