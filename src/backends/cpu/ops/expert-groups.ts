// Groups the tokens of a batch by expert: which (token, slot) pairs each expert computes, in shared memory. Done once for all
// matmuls of the same routes; kernels then treat the pairs of an expert as the tokens of a dense matmul.
//
// i32 words at GroupTable.at:
//   count                number of groups: experts that any token uses. An expert that a token uses in several slots (of experts that
//                        share a matrix) may have more pairs than a batch has rows; it has several groups then, because kernels and
//                        their scratch memory take no more
//   expert [most]        expert of each group, ascending
//   start [most + 1]     first pair of each group in `pairs`, and the end
//   next [experts]       for counting: the index of an expert's next pair
//   pairs [rows * slots] token * slots + slot, ordered by expert, then by token
//   position [the same]  where each pair is in `pairs`
//   groupOf [the same]   group of each pair

import type { Rows } from "../../../graph/graph.ts";
import { type ExecutorContext, rowCount } from "../executor.ts";
import type { InstructionDef } from "./op.ts";

/** The address and sizes of the groups: plain data. */
export interface GroupTable {
  readonly at: number;
  /** The rows of the routes. */
  readonly rows: Rows;
  readonly slots: number;
  readonly experts: number;
  /** The most groups. */
  readonly most: number;
  /** The most pairs. */
  readonly pairs: number;
}

export function groupTableBytes({ experts, most, pairs }: Omit<GroupTable, "at">): number {
  return 4 * (2 + 2 * most + experts + 3 * pairs);
}

/** The groups of the current batch, as its executors see them. */
export interface ExpertGroups {
  count(): number;
  expert(group: number): number;
  /** First pair of a group; for the group after the last, the number of pairs. */
  start(group: number): number;
  pair(position: number): number;
  position(pair: number): number;
  groupOf(pair: number): number;
}

interface GroupWords {
  readonly expert: number;
  readonly start: number;
  readonly next: number;
  readonly pairs: number;
  readonly position: number;
  readonly groupOf: number;
}

function wordsOf({ at, experts, most, pairs }: GroupTable): GroupWords {
  const expert = at / 4 + 1;
  const start = expert + most;
  const next = start + most + 1;
  const first = next + experts;
  const [position, groupOf] = [first + pairs, first + 2 * pairs];
  return { expert, start, next, pairs: first, position, groupOf };
}

export function readGroups(table: GroupTable, { views: { i32 } }: ExecutorContext): ExpertGroups {
  const words = wordsOf(table);
  return {
    count: () => i32[table.at / 4]!,
    expert: (group) => i32[words.expert + group]!,
    start: (group) => i32[words.start + group]!,
    pair: (position) => i32[words.pairs + position]!,
    position: (pair) => i32[words.position + pair]!,
    groupOf: (pair) => i32[words.groupOf + pair]!,
  };
}

export interface GroupExperts {
  readonly op: "group_experts";
  readonly table: GroupTable;
  /** f32 [rows][2 * slots]. */
  readonly routes: number;
}

export const groupExperts: InstructionDef<GroupExperts> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute({ table, routes }, c) {
    const { i32, f32 } = c.views;
    const { slots, experts } = table;
    const largest = table.pairs / slots;
    const { expert: expertAt, start: startAt, next, pairs: pairAt, ...words } = wordsOf(table);
    const expertOf = (pair: number) =>
      f32[routes / 4 + Math.floor(pair / slots) * 2 * slots + (pair % slots)]!;
    return {
      chunks: () => (rowCount(c, table.rows) === 0 ? 0 : 1),
      run: () => {
        const pairs = rowCount(c, table.rows) * slots;
        i32.fill(0, next, next + experts);
        for (let pair = 0; pair < pairs; pair++) i32[next + expertOf(pair)]!++;
        let groups = 0;
        let start = 0;
        for (let expert = 0; expert < experts; expert++) {
          let size = i32[next + expert]!;
          if (size === 0) continue;
          i32[next + expert] = start;
          for (; size > 0; size -= largest) {
            i32[expertAt + groups] = expert;
            i32[startAt + groups] = start;
            start += Math.min(size, largest);
            groups++;
          }
        }
        i32[startAt + groups] = start;
        i32[table.at / 4] = groups;
        for (let pair = 0; pair < pairs; pair++) {
          const position = i32[next + expertOf(pair)]!++;
          i32[pairAt + position] = pair;
          i32[words.position + pair] = position;
        }
        for (let group = 0; group < groups; group++) {
          const end = i32[startAt + group + 1]!;
          for (let position = i32[startAt + group]!; position < end; position++) {
            i32[words.groupOf + i32[pairAt + position]!] = group;
          }
        }
      },
    };
  },
};
