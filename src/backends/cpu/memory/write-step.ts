// A step as numbers in the arena, where the instructions of all threads read it (program.ts has the places). Written by the
// leading thread before the others begin.

import { countOf, KV_BLOCK_TOKENS, type Step, tableOf } from "../../../graph/step.ts";
import type { StepArea } from "../program.ts";

export function writeStep(step: Step, area: StepArea, i32: Int32Array): void {
  i32[area.counts / 4 + countOf.tokens] = step.tokenCount;
  i32[area.counts / 4 + countOf.outputs] = step.outputCount;
  i32[area.counts / 4 + countOf.logits] = step.count("logits");
  for (let t = 0; t < step.tokenCount; t++) {
    const position = step.positions[t]!;
    i32[area.tokens / 4 + t] = step.tokens[t]!;
    i32[area.positions / 4 + t] = position;
    const held = Math.floor(position / KV_BLOCK_TOKENS) + 1;
    for (const { at: tables, group, stride } of area.tables) {
      const blocks = tableOf(step.sequences[t]!, group);
      const at = tables / 4 + t * area.tableLength;
      for (let b = 0; b < held; b++) i32[at + b] = blocks[b]! * stride;
    }
  }
  for (let o = 0; o < step.outputCount; o++) i32[area.outputRows / 4 + o] = step.outputRows[o]!;
}
