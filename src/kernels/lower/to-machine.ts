// Converts a kernel to a linear list of instructions whose operands are physical registers (machine.ts): the part of code
// generation that all processors share.
//   linear.ts            constants, moves and bit casts become operands, and loads, too, where the target allows it
//   assign-registers.ts  a register for every value; scalars may be spilled into the parameter block, vectors never

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
  // Keeps as many constants in registers as fit, those of the innermost loops first.
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
