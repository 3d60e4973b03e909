// The command buffers of a batch, or of each section of one where the graph is split: every kernel of the program for its size,
// and at the end the copy of the logits, or of the values that another part of the graph reads. A WebGPU command buffer can be submitted
// only once, but those of all batches of a size are alike: while the GPU computes a token, the commands of the next one are
// encoded.
//
// They are submitted in pieces, the first ones small, so that the GPU begins while the host submits the rest.

import type { RowCounts } from "../../graph/batch.ts";
import type { Rows, Value } from "../../graph/graph.ts";
import type { BatchTimes } from "./batch-times.ts";
import { type Buffers, FAILED_BYTES, type Layout } from "./buffers.ts";
import { type Dispatch, encodePart, gridIn, type Program, runsIn, type Step } from "./program.ts";
import { resultsOf } from "./results.ts";
import { bestWords } from "./wgsl/best-logits.ts";
import type { Grid } from "./wgsl/kernel.ts";

/**
 * The results that a batch copies to the host: all logits, or the best with the tokens that were drawn, or these to a buffer of batches in
 * lookahead.
 */
export interface Copies {
  readonly what: "all" | "best" | GPUBuffer;
  /** Of the best: the number of pairs of adjusted tokens that there is room for. */
  readonly pairs: number;
  /** Of the best: there is one of each row, and no pair. */
  readonly isOne: boolean;
}

export const copiesAll: Copies = { what: "all", pairs: 0, isOne: false };

interface Encoded {
  readonly counts: RowCounts;
  readonly copies: Copies;
  readonly pieces: GPUCommandBuffer[];
}

/** A kernel with its grid for batches of one size. */
interface SizedDispatch extends Pick<Dispatch, "pipeline" | "bindings"> {
  readonly grid: Grid;
}

export class BatchCommands {
  readonly #device: GPUDevice;
  readonly #layout: Layout;
  readonly #buffers: Buffers;
  /** The ends of pieces, as fractions of the program. */
  readonly #cuts: readonly number[];
  readonly #next = new Map<Step, Encoded>();
  /** The parts of the batch that was encoded last, with only the dispatches that it has, and their grids. */
  #last: { counts: RowCounts; program: Program; parts: readonly SizedDispatch[][] } | undefined;

  constructor(device: GPUDevice, layout: Layout, buffers: Buffers, cuts: readonly number[]) {
    this.#device = device;
    this.#layout = layout;
    this.#buffers = buffers;
    this.#cuts = cuts;
  }

  /**
   * The command buffers of a batch, to be submitted in order, once. Where they were not encoded ahead, each is encoded when it is asked for, so that the
   * GPU has the first while the host encodes the next.
   */
  take(
    program: Program,
    counts: RowCounts,
    step: Step,
    copies: Copies,
  ): Iterable<GPUCommandBuffer> {
    const next = this.#next.get(step);
    this.#next.delete(step);
    const { what, pairs, isOne } = copies;
    const last = next?.copies;
    const isSame = last?.what === what && last.pairs === pairs && last.isOne === isOne;
    const fits = isSame && sameCounts(next!.counts, counts);
    return fits ? next!.pieces : this.#encode(program, counts, step, copies);
  }

  /** Encodes those of a batch that will probably come next. */
  prepare(program: Program, counts: RowCounts, step: Step, copies: Copies): void {
    const pieces = [...this.#encode(program, counts, step, copies)];
    this.#next.set(step, { counts, copies, pieces });
  }

  /** Whole rows of logits of a batch whose best logits were copied, behind those and `pairs` pairs. */
  wholeRows(
    counts: RowCounts,
    wholeRows: Uint8Array,
    logits: Value,
    pairs: number,
  ): GPUCommandBuffer {
    const commands = this.#device.createCommandEncoder();
    const { slots, read } = this.#buffers;
    const slot = slots[this.#layout.slotOf[logits.id]!]!;
    const bytes = logits.cols * 4;
    let at = bestWords(counts.logits, pairs) * 4;
    for (let row = 0; row < counts.logits; row++) {
      if (wholeRows[row] === 0) continue;
      commands.copyBufferToBuffer(slot, row * bytes, read, at, bytes);
      at += bytes;
    }
    return commands.finish();
  }

  /** A section in one piece, with timestamp queries, for a profile. */
  recorded(times: BatchTimes, counts: RowCounts, section: number): GPUCommandBuffer {
    const commands = this.#device.createCommandEncoder();
    times.encode(commands, counts, section);
    this.#copyResults(commands, counts, resultsOf(this.#layout.plan.graph, section));
    return commands.finish();
  }

  /** Only the copy of values. */
  results(counts: RowCounts, values: readonly Value[]): GPUCommandBuffer {
    const commands = this.#device.createCommandEncoder();
    this.#copyResults(commands, counts, values);
    return commands.finish();
  }

  /** The dispatches of a batch of this size: most batches have the size of the one before. */
  #partsOf(program: Program, counts: RowCounts): readonly (readonly SizedDispatch[])[] {
    const last = this.#last;
    if (last?.program === program && sameCounts(last.counts, counts)) return last.parts;
    const parts = program.parts.map(({ dispatches }) =>
      dispatches
        .filter(({ kernel }) => runsIn(kernel, counts))
        .map(({ kernel, pipeline, bindings }) => {
          return { pipeline, bindings, grid: gridIn(kernel, counts) };
        }),
    );
    this.#last = { counts, program, parts };
    return parts;
  }

  *#encode(
    program: Program,
    counts: RowCounts,
    step: Step,
    { what, pairs, isOne }: Copies,
  ): Generator<GPUCommandBuffer> {
    const parts = this.#partsOf(program, counts);
    const { to: last, results } = step;
    let first = step.from;
    const looksAhead = typeof what !== "string";
    // If the host takes part in between, a step is a piece already; and a batch submitted ahead need not begin early.
    const cuts = last - first < parts.length || looksAhead ? [] : this.#cuts;
    const ends = [...cuts.map((cut) => Math.round(cut * last)), last];
    for (const [at, end] of ends.entries()) {
      const commands = this.#device.createCommandEncoder();
      const pass = commands.beginComputePass();
      const isLast = at === ends.length - 1;
      for (let i = first; i < end; i++) encodeSized(pass, parts[i]!);
      if (isLast && what !== "all")
        encodePart(pass, isOne ? program.bestOne : program.best, counts);
      pass.end();
      const { exchange } = program;
      const { best, read } = this.#buffers;
      if (isLast && what !== "all") {
        // With the tokens that were drawn, and whether layer kernels failed.
        const bytes = bestWords(counts.logits, pairs) * 4;
        commands.copyBufferToBuffer(best, 0, looksAhead ? what : read, 0, bytes);
      } else if (isLast) {
        const behind = this.#copyResults(commands, counts, results);
        if (exchange) commands.copyBufferToBuffer(exchange, 0, read, behind, FAILED_BYTES);
      }
      first = end;
      yield commands.finish();
    }
  }

  /** Returns the bytes. */
  #copyResults(commands: GPUCommandEncoder, counts: RowCounts, values: readonly Value[]): number {
    const { slotOf } = this.#layout;
    const { slots, read } = this.#buffers;
    let at = 0;
    for (const { id, rows, cols } of values) {
      const bytes = counts[rows]! * cols * 4;
      if (bytes > 0) commands.copyBufferToBuffer(slots[slotOf[id]!]!, 0, read, at, bytes);
      at += bytes;
    }
    return at;
  }
}

/** A token is a hundred dispatches, so that nothing is computed for each but the calls. */
function encodeSized(pass: GPUComputePassEncoder, dispatches: readonly SizedDispatch[]): void {
  for (const { pipeline, bindings, grid } of dispatches) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
}

function sameCounts(some: RowCounts, others: RowCounts): boolean {
  for (const rows of Object.keys(some) as Rows[]) if (some[rows] !== others[rows]) return false;
  return true;
}
