// The best way to compute a batch with every matmul on the device of its own choice: the shortest path through a model's
// groups of matmuls that share activations, where a change of devices costs the way of the activations. Everything else is assumed to cost nothing
// and to be wherever it is needed (attention and its cache, norms, residuals), so the result is a bound: no division by
// matmul is faster. Where even that does not gain over one device for all, none is worth having.

import type { Side } from "../backends/switch/newest.ts";
import type { MatmulGroup } from "../limits/model-matmuls.ts";
import type { TransferTimes } from "./gpu-transfers.ts";

/** A group with its microseconds on the CPU and on the GPU. */
export interface GroupCost {
  readonly group: Pick<MatmulGroup, "name" | "inCols" | "outCols">;
  readonly us: readonly [cpu: number, gpu: number];
  /** Rows of its activations. */
  readonly rows: number;
}

export interface Mix {
  /** The least microseconds, transfers included. */
  readonly us: number;
  /** The better of the two devices for everything, and its microseconds. */
  readonly alone: Side;
  readonly aloneUs: number;
  /** Groups that the best mix computes on the other device. */
  readonly moved: readonly string[];
  /** The group that gains most, or loses least, where it alone is moved to the other device. */
  readonly single: {
    readonly name: string;
    readonly gainUs: number;
    readonly transferUs: number;
  };
}

export function bestMix(costs: readonly GroupCost[], transfers: TransferTimes): Mix {
  const path = shortest(costs, transfers);
  const alone = ([0, 1] as const).map((side) => sumOn(costs, transfers, side));
  const side: Side = alone[1]! < alone[0]! ? 1 : 0;
  return {
    us: path.us,
    alone: side,
    aloneUs: alone[side]!,
    moved: costs.flatMap(({ group }, i) => (path.sides[i] === side ? [] : [group.name])),
    single: bestSingle(costs, transfers, side),
  };
}

/** All groups on one side; results are read on the CPU. */
export function sumOn(costs: readonly GroupCost[], transfers: TransferTimes, side: Side): number {
  const sum = costs.reduce((all, { us }) => all + us[side], 0);
  return sum + change(costs.at(-1), undefined, side, 0, transfers);
}

function shortest(
  costs: readonly GroupCost[],
  transfers: TransferTimes,
): { us: number; sides: Side[] } {
  // Tokens are a few bytes, so the first group may be on either.
  let best: readonly { us: number; sides: Side[] }[] = [
    { us: 0, sides: [] },
    { us: 0, sides: [] },
  ];
  for (const [i, cost] of costs.entries()) {
    best = ([0, 1] as const).map((to) => {
      const ways = ([0, 1] as const).map(
        (from) => best[from]!.us + change(costs[i - 1], cost, from, to, transfers),
      );
      const from: Side = ways[1]! < ways[0]! ? 1 : 0;
      return { us: ways[from]! + cost.us[to], sides: [...best[from]!.sides, to] };
    });
  }
  const ends = best.map(({ us, sides }, side) => ({
    us: us + change(costs.at(-1), undefined, side as Side, 0, transfers),
    sides,
  }));
  return ends[1]!.us < ends[0]!.us ? ends[1]! : ends[0]!;
}

/** From one group to the next: at least the narrower of the first one's output and the second one's input has to be moved. */
function change(
  before: GroupCost | undefined,
  after: GroupCost | undefined,
  from: Side,
  to: Side,
  transfers: TransferTimes,
): number {
  if (from === to || !before) return 0;
  const given = before.rows * before.group.outCols;
  const read = after ? after.rows * after.group.inCols : given;
  const bytes = 4 * Math.min(given, read);
  return to === 1 ? transfers.there(bytes) : transfers.back(bytes);
}

function bestSingle(
  costs: readonly GroupCost[],
  transfers: TransferTimes,
  side: Side,
): Mix["single"] {
  const other: Side = side === 0 ? 1 : 0;
  const singles = costs.map((cost, i) => {
    const { us, group } = cost;
    const [before, after] = [costs[i - 1], costs[i + 1]];
    const into = change(before, cost, side, other, transfers);
    // The last results are read on the CPU, wherever they were computed.
    const end = after
      ? change(cost, after, other, side, transfers)
      : change(cost, undefined, other, 0, transfers);
    const saved = after ? 0 : change(cost, undefined, side, 0, transfers);
    return { name: group.name, gainUs: us[side] - us[other], transferUs: into + end - saved };
  });
  return singles.reduce((a, b) => (b.gainUs - b.transferUs > a.gainUs - a.transferUs ? b : a));
}
