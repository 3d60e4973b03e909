// Repeated columns, side by side, for heads that share their input if the op knows no sharing.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";

/**
 * Each of `groups` equal groups of columns, `times` times beside itself: [tokens, n] -> [tokens, times * n]. Few models need it, so it is
 * made of pairs.
 */
export function repeated(
  g: GraphBuilder,
  x: Value,
  times: number,
  name: string,
  groups = 1,
): Value {
  let out: Value | undefined;
  for (let left = times, part = x; left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) out = out ? g.concat(out, part, `${name}_${out.cols}`, groups) : part;
    if (left > 1) part = g.concat(part, part, `${name}_twice_${part.cols}`, groups);
  }
  return out!;
}
