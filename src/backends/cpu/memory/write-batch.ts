// Writes a batch into the arena, where the instructions of all threads read it (BatchArea in program.ts). The leader writes it
// before the others begin.

import type { AdapterList } from "../../../graph/adapter-list.ts";
import { type Batch, KV_BLOCK_TOKENS, NO_SLOT, tableOf } from "../../../graph/batch.ts";
import { type AdapterArea, type BatchArea, SEGMENT } from "../program.ts";

export function writeBatch(
  batch: Batch,
  area: BatchArea,
  i32: Int32Array,
  f32: Float32Array,
): void {
  batch.writeCounts(i32, area.counts / 4);
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
  for (let i = 0; i < area.adapters.length; i++) {
    const [to, from] = [area.adapters[i]!, batch.adapters[i]!];
    writeList(from.tokens, batch.tokenCount, to.tokens, i32, f32);
    writeList(from.outputs, batch.outputCount, to.outputs, i32, f32);
  }
}

function writeList(
  { count, rows, places, scales }: AdapterList,
  all: number,
  to: AdapterArea,
  i32: Int32Array,
  f32: Float32Array,
): void {
  for (let i = 0; i < count; i++) i32[to.rows / 4 + i] = rows[i]!;
  for (let row = 0; row < all; row++) {
    i32[to.places / 4 + row] = places[row]!;
    f32[to.scales / 4 + row] = scales[row]!;
  }
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
