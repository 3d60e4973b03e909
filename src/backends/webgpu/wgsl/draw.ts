// Draws the next token of every row from its best logits, and puts it into the batch area: the next batch begins before the host
// knows its tokens (flight.ts). It is a guess: the host draws by itself (engine/sampler.ts), and what was computed after another token
// is dropped. So floats are enough here, where the host has doubles, and only the usual steps are known: top-k, top-p, min-p and a
// fixed temperature.

import type { Value } from "../../../graph/graph.ts";
import { type BatchLayout, DRAW_WORDS } from "../batch-area.ts";
import { BEST } from "./best-logits.ts";
import { type Kernel, makeKernel } from "./kernel.ts";

/** After bestLogitsKernels(); row r of the logits belongs to token r. */
export function drawKernel({ rows, cols }: Value, { tokens, draws }: BatchLayout): Kernel {
  return makeKernel({
    name: "draw",
    bindings: [
      { name: "best", type: "vec2u", source: { kind: "best" } },
      { name: "batch", type: "u32", source: { kind: "batch" }, writes: true },
    ],
    size: BEST,
    declarations: `
var<workgroup> plain: array<f32, ${BEST}>;
var<workgroup> scaled: array<f32, ${BEST}>;`,
    rows,
    grid: (count) => [1, count, 1],
    body: `
  let first = group.y * ${BEST}u;
  let at = ${draws}u + group.y * ${DRAW_WORDS}u;
  let temperature = bitcast<f32>(batch[at]);
  let most = min(batch[at + 4u], ${Math.min(BEST, cols)}u);
  let below = bitcast<f32>(best[first + lane].x) - bitcast<f32>(best[first].x);
  let isLikely = lane < most && below >= bitcast<f32>(batch[at + 2u]);
  plain[lane] = select(0.0, exp(below), lane < most);
  scaled[lane] = select(0.0, exp(below / max(temperature, 1e-6)), isLikely);
  workgroupBarrier();
  if (lane > 0u) { return; }
  var chosen = 0u;
  if (temperature > 0.0) {
    var total = 0.0;
    for (var i = 0u; i < most; i++) { total += plain[i]; }
    let enough = bitcast<f32>(batch[at + 1u]) * total;
    var kept = 0u;
    var reached = 0.0;
    while (kept < most && (kept == 0u || reached < enough)) { reached += plain[kept]; kept++; }
    total = 0.0;
    for (var i = 0u; i < kept; i++) { total += scaled[i]; }
    let goal = bitcast<f32>(batch[at + 3u]) * total;
    reached = 0.0;
    for (var i = 0u; i < kept && reached <= goal; i++) {
      if (scaled[i] == 0.0) { continue; }
      reached += scaled[i];
      chosen = i;
    }
  }
  batch[${tokens}u + group.y] = min(best[first + chosen].y, ${cols - 1}u); // a NaN has no order: never beyond the vocabulary`,
  });
}
