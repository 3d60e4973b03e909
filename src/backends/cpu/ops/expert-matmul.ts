// Runs a matmul with a matrix for each expert: the pairs of an expert (expert-groups.ts) are the tokens of a dense matmul over
// the expert's matrix. Experts that no token uses are not read. For experts that are read on demand (disk/demand.ts), threads wait one
// by one.
//
// A chunk is a fixed fraction of all work, so every batch has the same number of chunks, for any groups, and stages are not
// planned again. The cost of a row panel is its tokens, plus one for reading it. A result has the same bits on any thread,
// and beside any other pairs.

import { dtypeByName } from "../../../dtypes/table.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { DemandSlots } from "../disk/demand-slots.ts";
import { chunkBounds, type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import { dotRowsFor } from "./dot-rows.ts";
import { isOneRow } from "./expert-activations.ts";
import { type ExpertGroups, readGroups } from "./expert-groups.ts";
import {
  type ExpertMatmul,
  GROUP_PANELS,
  type Matmul,
  type MatmulRows,
  type TiledMatmul,
} from "./matmul-data.ts";
import { chosen, runVariant, type TileKernels } from "./matmul-run.ts";

/** The whole work, in units of which chunks are fractions. */
const WHOLE = 1 << 16;

/** Runs rows (or row panels) from..to of the expert of a group. */
type RunGroup = (group: number, from: number, to: number) => void;

/** Splits the rows of all groups, `perExpert` in each, into chunks. */
function inChunks(
  i: Matmul,
  c: ExecutorContext,
  groups: ExpertGroups,
  perExpert: number,
  rowBytes: number,
  run: RunGroup,
): Executor {
  const { slots } = i.experts!.groups;
  const bounds = chunkBounds(WHOLE, c.program.threads);
  return {
    chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
    weight: (chunk) =>
      ((bounds[chunk + 1]! - bounds[chunk]!) / WHOLE) * slots * perExpert * rowBytes,
    run: (chunk) => {
      const count = groups.count();
      const total = (groups.start(count) + count) * perExpert;
      const first = Math.round((bounds[chunk]! / WHOLE) * total);
      const end = Math.round((bounds[chunk + 1]! / WHOLE) * total);
      for (let group = 0; group < count; group++) {
        const start = groups.start(group);
        const before = (start + group) * perExpert;
        if (before >= end) return;
        const cost = groups.start(group + 1) - start + 1;
        const from = Math.max(0, Math.ceil((first - before) / cost));
        const to = Math.min(perExpert, Math.ceil((end - before) / cost));
        if (from < to) run(group, from, to);
      }
    },
  };
}

/** Over row panels. */
export function expertMatmul(i: TiledMatmul, c: ExecutorContext, kernels: TileKernels): Executor {
  const own = i.experts!;
  const groups = readGroups(own.groups, c);
  const variants = i.variants.map((variant) => runVariant(i, c, kernels, variant));
  const tiles = Math.ceil(i.n / PANEL_ROWS);
  const wholePanels = Math.floor(i.n / PANEL_ROWS);
  const panel = own.panel + c.thread * own.panelBytes;
  const { f32 } = c.views;
  const { demand } = own;
  /** With matrix number `place` of the experts. */
  const runGroup = (group: number, place: number, from: number, to: number) => {
    const start = groups.start(group);
    const size = groups.start(group + 1) - start;
    const w = i.w + place * own.expertBytes;
    const x = activationsAt(i, own, c, groups, start, size);
    const runPanels = variants[chosen(c, i.choice, size)]!;
    let done = from;
    if (size === 1) {
      const out = i.out + (groups.pair(start) * i.n + from * PANEL_ROWS) * 4;
      done = Math.max(from, Math.min(to, wholePanels));
      if (done > from) runPanels(w, x, 1, from, done, out, i.n * 4);
    }
    // Results go through scratch memory: pairs are rows of several tokens, and the last panel may have padding rows.
    for (; done < to; done += GROUP_PANELS) {
      const end = Math.min(to, done + GROUP_PANELS);
      const stride = (end - done) * PANEL_ROWS;
      runPanels(w, x, size, done, end, panel, stride * 4);
      const first = done * PANEL_ROWS;
      const count = Math.min(stride, i.n - first);
      for (let index = 0; index < size; index++) {
        const source = panel / 4 + index * stride;
        const target = i.out / 4 + groups.pair(start + index) * i.n + first;
        f32.copyWithin(target, source, source + count);
      }
    }
    addExpertBias(i, c, groups, group, from * PANEL_ROWS, Math.min(i.n, to * PANEL_ROWS));
  };
  if (demand === undefined) {
    return inChunks(i, c, groups, tiles, i.rowPanelBytes, (group, from, to) =>
      runGroup(group, groups.expert(group), from, to),
    );
  }
  const slots = new DemandSlots(c.program.demand!, c.views);
  return inChunks(i, c, groups, tiles, i.rowPanelBytes, (group, from, to) => {
    const slot = slots.acquire(demand, groups.expert(group));
    runGroup(group, slot, from, to);
    slots.release(demand, slot, to - from);
  });
}

/** The address of the activations of a group. */
function activationsAt(
  i: TiledMatmul,
  { perToken, pairBytes, direct, groups: { slots } }: ExpertMatmul,
  c: ExecutorContext,
  groups: ExpertGroups,
  start: number,
  size: number,
): number {
  if (direct >= 0 && size === 1) {
    const pair = groups.pair(start);
    return direct + (perToken === 1 ? Math.floor(pair / slots) : pair) * i.k * 4;
  }
  if (direct < 0 && isOneRow(rowCount(c, i.rows), perToken)) return i.x;
  return i.x + start * pairBytes;
}

/** Row by row: each row is dequantized once for all pairs of its expert. */
export function expertRows(i: MatmulRows, c: ExecutorContext): Executor {
  const own = i.experts!;
  const { perToken } = own;
  const { slots } = own.groups;
  const groups = readGroups(own.groups, c);
  const kernel = dotRowsFor(i, c);
  const dtype = dtypeByName(i.dtype)!;
  const blocks = i.k / dtype.blockElems;
  const scratch = i.scratch + c.thread * i.scratchBytes;
  const floats = c.views.f32.subarray(scratch / 4, scratch / 4 + i.k);
  return inChunks(i, c, groups, i.n, i.rowBytes, (group, from, to) => {
    const [start, end] = [groups.start(group), groups.start(group + 1)];
    const w = i.w + groups.expert(group) * own.expertBytes + from * i.rowBytes;
    const bytes = c.views.u8.subarray(w, w + (to - from) * i.rowBytes);
    for (let row = from; row < to; row++) {
      dtype.dequantize(bytes, (row - from) * i.rowBytes, floats, 0, blocks);
      for (let position = start; position < end; position++) {
        const pair = groups.pair(position);
        const x = i.x + (perToken === 1 ? Math.floor(pair / slots) : pair) * i.k * 4;
        kernel(scratch, x, i.out + (pair * i.n + row) * 4, i.k, 1, 0, 0);
      }
    }
    addExpertBias(i, c, groups, group, from, to);
  });
}

function addExpertBias(
  i: Matmul,
  c: ExecutorContext,
  groups: ExpertGroups,
  group: number,
  from: number,
  to: number,
): void {
  if (i.bias < 0) return;
  const { f32 } = c.views;
  const bias = i.bias / 4 + groups.expert(group) * i.n;
  const end = groups.start(group + 1);
  for (let position = groups.start(group); position < end; position++) {
    const at = i.out / 4 + groups.pair(position) * i.n;
    for (let row = from; row < to; row++) f32[at + row]! += f32[bias + row]!;
  }
}
