// The remembered measurement: what is written is read again, and whatever is wrong with a file is a sentence, no error.

import { expect, test } from "vitest";
import type { MachineMeasurement } from "../../src/api/rates.ts";
import { loweringText, machineFromText, machineToText } from "../../src/machine/file.ts";

const rates = (one: number) => [
  { threads: 1, perSecond: one },
  { threads: 2, perSecond: 1.5 * one },
  { threads: 16, perSecond: 3 * one },
];
const machine: MachineMeasurement = {
  cpu: 'Fast "CPU"',
  cores: 16,
  memoryBytes: 64e9,
  lowering: loweringText(),
  readBytes: rates(2e10),
  cachedReads: [{ setBytes: 2 ** 20, readBytes: rates(6e10) }],
  f32Ops: rates(5e10),
  int8Ops: rates(2e11),
  measuredAt: "2026-11-15T05:10:37.842Z",
};

test("what is written is read again", () => {
  expect(machineFromText(machineToText(machine), machine)).toEqual(machine);
  const { cachedReads: _, ...rest } = machine;
  const bare = { ...rest, memoryBytes: undefined };
  const expected = { ...bare, cachedReads: [] };
  expect(machineFromText(machineToText(bare), machine)).toEqual(expected);
});

test("AMX tiles are in the file where there are any", () => {
  expect(machineToText(machine)).not.toContain("tile");
  const tiles = { ...machine, int8TileOps: rates(1e12) };
  expect(machineFromText(machineToText(tiles), machine)).toEqual(tiles);
});

test("a quick one stays one", () => {
  expect(machineToText(machine)).not.toContain("quick");
  const quick = { ...machine, quick: true };
  expect(machineFromText(machineToText(quick), machine)).toEqual(quick);
});

test("another machine, or another way to compute on it", () => {
  const refusal = (here: Partial<MachineMeasurement>) =>
    machineFromText(machineToText(machine), { ...machine, ...here });
  expect(refusal({ cpu: "Other" })).toEqual({
    refused: 'it was measured with another processor: Fast "CPU", now Other',
  });
  expect(refusal({ cores: 8 })).toEqual({
    refused: "it was measured with another number of cores: 16, now 8",
  });
  expect(refusal({ lowering: "abacus" })).toMatchObject({
    refused: expect.stringContaining("another instruction set"),
  });
});

const json = JSON.parse(machineToText(machine)) as Record<string, unknown>;
const broken: [string, string, string][] = [
  ["nothing", "", "it is not JSON"],
  ["half a file", machineToText(machine).slice(0, 200), "it is not JSON"],
  ["null", "null", "version undefined"],
  ["an older version", JSON.stringify({ ...json, lantern_machine: 1 }), "version 1, expected 2"],
  ["no rates", JSON.stringify({ ...json, read_bytes_per_second: {} }), "read_bytes_per_second"],
  ["a rate of 0", JSON.stringify({ ...json, f32_ops_per_second: { 1: 0 } }), "f32_ops_per_second"],
  ["a rate of text", JSON.stringify({ ...json, int8_ops_per_second: { 1: "9" } }), "int8_ops"],
  ["half a thread", JSON.stringify({ ...json, int8_ops_per_second: { 1: 1, 1.5: 2 } }), "int8_ops"],
  ["a tile of 0", JSON.stringify({ ...json, int8_tile_ops_per_second: { 1: 0 } }), "int8_tile_ops"],
  ["null tiles", JSON.stringify({ ...json, int8_tile_ops_per_second: null }), "int8_tile_ops"],
  ["no list", JSON.stringify({ ...json, cached_reads: {} }), "cached_reads"],
  ["an empty set", JSON.stringify({ ...json, cached_reads: [null] }), "cached_reads"],
  ["a doubtful one", JSON.stringify({ ...json, quick: "yes" }), "field quick"],
  ["no cpu", JSON.stringify({ ...json, cpu: 7 }), "field cpu"],
  ["no date", JSON.stringify({ ...json, measured_at: "yesterday" }), "measured_at"],
];
test.each(broken)("%s is refused in a sentence", (_, text, reason) => {
  expect(machineFromText(text, machine)).toEqual({ refused: expect.stringContaining(reason) });
});
