// The fuzz runner itself: that it finds what it is made to find, goes on afterwards, and does the same for the same seed.

import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { LanternError, UsageError } from "../../src/base/errors.ts";
import { seededRandom } from "../formats/mutate.ts";
import { applyJsonEdits, randomJsonEdit } from "./json-edits.ts";
import { minimise } from "./minimise.ts";
import { fuzz, tryInput } from "./runner.ts";
import { type Json, refusal, shapeOf } from "./target.ts";
import { fuzzTargets } from "./targets/table.ts";

const broken = {
  name: "broken",
  module: fileURLToPath(new URL("broken-target.ts", import.meta.url)),
};

describe("fuzz runner", () => {
  test("finds what throws, once, made small, and goes on; the same for the same seed", async () => {
    const order = { ...broken, seed: 5, seconds: 60, runs: 60 };
    const [first, second] = await Promise.all([fuzz(order), fuzz(order)]);
    expect(first.executions).toBe(60);
    expect(first.outcomes.toSorted()).toEqual(["waits", "works"]);
    expect(first.findings).toHaveLength(1);
    expect(first.findings[0]).toMatchObject({ kind: "throw", target: "broken" });
    expect(first.findings[0]!.input).toEqual({ does: "throws", also: ["throws"] });
    expect(second.kept).toEqual(first.kept);
    expect(second.findings.map(({ seed }) => seed)).toEqual(first.findings.map(({ seed }) => seed));
  });

  test.each([
    ["hangs", { kind: "hang" }],
    ["eats", { kind: "memory" }],
    ["dies", { kind: "death", shape: "death SIGKILL" }],
  ])("an input that %s is a finding", async (does, expected) => {
    const limits = { limitMs: does === "hangs" ? 1000 : 60_000, heapMegabytes: 64 };
    const found = await tryInput({ ...broken, ...limits }, 1, { does, also: [] });
    expect(found).toMatchObject(expected);
    expect(found!.input).toEqual({ does, also: [] });
  });

  test("an input that works is none", async () => {
    expect(await tryInput(broken, 1, { does: "works", also: [] })).toBeUndefined();
  });

  test("minimise() leaves what the finding needs", async () => {
    const input: Json = { list: [1, 2, { deep: "xxneedlexx" }, 4], other: { a: 1 } };
    const small = await minimise(input, (value) => JSON.stringify(value).includes("needle"), {
      tries: 10_000,
      seconds: 60,
    });
    expect(small).toEqual({ list: [{ deep: "needle" }] });
  });

  test("edits of JSON can be applied to what earlier ones damaged", () => {
    const document: Json = { a: [1, { b: "text" }], c: null };
    for (let seed = 0; seed < 500; seed++) {
      const random = seededRandom(seed);
      const edits = Array.from({ length: 5 }, () => randomJsonEdit(document, random));
      expect(() => JSON.stringify(applyJsonEdits(document, edits))).not.toThrow();
    }
    expect(document).toEqual({ a: [1, { b: "text" }], c: null });
  });

  test("a refusal is a LanternError; its shape has no numbers or names of the input", () => {
    expect(refusal(new UsageError('threads: got "7", expected 1 to 256'))).toBe(
      'usage: threads: got "…", expected N to N',
    );
    expect(shapeOf("[1, 2, 3]")).toBe("[N…]");
    expect(() => refusal(new TypeError("x"))).toThrow(TypeError);
    expect(LanternError.prototype).toBeInstanceOf(Error);
  });
});

describe("fuzz targets", () => {
  test("every file of the folder is in the table", () => {
    const files = readdirSync(new URL("targets/", import.meta.url))
      .map((file) => file.replace(/\.ts$/, ""))
      .filter((name) => name !== "table");
    expect([...fuzzTargets.keys()].toSorted()).toEqual(files.toSorted());
  });
});
