// Writes a batch into the arena, where the instructions of all threads read it (BatchArea in program.ts). The leader writes it
// before the others begin.

import { type Batch, countOf, KV_BLOCK_TOKENS, NO_SLOT, tableOf } from "../../../graph/batch.ts";
import { type BatchArea, SEGMENT } from "../program.ts";

export function writeBatch(batch: Batch, area: BatchArea, i32: Int32Array): void {
  i32[area.counts / 4 + countOf.tokens] = batch.tokenCount;
  i32[area.counts / 4 + countOf.outputs] = batch.outputCount;
  i32[area.counts / 4 + countOf.logits] = batch.count("logits");
  let length = 0;
  for (let t = 0; t < batch.tokenCount; t++) {
    const position = batch.positions[t]!;
    i32[area.tokens / 4 + t] = batch.tokens[t]!;
    i32[area.positions / 4 + t] = position;
    let last = position;
    if (area.lengths !== undefined) {
      if (t === 0 || batch.sequences[t] !== batch.sequences[t - 1]) length = batch.lengthAfter(t);
      i32[area.lengths / 4 + t] = length;
      last = length - 1;
    }
    const held = Math.floor(last / KV_BLOCK_TOKENS) + 1;
    for (const { at: tables, group, stride } of area.tables) {
      const blocks = tableOf(batch.sequences[t]!, group);
      const at = tables / 4 + t * area.tableLength;
      for (let b = 0; b < held; b++) i32[at + b] = blocks[b]! * stride;
    }
  }
  if (area.segments > 0) writeSegments(batch, area.segments / 4, i32);
  for (let o = 0; o < batch.outputCount; o++) i32[area.outputRows / 4 + o] = batch.outputRows[o]!;
}

function writeSegments({ sequences, tokenCount }: Batch, segments: number, i32: Int32Array): void {
  let first = 0;
  for (let t = 0; t < tokenCount; t++) {
    const sequence = sequences[t]!;
    if (t > 0 && sequences[t - 1] !== sequence) first = t;
    const isLast = t + 1 === tokenCount || sequences[t + 1] !== sequence;
    const at = segments + t * SEGMENT.words;
    i32[at + SEGMENT.first] = first;
    i32[at + SEGMENT.from] = sequence.slots?.from ?? NO_SLOT;
    i32[at + SEGMENT.to] = isLast ? (sequence.slots?.to ?? NO_SLOT) : NO_SLOT;
  }
}
