// disk_experts: no op of the graph. When the routes of a batch are known, it asks for the experts that are in no slot, for all
// matrices of these routes (disk/demand.ts). The matmuls wait for their experts.

import { DemandSlots } from "../disk/demand-slots.ts";
import { rowCount } from "../executor.ts";
import { type GroupTable, readGroups } from "./expert-groups.ts";
import type { InstructionDef } from "./op.ts";

export interface DiskExperts {
  readonly op: "disk_experts";
  readonly table: GroupTable;
  /** In the order in which they are used: numbers in DemandProgram.weights. */
  readonly weights: readonly number[];
  /** Its layer is the first, or the last, with experts. */
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

export const diskExperts: InstructionDef<DiskExperts> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute({ table, weights, isFirst, isLast }, c) {
    const slots = new DemandSlots(c.program.demand!, c.views);
    const groups = readGroups(table, c);
    return {
      chunks: () => (rowCount(c, table.rows) === 0 ? 0 : 1),
      run: () => {
        const rows = rowCount(c, table.rows);
        if (isFirst) slots.ahead.begin(rows);
        for (const weight of weights) slots.begin(weight, groups, c.program.threads);
        if (isLast) slots.ahead.end(rows);
      },
    };
  },
};
