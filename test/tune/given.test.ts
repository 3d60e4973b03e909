// A tune file that the user names: it replaces the stored one, and is refused where it does not apply.

import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SourceError, UsageError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { open } from "../../src/index.ts";
import { withModelFile } from "../../src/load/model-file.ts";
import { nativeHere } from "../../src/machine/native.ts";
import { measureNotify } from "../../src/machine/notify.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { checkGivenTune, readGivenTune } from "../../src/tune/given.ts";
import { gpuTuneIdentity } from "../../src/tune/gpu-profiles.ts";
import { identityOf } from "../../src/tune/identity.ts";
import { measuredSides, measuredTuning } from "../../src/tune/measured-choices.ts";
import { rememberGpuTuning } from "../../src/tune/store.ts";
import { printTuneFile, type TuneFile, type TuneIdentity } from "../../src/tune/tune-file.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { gpuFacts as facts, sampleFile } from "./sample.ts";

const platform = await currentPlatform();
const folder = mkdtempSync(join(tmpdir(), "lantern-given-tune-"));
const path = join(folder, "mine.txt");
let model: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  process.env.LANTERN_CACHE = folder; // whatever this machine has
  writeFileSync(path, printTuneFile(sampleFile));
  model = await tinyFile();
});
afterAll(async () => {
  await model.remove();
  rmSync(folder, { recursive: true, force: true });
});

const read = (name: string) => readGivenTune(platform, { kind: "path", path: join(folder, name) });

describe("a tune file by name", () => {
  test("is read, and used on its own machine", async () => {
    const given = await read("mine.txt");
    expect(given.file).toEqual(sampleFile);
    expect(checkGivenTune(given, sampleFile)).toBe(given.file);
  });

  test.each([
    ["cpu", "Another CPU", 'got "Example CPU @ 2 GHz", expected "Another CPU"'],
    ["cores", 16, 'got "2", expected "16"'],
    ["engine", "kernels 12345678", 'got "kernels 00000000", expected "kernels 12345678"'],
  ])(
    "of another %s is refused: what, which, got, expected, next step",
    async (fact, value, facts) => {
      const here = { ...sampleFile, [fact]: value };
      const given = await read("mine.txt");
      expect(() => checkGivenTune(given, here)).toThrow(UsageError);
      expect(() => checkGivenTune(given, here)).toThrow(facts);
      expect(() => checkGivenTune(given, here)).toThrow(
        /tuneFile: .*mine\.txt .*lantern tune --file/,
      );
    },
  );

  test("that is a folder, too large, or no tune file is refused", async () => {
    await expect(read(".")).rejects.toThrow(SourceError);
    const large = join(folder, "large.txt");
    writeFileSync(large, "");
    truncateSync(large, 1 << 30);
    await expect(read("large.txt")).rejects.toThrow(/1073741824 bytes, expected .*lantern tune/);
    writeFileSync(join(folder, "other.txt"), "hello\n");
    await expect(read("other.txt")).rejects.toThrow(/line 1/);
    await expect(read("missing.txt")).rejects.toThrow(/tuneFile: cannot open .*missing\.txt/);
  });
});

describe("when a model is loaded", () => {
  test("it is used in place of a stored one", async () => {
    const native = await nativeHere(platform);
    const here = identityOf({ cpu: platform.cpu(), cores: platform.cores }, native);
    const given = { name: "here.txt", file: { ...sampleFile, ...here } };
    const weight = { name: "output.weight", shape: [1024, 512], dtype: dtypeByName("q4_0")! };
    const tensors = new Map([[weight.name, weight]]) as unknown as ModelFile["tensors"];
    const use = await measuredTuning(platform, { tensors }, 1, native, given);
    expect(use.notes).toContain("kernels: tuned 2026-11-15");
    const without = await measuredTuning(platform, { tensors }, 1, native);
    expect(without.notes[0]).toContain("nothing was tuned here");
  });

  test("it decides beside the stored one of the other device which side computes what", async () => {
    const native = await nativeHere(platform);
    const types = await withModelFile(model.path, ({ tensors }) => [
      ...new Set([...tensors.values()].map(({ dtype }) => dtype.name)),
    ]);
    const timed = (identity: TuneIdentity, backend: string, us: number): TuneFile => ({
      ...identity,
      date: "2026-11-16T00:00:00.000Z",
      profiles: [{ backend, level: 3, variant: "default", idle: "spin" }],
      groups: types.map((dtype) => ({
        ...{ dtype, n: 64, k: 64, threads: 1 },
        lines: [{ m: 1, times: [{ init: 0, compute: us }] }],
        transfers: [{ m: 1, there: 1, prepared: undefined, back: 1 }],
      })),
    });
    const machine = { cpu: platform.cpu(), cores: platform.cores };
    const gpu = timed(gpuTuneIdentity(facts), "webgpu", 10);
    const cpu = timed(identityOf(machine, native), "cpu", 1000);
    await rememberGpuTuning(platform, gpu, facts);
    const sides = (given: TuneFile | undefined) =>
      withModelFile(model.path, (file) => {
        const on = { threads: 1, native, given: given && { name: "given.txt", file: given } };
        return measuredSides(platform, file, dtypeByName("f32")!, on, facts, 1);
      });
    expect(await sides(undefined)).toContain("nothing was measured here");
    expect(await sides(cpu)).toMatchObject({ choice: { prompt: 1, generation: 1 } });
    expect(await sides(timed(cpu, "cpu", 0.1))).toMatchObject({
      choice: { prompt: 0, generation: 0 },
    });
    await expect(sides({ ...cpu, cores: 999 })).rejects.toThrow(/given\.txt was made with another/);
  });

  test("open() refuses one of another machine, and one beside tuned: false", async () => {
    await expect(open(model.path, { tuneFile: path })).rejects.toThrow(
      /mine\.txt was made with another cpu: got "Example CPU @ 2 GHz", expected/,
    );
    await expect(open(model.path, { tuneFile: path, tuned: false })).rejects.toThrow(/Drop one/);
  });
});

test("the cost of a wake-up is measured, and how much it varies", async () => {
  const cost = (await measureNotify(() => platform.startThread("measure")))!;
  expect(cost.low).toBeGreaterThan(0);
  expect(cost.us).toBeGreaterThanOrEqual(cost.low);
  expect(cost.high).toBeGreaterThanOrEqual(cost.us);
});
