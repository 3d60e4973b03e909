// Checks the weights of routers at load: a NaN or an infinity in one would leave the choice of experts to chance, and show only
// in the texts that use the expert. Routers are small, a thousandth of a model; other weights are not looked into.

import { ModelError } from "../base/errors.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import type { Graph, Weight } from "../graph/graph.ts";
import { type ReadTensor, weightReader } from "../graph/weight-source.ts";

/** Bytes that are read at a time, at least one row. */
const PIECE_BYTES = 1 << 20;

/** `check` throws if the load was aborted. */
export async function checkRouters(
  graph: Graph,
  read: ReadTensor,
  check: () => void | Promise<void>,
): Promise<void> {
  for (const weight of routerWeights(graph)) {
    await check();
    await checkFinite(weight, read);
  }
}

/** The matrix, its bias and the bias for choosing, of each router. */
function routerWeights({ nodes }: Graph): Set<Weight> {
  const found = new Set<Weight | undefined>();
  for (const node of nodes) {
    if (node.op !== "route" || node.routing.gating === "all") continue;
    found.add(node.bias);
    const scores = nodes.find(({ out }) => out === node.logits);
    if (scores?.op !== "matmul") continue;
    found.add(scores.weight).add(scores.bias);
  }
  found.delete(undefined);
  return found as Set<Weight>;
}

async function checkFinite(weight: Weight, read: ReadTensor): Promise<void> {
  const { name, shape, dtype } = weight;
  const cols = shape.at(-1)!;
  const rows = shape.slice(0, -1).reduce((product, dim) => product * dim, 1);
  const rowBytes = bytesFor(dtype, cols);
  const most = Math.max(1, Math.floor(PIECE_BYTES / rowBytes));
  const readWeight = weightReader(weight, read);
  const bytes = new Uint8Array(Math.min(most, rows) * rowBytes);
  const values = new Float32Array(Math.min(most, rows) * cols); // [rows of a piece, cols]
  for (let row = 0; row < rows; row += most) {
    const count = Math.min(most, rows - row);
    await readWeight(bytes.subarray(0, count * rowBytes), row * rowBytes);
    dtype.dequantize(bytes, 0, values, 0, (count * cols) / dtype.blockElems);
    const at = values.subarray(0, count * cols).findIndex((value) => !Number.isFinite(value));
    if (at < 0) continue;
    const place = rows > 1 ? `${row + Math.floor(at / cols)}, ${at % cols}` : at;
    throw new ModelError(
      `model: ${name}[${place}]: got ${values[at]}, expected finite numbers: a router with others chooses experts at random. The file is damaged: download or convert it again`,
    );
  }
}
