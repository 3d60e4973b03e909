// Which instructions may share a stage: independent matmuls, independent rows, and nothing else. The conformance suite
// checks that stages compute the same.

import { describe, expect, test } from "vitest";
import type { ColumnAccess } from "../../src/backends/cpu/ops/op.ts";
import type { Instruction } from "../../src/backends/cpu/ops/table.ts";
import { columnRuns } from "../../src/backends/cpu/threads/column-stages.ts";
import { planStages, stageExecutors } from "../../src/backends/cpu/threads/stages.ts";

const [X, Y, Z, W] = [0, 1024, 2048, 4096];

const norm = (x: number, out: number, cols = 8): Instruction => ({
  op: "rms_norm",
  rows: "tokens",
  x,
  out,
  weight: W,
  cols,
  size: cols,
  eps: 0,
});
const add = (a: number, b: number, out: number, cols = 8): Instruction => ({
  op: "binary",
  rows: "tokens",
  kernel: "add",
  a,
  b,
  out,
  cols,
});
const matmul = (x: number, out: number): Instruction => ({
  op: "matmul_rows",
  rows: "tokens",
  n: 8,
  k: 8,
  out,
  bias: -1,
  kernel: "dot_rows",
  dtype: "f32",
  x,
  w: W,
  rowBytes: 32,
  scratch: 8192,
  scratchBytes: 32,
});
const stagesOf = (...instructions: Instruction[]) =>
  planStages(instructions).map((stage) => stage.instructions);

describe("planning", () => {
  test("rows that need only themselves go through several instructions", () => {
    expect(stagesOf(add(X, Y, X), norm(X, Y))).toEqual([[0, 1]]);
  });

  test("not where a row would be written over another that is still wanted", () => {
    expect(stagesOf(norm(X, Y, 8), norm(Y, Z, 8), norm(Z, X, 8))).toEqual([[0, 1, 2]]);
    expect(stagesOf(norm(X, Y, 8), add(Y, Y, X, 4))).toEqual([[0], [1]]);
  });

  test("not for other rows", () => {
    const outputs = { ...add(X, Y, X), rows: "outputs" } as Instruction;
    expect(stagesOf(norm(X, Y), outputs)).toEqual([[0], [1]]);
    const select: Instruction = { op: "select", x: X, out: Y, cols: 8 };
    expect(stagesOf(add(X, Y, X), select)).toEqual([[0], [1]]);
    expect(stagesOf(select, { ...norm(Y, X), rows: "outputs" } as Instruction)).toEqual([[0], [1]]);
    expect(stagesOf(select, { ...norm(Y, Z), rows: "outputs" } as Instruction)).toEqual([[0, 1]]);
  });

  test("matmuls of the same input are shared out together, dependent ones are not", () => {
    expect(stagesOf(matmul(X, Y), matmul(X, Z))).toEqual([[0, 1]]);
    expect(stagesOf(matmul(X, Y), matmul(Y, Z))).toEqual([[0], [1]]);
    expect(stagesOf(matmul(X, Y), matmul(Z, X))).toEqual([[0], [1]]);
    expect(stagesOf(matmul(X, Y), matmul(X, Y))).toEqual([[0], [1]]);
  });

  test("a matmul needs all rows of what is before it", () => {
    expect(stagesOf(norm(X, Y), matmul(Y, Z), norm(Z, X))).toEqual([[0], [1], [2]]);
  });
});

describe("runs of columns", () => {
  const access = (whole: number[], writes: number[], more = {}): ColumnAccess => ({
    rows: "tokens",
    cols: 64,
    whole,
    writes,
    ...more,
  });
  const gate = access([X], [Y]);
  const up = access([X], [Z], { isSparse: true });
  const product = access([], [Y]);

  test("instructions whose columns need only themselves; idle ones change nothing", () => {
    expect(columnRuns([undefined, gate, up, product, "idle", product, undefined])).toEqual([
      { first: 1, end: 6, cols: 64 },
    ]);
  });

  test("not where a column needs others, has another size or nothing is left out", () => {
    expect(columnRuns([up, access([Z], [Y], { isSparse: true })])).toEqual([]);
    expect(columnRuns([up, access([], [X])])).toEqual([]);
    expect(columnRuns([up, access([], [Y], { cols: 32 })])).toEqual([]);
    expect(columnRuns([up, access([], [Y], { rows: "outputs" })])).toEqual([]);
    expect(columnRuns([gate, product])).toEqual([]);
    expect(columnRuns([up, undefined, product, gate])).toEqual([]);
  });

  test("many tokens go through stages of their own, few through one", () => {
    let tokens = 2;
    const log: string[] = [];
    const executor = (name: string) => ({
      chunks: () => 1,
      run: () => log.push(name),
      columns: {
        count: () => tokens,
        run: (from: number, to: number) => log.push(`${name} ${from}..${to}`),
      },
    });
    const stages = [
      { kind: "by column", instructions: [0, 1], cols: 64 },
      { kind: "as one", instructions: [0], isRest: true },
      { kind: "as one", instructions: [1], isRest: true },
    ] as const;
    const made = stageExecutors(stages, [executor("a"), executor("b")], 2, undefined);
    const runAll = () =>
      made.forEach((stage) => {
        for (let chunk = 0; chunk < stage.chunks(); chunk++) stage.run(chunk);
      });
    runAll();
    expect(log).toEqual(["a 0..32", "b 0..32", "a 32..64", "b 32..64"]);
    log.length = 0;
    tokens = 3;
    runAll();
    expect(log).toEqual(["a", "b"]);
    tokens = 0;
    expect(made.map((stage) => stage.chunks())).toEqual([0, 0, 0]);
  });
});

describe("executing", () => {
  const executor = (log: string[], name: string, chunks: number) => ({
    chunks: () => chunks,
    run: (chunk: number) => log.push(`${name}${chunk}`),
    row: { count: () => 2, run: (row: number) => log.push(`${name} row ${row}`) },
  });

  test("together: all chunks of all, also of those that have none", () => {
    const log: string[] = [];
    const parts = [executor(log, "a", 2), executor(log, "b", 0), executor(log, "c", 1)];
    const stages = [{ kind: "as one", instructions: [0, 1, 2] }] as const;
    const [stage] = stageExecutors(stages, parts, 1, undefined);
    expect(stage!.chunks()).toBe(3);
    for (let chunk = 0; chunk < 3; chunk++) stage!.run(chunk);
    expect(log).toEqual(["a0", "a1", "c0"]);
  });

  test("together: each thread has its share of every part, the largest chunks first", () => {
    const log: string[] = [];
    const weighed = (name: string, weights: number[]) => ({
      ...executor(log, name, weights.length),
      weight: (chunk: number) => weights[chunk]!,
    });
    const parts = [weighed("a", [8, 2, 8, 2]), weighed("b", [4, 1, 4, 1]), weighed("c", [3])];
    const stages = [{ kind: "as one", instructions: [0, 1, 2] }] as const;
    const [stage] = stageExecutors(stages, parts, 2, undefined);
    expect(stage!.chunks()).toBe(10); // two runs of five; one of the second is empty
    for (let chunk = 0; chunk < 5; chunk++) stage!.run(chunk);
    expect(log).toEqual(["a0", "b0", "c0", "a1", "b1"]);
    log.length = 0;
    for (let chunk = 5; chunk < 10; chunk++) stage!.run(chunk);
    expect(log).toEqual(["a2", "b2", "a3", "b3"]);
  });

  test("in turn: a row through all, and the time of each", () => {
    const log: string[] = [];
    let clock = 0;
    const parts = [executor(log, "a", 9), executor(log, "b", 9)];
    const stages = [{ kind: "row by row", instructions: [0, 1] }] as const;
    const [stage] = stageExecutors(stages, parts, 1, { isOn: true, now: () => clock++ });
    expect(stage!.chunks()).toBe(2);
    stage!.run(1);
    expect(log).toEqual(["a row 1", "b row 1"]);
    expect(stage!.spent).toEqual([
      { ms: 1, chunks: 1 },
      { ms: 1, chunks: 1 },
    ]);
  });
});
