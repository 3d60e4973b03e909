// What a report is about: one model, as the arithmetic of this folder sees it.

import type { StateSize } from "./memory.ts";
import type { BitWidths, ModelCost } from "./model-cost.ts";
import type { ModelShape } from "./shape.ts";

/** A model as limits see it: a shape, and what it costs at the widths that were asked for or that its file has. */
export interface LimitsModel {
  readonly name: string;
  /** For people: "built-in configuration", "gguf". */
  readonly source: string;
  readonly shape: ModelShape;
  /** For people: "16 bits", "as stored: q4_0, 4.56 bits on average". */
  readonly weightsText: string;
  readonly kvText: string;
  readonly bits: BitWidths;
  /** Counted as ReportOptions.counting says. */
  readonly cost: ModelCost;
  /** Bytes of one context, with a KV cache of bits.kv. */
  readonly state: StateSize;
}
