// The command buffers of a batch: every kernel of the program for its size, and at the end the copy of the logits. WebGPU
// allows to submit each only once, but all batches of a size are alike: while the GPU computes a token, those for the next
// one are encoded, so that it waits for nothing but its data.
//
// They are submitted in pieces, the first ones small: the GPU begins while the host still hands over the rest.

import type { RowCounts } from "../../graph/batch.ts";
import type { Graph, Value } from "../../graph/graph.ts";
import type { BatchTimes } from "./batch-times.ts";
import type { Buffers, Layout } from "./buffers.ts";
import { encodePart, type Program } from "./program.ts";

interface Encoded {
  readonly counts: RowCounts;
  readonly program: Program;
  readonly pieces: GPUCommandBuffer[];
}

export class BatchCommands {
  readonly #device: GPUDevice;
  readonly #layout: Layout;
  readonly #buffers: Buffers;
  /** Where a piece ends, as parts of the program: 0.25 is a quarter of it. */
  readonly #cuts: readonly number[];
  #next: Encoded | undefined;

  constructor(device: GPUDevice, layout: Layout, buffers: Buffers, cuts: readonly number[]) {
    this.#device = device;
    this.#layout = layout;
    this.#buffers = buffers;
    this.#cuts = cuts;
  }

  /** To be submitted one after the other, once. */
  take(program: Program, counts: RowCounts): readonly GPUCommandBuffer[] {
    const next = this.#next;
    this.#next = undefined;
    const fits = next && sameCounts(next.counts, counts);
    return fits && next.program === program ? next.pieces : this.#encode(program, counts);
  }

  /** Those of a batch that will probably come. */
  prepare(program: Program, counts: RowCounts): void {
    this.#next = { counts, program, pieces: this.#encode(program, counts) };
  }

  /** All of a batch in one piece, with its times: for a profile. */
  recorded(times: BatchTimes, counts: RowCounts): GPUCommandBuffer {
    const commands = this.#device.createCommandEncoder();
    times.encode(commands, counts);
    this.#copyLogits(commands, counts);
    return commands.finish();
  }

  #encode({ parts }: Program, counts: RowCounts): GPUCommandBuffer[] {
    const ends = [...this.#cuts.map((cut) => Math.round(cut * parts.length)), parts.length];
    let first = 0;
    return ends.map((end) => {
      const commands = this.#device.createCommandEncoder();
      const pass = commands.beginComputePass();
      for (const { dispatches } of parts.slice(first, end)) encodePart(pass, dispatches, counts);
      pass.end();
      if (end === parts.length) this.#copyLogits(commands, counts);
      first = end;
      return commands.finish();
    });
  }

  #copyLogits(commands: GPUCommandEncoder, counts: RowCounts): void {
    const { plan, slotOf } = this.#layout;
    const output = resultOf(plan.graph);
    const bytes = output ? counts[output.rows] * output.cols * 4 : 0;
    if (!output || bytes === 0) return;
    const slot = this.#buffers.slots[slotOf[output.id]!]!;
    commands.copyBufferToBuffer(slot, 0, this.#buffers.read, 0, bytes);
  }
}

/** What every batch brings back to the host: logits, or what the second part of a split graph goes on with. */
export function resultOf({ outputs }: Graph): Value | undefined {
  return outputs.logits ?? outputs.residual;
}

function sameCounts(some: RowCounts, others: RowCounts): boolean {
  return (
    some.tokens === others.tokens &&
    some.outputs === others.outputs &&
    some.logits === others.logits
  );
}
