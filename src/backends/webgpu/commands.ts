// The command buffers of a batch: every kernel of the program for its size, and at the end the copy of the logits. A WebGPU
// command buffer can be submitted only once, but those of all batches of a size are alike: while the GPU computes a token,
// the commands of the next one are encoded.
//
// They are submitted in pieces, the first ones small, so that the GPU begins while the host submits the rest.

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
  /** Where pieces end, as fractions of the program. */
  readonly #cuts: readonly number[];
  #next: Encoded | undefined;

  constructor(device: GPUDevice, layout: Layout, buffers: Buffers, cuts: readonly number[]) {
    this.#device = device;
    this.#layout = layout;
    this.#buffers = buffers;
    this.#cuts = cuts;
  }

  /** The command buffers of a batch, to be submitted in order, once. */
  take(program: Program, counts: RowCounts): readonly GPUCommandBuffer[] {
    const next = this.#next;
    this.#next = undefined;
    const fits = next && sameCounts(next.counts, counts);
    return fits && next.program === program ? next.pieces : this.#encode(program, counts);
  }

  /** Encodes those of a batch that will probably come next. */
  prepare(program: Program, counts: RowCounts): void {
    this.#next = { counts, program, pieces: this.#encode(program, counts) };
  }

  /** A whole batch in one piece, with timestamp queries, for a profile. */
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

/** The value that every batch copies to the host: logits, the residual of a split graph, or an encoder's hidden states. */
export function resultOf({ outputs }: Graph): Value | undefined {
  return outputs.logits ?? outputs.residual ?? outputs.hidden;
}

function sameCounts(some: RowCounts, others: RowCounts): boolean {
  return (
    some.tokens === others.tokens &&
    some.outputs === others.outputs &&
    some.logits === others.logits
  );
}
