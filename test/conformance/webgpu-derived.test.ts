// What the GPU derives from the description of a type's blocks: rows of every type, which are its dequantize's values, whether the
// type has an unpacking by hand or not; and a type that has only its file, the example of docs/inside/add-a-dtype.md, with everything.

import { expect, test } from "vitest";
import { deriveUnpack } from "../../src/backends/webgpu/unpack/derive.ts";
import { unpackOf } from "../../src/backends/webgpu/unpack/table.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { loadExample } from "../support/doc-examples.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { type CaseModel, firstDifference } from "./run-case.ts";
import { dtypeCase } from "./table.ts";

const vocab = 19;

/** As if nobody had written an unpacking for it: the table knows no such name. */
const unknown = (dtype: DType): DType => ({ ...dtype, name: `${dtype.name}, derived` });

/** Rows of a table of each type. */
function rowsOf(types: readonly DType[]): CaseModel {
  const g = new GraphBuilder();
  const tables = types.map((dtype): Weight => {
    const cols = dtype.blockElems === 1 ? 44 : 2 * Math.max(4, dtype.blockElems);
    return { name: `${dtype.name} table`, shape: [vocab, cols], dtype };
  });
  for (const table of tables) g.embed(table, table.dtype.name);
  const f32 = dtypeByName("f32")!;
  const end = g.embed({ name: "end", shape: [vocab, 4], dtype: f32 }, "end");
  return {
    graph: g.finish({ logits: g.select(end, "logits") }),
    bytesOf: ({ shape, dtype }) => sampleBlocks(dtype, shape[0]! * shape[1]!),
    vocab,
  };
}

/** In the order of the table; one of each kind unless all are asked for. */
const types = someOf(
  "types",
  allDTypes(),
  ["bf16", "q5_1", "q8_k", "q3_k", "q4_k", "q6_k", "iq2_xxs", "iq1_m", "tq1_0", "mxfp4"].map(
    (name) => dtypeByName(name)!,
  ),
);

describeGpu("webgpu, derived from descriptions", () => {
  test.each(types)("$name", async (dtype) => {
    const derived = unknown(dtype);
    expect(unpackOf(derived)).toBe(deriveUnpack(dtype.block));
    const backend = await gpuBackend();
    const model = rowsOf([derived]);
    const wrong = await firstDifference(backend, model, { tolerance: 2e-7 }, [[5, 0]]);
    backend.dispose();
    expect(wrong).toBeUndefined();
  });

  test("a type that has only its file", async () => {
    const { q1_0 } = (await loadExample("src/dtypes/q1_0.ts")) as { q1_0: DType };
    const { make, tolerance, batches } = dtypeCase(q1_0);
    const backend = await gpuBackend();
    const wrong = await firstDifference(backend, make(), { tolerance }, batches);
    backend.dispose();
    expect(wrong).toBeUndefined();
  });
});
