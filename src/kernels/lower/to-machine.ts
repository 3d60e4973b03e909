// From a kernel to what a processor with registers needs: a straight list of instructions whose operands are physical
// registers (machine.ts). What all processors have in common is done here:
//   linear.ts            constants, moves and bit casts disappear into operands, loads too where the target wants it
//   assign-registers.ts  a register for every value; vectors are never spilled, scalars into the parameter block

import type { Kernel } from "../ir/kernel.ts";
import { assignRegisters } from "./assign-registers.ts";
import { flatten, simplify } from "./linear.ts";
import { KernelRefused, type MachineKernel, type MachineTarget } from "./machine.ts";

export function toMachine(kernel: Kernel, target: MachineTarget): MachineKernel {
  if (kernel.width !== target.width) {
    throw new Error(
      `${kernel.name}: vectors of ${kernel.width} bytes; ${target.name} has ${target.width}`,
    );
  }
  const simple = simplify(kernel, target);
  // Constants are kept in registers as far as these last, those of the innermost loops first.
  for (let kept = simple.constants.length; ; kept--) {
    const linear = flatten(simple, target, new Set(simple.constants.slice(0, kept)));
    const assigned = assignRegisters(kernel, linear, target);
    if (assigned.kernel) return assigned.kernel;
    if (kept > 0) continue;
    throw new KernelRefused(
      `${kernel.name} keeps ${assigned.needed} vectors alive, ` +
        `${target.name} has ${target.vectors.length} registers for them`,
    );
  }
}
