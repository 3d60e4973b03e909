// The embeddings of a batch whose tables are not on the GPU: the host reads the rows of its tokens, as the file has them, and
// dequantizes them. The floats are the GPU's: both compute DType.dequantize.

import { bytesFor } from "../../../dtypes/dtype.ts";
import type { Batch } from "../../../graph/batch.ts";
import type { Graph, NodeOf } from "../../../graph/graph.ts";
import type { PlanLimits } from "../../../graph/plan.ts";
import { substituted } from "../../../graph/reference.ts";
import type { RunOptions } from "../../backend.ts";
import { crossFloats } from "../../cross-values.ts";
import type { StreamSource } from "./stream-source.ts";

export class HostRows {
  readonly #nodes: readonly NodeOf<"embed">[];
  readonly #source: StreamSource;
  /** Results of all nodes, one after the other: [tokens, cols] each. */
  readonly #rows: Float32Array;

  constructor({ nodes }: Graph, limits: PlanLimits, source: StreamSource) {
    this.#nodes = nodes.filter((node) => node.op === "embed");
    this.#source = source;
    this.#rows = new Float32Array(
      crossFloats(
        this.#nodes.map(({ out }) => out),
        limits,
      ),
    );
  }

  /** The values that the graph reads instead of its embeddings. They are values of the batch: a tap sees them. */
  async of(
    batch: Batch,
    { tap, replace }: Pick<RunOptions, "tap" | "replace">,
  ): Promise<Float32Array> {
    let at = 0;
    for (const node of this.#nodes) {
      const { out } = node;
      const ids = node.by === "token" ? batch.tokens : batch.positions;
      const length = batch.tokenCount * out.cols;
      await Promise.all(
        Array.from({ length: batch.tokenCount }, (_, t) =>
          this.#row(node, substituted(ids[t]!, node.substitutes), at + t * out.cols),
        ),
      );
      const rows = this.#rows.subarray(at, at + length);
      tap?.(out, rows);
      const instead = tap && replace?.(out);
      if (instead) rows.set(instead);
      at += length;
    }
    return this.#rows.subarray(0, at);
  }

  async #row({ table, out }: NodeOf<"embed">, row: number, at: number): Promise<void> {
    const { dtype } = table;
    const bytes = new Uint8Array(bytesFor(dtype, out.cols));
    await this.#source.read(table, bytes, row * bytes.length);
    dtype.dequantize(bytes, 0, this.#rows, at, out.cols / dtype.blockElems);
  }
}
