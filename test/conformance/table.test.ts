// What the conformance table must have: a case for every op and every tensor type, and no target that leaves an op out.
// (That every op of the graph has an entry is a type error in op-cases.ts where it has not.)

import { expect, test } from "vitest";
import { allDTypes } from "../../src/dtypes/table.ts";
import type { OpKind } from "../../src/graph/graph.ts";
import { matmulBenchShape } from "../../src/tools/bench/api.ts";
import { opCases } from "./op-cases.ts";
import { benchCases, cases, skipReason, skips, type TableCase } from "./table.ts";
import type { TargetName } from "./targets.ts";

const ops = Object.keys(opCases) as OpKind[];
const opsIn = ({ make }: TableCase): Set<string> => new Set(make().graph.nodes.map(({ op }) => op));

test.each(ops)("op %s has cases, and they use it", (op) => {
  expect(opCases[op].length).toBeGreaterThan(0);
  const found = cases.find((each) => "op" in each && each.op === op)!;
  expect(opsIn(found)).toContain(op);
  // Each of its cases makes nodes of its own, at each size.
  const names = found.make().graph.nodes.map(({ name }) => name);
  for (const { name } of opCases[op]) {
    expect(names.some((node) => node.startsWith(`${op} ${name} @`))).toBe(true);
  }
});

test("every tensor type has a case, and it multiplies", () => {
  const types = cases.flatMap((each) => ("dtype" in each ? [each] : []));
  expect(types.map(({ dtype }) => dtype)).toEqual([...allDTypes()]);
  for (const each of types) expect(opsIn(each)).toContain("matmul");
});

test("every tensor type is benchmarked: a matmul of the usual size, for 1, 8 and 64 tokens", () => {
  const { n, k } = matmulBenchShape;
  for (const { name } of allDTypes()) {
    const found = benchCases().filter((each) => each.name === `dtype ${name} matmul`);
    expect(found, name).toMatchObject([{ tokens: [1, 8, 64] }]);
    const { graph } = found[0]!.make();
    const matrices = graph.nodes.flatMap((node) => (node.op === "matmul" ? [node.weight] : []));
    expect(matrices).toMatchObject([{ shape: [n, k], dtype: { name } }]);
  }
});

test("every case of an op is benchmarked", () => {
  const names = benchCases().map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  for (const op of ops) {
    for (const { name } of opCases[op]) expect(names).toContain(`${op} ${name}`);
  }
});

test("names are used once, and values of a case are told apart", () => {
  expect(new Set(cases.map(({ name }) => name)).size).toBe(cases.length);
  for (const each of cases) {
    const names = each.make().graph.nodes.flatMap(({ out }) => (out ? [out.name] : []));
    expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  }
});

/** Those that compute everything in the usual run. */
const complete: readonly TargetName[] = [
  "opt level 2",
  "wasm",
  "wasm without relaxed SIMD",
  "arm64-dotprod",
  "x64-avx2",
];

test.each(complete)("%s leaves nothing out", (target) => {
  expect(cases.filter((each) => skipReason(target, each) !== undefined)).toEqual([]);
});

test("who leaves something out says why, and leaves something", () => {
  for (const { reason, cases: left } of skips) {
    if (reason === undefined) continue;
    expect(reason.length).toBeGreaterThan(5);
    expect(cases.some(left)).toBe(true);
    expect(cases.every(left)).toBe(false);
  }
});
