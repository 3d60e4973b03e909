// Reads the results of a batch on the host: waits for the copies that its commands made at their end (commands.ts) and keeps their
// contents. A batch gives all logits, or the best of each output and only some whole rows, or the best and the tokens that the GPU
// drew from them.

import type { Batch, RowCounts } from "../../graph/batch.ts";
import { sectionsOf, type Value } from "../../graph/graph.ts";
import { mostRows } from "../../graph/plan.ts";
import { BestRows } from "./best-rows.ts";
import type { Buffers, Layout } from "./buffers.ts";
import type { GpuDevice } from "./device.ts";
import type { Lookahead } from "./lookahead.ts";
import { resultOf, resultsOf } from "./results.ts";
import { MAP_READ } from "./usage.ts";
import { bestWords, FAILED_AT } from "./wgsl/best-logits.ts";

export class ReadOut {
  /** The best logits of the last batch, where not all were read. */
  readonly best: BestRows;
  /** The last batch could not be computed in dispatches of whole layers. */
  failed = false;
  readonly #gpu: GpuDevice;
  readonly #layout: Layout;
  readonly #buffers: Pick<Buffers, "read" | "slots" | "lookahead">;
  /** The result of the last batch, mostly logits: [maxOutputs, vocab]. */
  readonly #result: Float32Array;

  constructor(gpu: GpuDevice, layout: Layout, buffers: Buffers) {
    const { graph, limits } = layout.plan;
    const result = resultOf(graph);
    this.#gpu = gpu;
    this.#layout = layout;
    this.#buffers = buffers;
    this.#result = new Float32Array(result ? mostRows(result.rows, limits) * result.cols : 0);
    this.best = new BestRows(mostRows("logits", limits));
  }

  /** Copies a row of the last batch's result; false: it was not read. */
  row(value: Value, row: number, target: Float32Array): boolean {
    const { cols } = value;
    if (value !== resultOf(this.#layout.plan.graph) || !this.best.hasRow(row)) return false;
    target.set(this.#result.subarray(row * cols, (row + 1) * cols));
    return true;
  }

  /** Waits for a section, and gets the values that it gives and, if it has one, the result. `mayFail`: behind them is a word that says so. */
  async section(
    section: number,
    counts: RowCounts,
    output: Float32Array | undefined,
    mayFail: boolean,
  ): Promise<void> {
    const { graph } = this.#layout.plan;
    const floats = (values: readonly Value[]) =>
      values.reduce((sum, { rows, cols }) => sum + counts[rows]! * cols, 0);
    const all = floats(resultsOf(graph, section));
    const sections = sectionsOf(graph);
    // A later section waits for values that the host does not need.
    if (all === 0 && !mayFail && section < sections.length - 1) return this.#gpu.check();
    const given = floats(sections[section]!.gives);
    await this.floats(all + (mayFail ? 1 : 0), (copied) => {
      if (mayFail) this.failed = hasFailed(copied, all);
      output?.set(copied.subarray(0, given));
      if (all > given) this.#result.set(copied.subarray(given, all));
    });
  }

  /** Waits for the batch, and gets the best logits of its outputs, with `pairs` pairs, and the rows that are wanted whole. */
  async bestAndWhole(batch: Batch, pairs: number, mayFail: boolean): Promise<void> {
    const { outputCount, wholeCount, wholeRows } = batch;
    const { cols } = this.#layout.plan.graph.outputs.logits!;
    const floats = bestWords(outputCount, pairs);
    await this.floats(floats + wholeCount * cols, (copied) => {
      if (mayFail) this.failed = hasFailed(copied, FAILED_AT);
      this.best.take(copied.subarray(0, floats), batch);
      let at = floats;
      for (let row = 0; row < outputCount; row++) {
        if (wholeRows[row] === 0) continue;
        this.#result.set(copied.subarray(at, at + cols), row * cols);
        at += cols;
      }
    });
  }

  /** Waits for a batch submitted ahead, and gets the best logits of its outputs and the tokens that the GPU drew from them. */
  async takeAhead(batch: Batch, lookahead: Lookahead, mayFail: boolean): Promise<void> {
    await this.floats(
      bestWords(batch.outputCount, lookahead.pairs),
      (copied) => {
        if (mayFail) this.failed = hasFailed(copied, FAILED_AT);
        this.best.take(copied, batch);
        lookahead.drew((row) => this.best.drawn(row));
      },
      this.#buffers.lookahead[lookahead.current]!,
    );
  }

  /** Submits `commands` and then a copy of `count` floats of a value, and waits for it. */
  async value(
    commands: GPUCommandEncoder,
    value: Value,
    from: number,
    count: number,
    target: Float32Array,
  ): Promise<void> {
    const { slots, read } = this.#buffers;
    const slot = slots[this.#layout.slotOf[value.id]!]!;
    if (count > 0) commands.copyBufferToBuffer(slot, from * 4, read, 0, count * 4);
    this.#gpu.device.queue.submit([commands.finish()]);
    await this.floats(count, (copied) => target.set(copied));
  }

  /** Waits for the last copy to this buffer, and shows `count` floats of it. */
  async floats(
    count: number,
    see: (copied: Float32Array) => void,
    read: GPUBuffer = this.#buffers.read,
  ): Promise<void> {
    try {
      if (count === 0) {
        await this.#gpu.wait(this.#gpu.device.queue.onSubmittedWorkDone());
      } else {
        await this.#gpu.wait(read.mapAsync(MAP_READ, 0, count * 4));
        see(new Float32Array(read.getMappedRange(0, count * 4)));
        read.unmap();
      }
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
    this.#gpu.check();
  }
}

/** Whether the word at this index says that a layer kernel failed. */
function hasFailed(copied: Float32Array, at: number): boolean {
  return new Uint32Array(copied.buffer, copied.byteOffset + at * 4, 1)[0] !== 0;
}
