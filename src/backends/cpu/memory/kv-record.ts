// Records the first keys or values of a batch that the KV cache's type cannot hold: a word that identifies them, and a float for
// their largest magnitude. kv_write fills it in, the leader reads and clears it after the batch.

import type { Value } from "../../../graph/graph.ts";
import type { KvOverflow } from "../../../graph/reference-memory.ts";
import type { Arena } from "./arena.ts";

export class KvRecord {
  /** i32: 0, or the number of the value that did not fit; then f32: its largest magnitude. */
  readonly at: number;
  readonly #noted: Pick<KvOverflow, "value" | "dtype">[] = [];

  constructor(arena: Pick<Arena, "allocate">) {
    this.at = arena.allocate(8, "work", "keys and values that the cache cannot hold");
  }

  /** The number of this value in the record. */
  number({ name: value }: Value, dtype: string): number {
    return this.#noted.push({ value, dtype });
  }

  /** The overflow that was recorded since the last call. */
  take({ i32, f32 }: Arena["views"]): KvOverflow | undefined {
    const number = i32[this.at / 4]!;
    if (number === 0) return undefined;
    i32[this.at / 4] = 0;
    return { ...this.#noted[number - 1]!, largest: f32[this.at / 4 + 1]! };
  }
}
