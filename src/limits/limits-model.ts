// The model that a report is about, as this folder's arithmetic sees it.

import type { StateSize } from "./memory.ts";
import type { BitWidths, ModelCost } from "./model-cost.ts";
import type { ModelShape, ParameterCounts } from "./shape.ts";

/** A shape, and its cost at the requested bit widths or those of its file. */
export interface LimitsModel {
  readonly name: string;
  /** For display: "built-in configuration", "gguf". */
  readonly source: string;
  readonly shape: ModelShape;
  /** For display: "16 bits", "as stored: q4_0, 4.56 bits on average". */
  readonly weightsText: string;
  readonly kvText: string;
  readonly bits: BitWidths;
  /** Counted according to ReportOptions.counting. */
  readonly cost: ModelCost;
  /** Bytes of one context, with a KV cache of bits.kv. */
  readonly state: StateSize;
  /** Counts from the graph, for a shape that does not give them. */
  readonly parameters?: ParameterCounts;
}
