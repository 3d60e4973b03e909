// "One file and one line", from outside: an op, a tensor type, an architecture and a backend are added to a copy of the sources,
// each with the code of its document and nothing else. The copy compiles, and the conformance table, which takes new ones by
// itself, runs them on the reference, on the new backend, in WebAssembly, as machine code and, where there is an adapter, on a GPU.

import { afterAll, expect, test } from "vitest";
import { gpuLacks } from "../support/gpu.ts";
import { type Addition, additionsOf, listed, Overlay } from "./overlay.ts";

const overlay = new Overlay();
afterAll(() => overlay.remove());

/** Adds, and says what that took. */
function add(what: string, additions: readonly Addition[]): string[] {
  const files = overlay.add(additions);
  console.log(`${what}: ${files.length} files: ${files.join(", ")}`);
  return files;
}

const op = additionsOf("docs/inside/add-an-op.md");
const graph: readonly string[] = ["src/graph/graph.ts", "src/graph/builder.ts"];
const isGraph = ({ path }: Addition) => graph.includes(path);

test("an op that is only in the graph is a type error wherever a part of it is missing", () => {
  expect(add("an op in the graph", op.filter(isGraph))).toEqual(graph);
  const said = overlay.compile();
  const lacking = [...said.matchAll(/^(\S+)\(\d+,\d+\): error TS2741: Property 'square' is/gm)];
  expect(new Set(lacking.map(([, path]) => path))).toEqual(
    new Set([
      "src/backends/cpu/ops/table.ts",
      "src/backends/webgpu/ops/table.ts",
      "src/graph/cost.ts",
      "src/graph/reference.ts",
      "test/conformance/op-cases.ts",
    ]),
  );
  expect(said.match(/error TS/g)).toHaveLength(lacking.length);
});

test("an op: four lines of the graph, a file and a line for each backend, a line of tests", () => {
  const rest = op.filter((addition) => !isGraph(addition));
  expect(add("the rest of an op", rest)).toEqual([
    "src/graph/cost.ts",
    "src/graph/reference.ts",
    "src/backends/cpu/ops/square.ts",
    "src/backends/cpu/ops/table.ts",
    "src/backends/webgpu/ops/square.ts",
    "src/backends/webgpu/ops/table.ts",
    "test/conformance/op-cases.ts",
  ]);
});

test("a tensor type: one file and one line", () => {
  const file = additionsOf("docs/inside/add-a-dtype.md")[0]!;
  const line = listed("src/dtypes/table.ts", "./q1_0.ts", "q1_0");
  expect(add("a tensor type", [file, line])).toEqual(["src/dtypes/q1_0.ts", "src/dtypes/table.ts"]);
});

test("a plain architecture: one file and one line", () => {
  const file = additionsOf("docs/inside/add-a-model.md")[0]!;
  const line = listed("src/models/table.ts", "./gptj.ts", "gptj");
  expect(add("an architecture", [file, line])).toEqual([
    "src/models/gptj.ts",
    "src/models/table.ts",
  ]);
});

test("a backend: one file and one entry, and as much for its tests", () => {
  const backend = additionsOf("docs/inside/add-a-backend.md");
  expect(add("a backend", backend)).toEqual([
    "src/backends/counting/counting.ts",
    "src/backends/table.ts",
    "test/conformance/targets.ts",
    "test/conformance/counting.test.ts",
  ]);
});

test("all of it compiles", () => {
  expect(overlay.compile()).toBe("");
});

const onGpu = gpuLacks === undefined ? "and webgpu" : `[not on webgpu: ${gpuLacks}]`;

test(`all of it computes: reference, the new backend, wasm, machine code ${onGpu}`, () => {
  const targets = [
    "reference",
    "counting",
    "wasm",
    "native",
    ...(gpuLacks === undefined ? ["webgpu"] : []),
  ];
  const files = targets.map((name) => `test/conformance/${name}.test.ts`);
  const cases = ["op square", "dtype q1_0", "model gptj"];
  const { passed, failed, messages } = overlay.test(files, cases);
  expect(messages).toEqual([]);
  expect(failed).toBe(0);
  // The reference, the new backend, two ways of WebAssembly, and the GPU; machine code where this processor has some.
  const least = gpuLacks === undefined ? 5 : 4;
  expect(passed).toBeGreaterThanOrEqual(least * cases.length);
  console.log(`${passed} cases passed on ${targets.join(", ")}`);
});
