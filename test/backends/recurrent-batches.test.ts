// What recurrent ops compute does not depend on how a text is divided into batches, bit for bit: kernels for one token, and those
// for several, add up in the same order.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { nativeKernels } from "../../src/backends/cpu/native/native.ts";
import type { OpKind } from "../../src/graph/graph.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { opCases } from "../conformance/op-cases.ts";
import { type Batches, runCase } from "../conformance/run-case.ts";
import { opModel } from "../conformance/table.ts";

const native = nativeKernels(nodeNative());

/** The rows of each value, batch after batch. */
async function rowsOf(
  op: OpKind,
  batches: Batches,
  isNative: boolean,
): Promise<Map<string, number[]>> {
  const code = isNative ? native : undefined;
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: code });
  const rows = new Map<string, number[]>();
  for (const { name, values } of await runCase(backend, opModel(op, opCases[op]), batches)) {
    if (!name.endsWith("out")) continue;
    const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
    rows.set(name, [...(rows.get(name) ?? []), ...bits]);
  }
  backend.dispose();
  return rows;
}

const isMachineCode = typeof native !== "string";

test.each(
  (["short_conv", "ssm_scan", "delta_net", "wkv"] as const).flatMap((op) => [
    { op, code: "WebAssembly" },
    { op, code: "machine code" },
  ]),
)("$op, $code", async ({ op, code }) => {
  if (code === "machine code" && !isMachineCode) {
    console.log(`skipped: ${native}`);
    return;
  }
  const isNative = code === "machine code";
  const whole = await rowsOf(op, [[11, 0]], isNative);
  expect(whole.size).toBeGreaterThan(0);
  const one: Batches = Array.from({ length: 11 }, () => [1, 0] as const);
  expect(await rowsOf(op, one, isNative)).toEqual(whole);
  expect(
    await rowsOf(
      op,
      [
        [2, 0],
        [6, 0],
        [3, 0],
      ],
      isNative,
    ),
  ).toEqual(whole);
});
