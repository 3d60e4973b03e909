// Guard mode on each thread: calls WebAssembly kernels with the buffers that their pointers lie in, and makes the error for
// one that leaves them. Every thread gets plain data (GuardJob). guard.ts has the leader's part.

import {
  type BufferRange,
  linesOf,
  outsideText,
  pointerOrigins,
  statementText,
} from "../../../kernels/ir/bounds.ts";
import { interpret } from "../../../kernels/ir/interpret.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import type { Semantics } from "../../../kernels/ir/meanings.ts";
import type { Kernels } from "../executor.ts";
import { type Arena, REPORT_BYTES } from "../memory/arena.ts";

/** Data that a thread needs to check its kernels. */
export interface GuardJob {
  /** Sorted by address. */
  readonly buffers: readonly BufferRange[];
  /** The kernels that are WebAssembly. */
  readonly kernels: readonly Kernel[];
  /** The address of the reports, one for each thread. */
  readonly reports: number;
}

/** All buffers; one that has a piece for each thread is several. */
export function rangesOf({ guarded }: Pick<Arena, "guarded">): BufferRange[] {
  return guarded.flatMap(({ name, from, to, pieces }) => {
    const bytes = (to - from) / pieces;
    return Array.from({ length: pieces }, (_, piece) => ({
      name: pieces === 1 ? name : `${name} of thread ${piece}`,
      from: from + piece * bytes,
      to: from + (piece + 1) * bytes,
    }));
  });
}

/** The buffer that an address lies in, or that ends there; undefined: none. */
export function bufferAt(
  buffers: readonly BufferRange[],
  address: number,
): BufferRange | undefined {
  let [low, high] = [0, buffers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (buffers[middle]!.from <= address) low = middle + 1;
    else high = middle;
  }
  const found = buffers[low - 1];
  return found && address <= found.to ? found : undefined;
}

/** The buffer of each of a kernel's parameters that is a pointer. */
function buffersOf(
  kernel: Kernel,
  args: readonly number[],
  buffers: readonly BufferRange[],
): (BufferRange | undefined)[] {
  return kernel.params.map(({ type }, i) =>
    type === "ptr" ? bufferAt(buffers, args[i] ?? 0) : undefined,
  );
}

/** The kernels of a guarded module (lower/wasm-guard.ts), with the signatures of plain ones. */
export function guardCalls(
  exported: Kernels,
  { buffers, kernels, reports }: GuardJob,
  memory: ArrayBufferLike,
  thread: number,
): Kernels {
  const at = reports + thread * REPORT_BYTES;
  const report = new DataView(memory, at, REPORT_BYTES);
  const calls = kernels.map((kernel) => {
    const run = exported[kernel.name]!;
    const call = (...given: number[]): void => {
      const args = kernel.params.map((_, i) => given[i] ?? 0);
      const found = buffersOf(kernel, args, buffers);
      const ranges = kernel.params.flatMap(({ type }, i) => {
        if (type !== "ptr") return [];
        return [found[i]?.from ?? 0, found[i]?.to ?? 0];
      });
      try {
        run(...args, ...ranges, at);
      } catch (cause) {
        const line = report.getInt32(0, true);
        if (line === 0) throw cause;
        const wrong = new Error(reportText(kernel, report, found), { cause });
        report.setInt32(0, 0, true);
        if (thread > 0) console.error(wrong); // the leader only learns that something failed
        throw wrong;
      }
    };
    return [kernel.name, call] as const;
  });
  return Object.fromEntries(calls);
}

function reportText(
  kernel: Kernel,
  report: DataView,
  found: readonly (BufferRange | undefined)[],
): string {
  const line = report.getInt32(0, true);
  const [statement] = [...linesOf(kernel)].find(([, at]) => at === line) ?? [];
  const pointer = statement?.kind === "op" ? statement.args[0] : undefined;
  const origins = (pointer && pointerOrigins(kernel).get(pointer.id)) ?? [];
  const buffers = origins.map((param) => found[param]);
  const address = Number(report.getBigInt64(8, true));
  const what = outsideText(address, report.getInt32(4, true), buffers);
  return `${kernel.name}: ${statementText(kernel, line)}: ${what}`;
}

/** The same kernels, interpreted. */
export function interpretedCalls(
  kernels: readonly Kernel[],
  buffers: readonly BufferRange[],
  memory: ArrayBufferLike,
  semantics: Partial<Semantics>,
): Kernels {
  const calls = kernels.map((kernel) => {
    const call = (...given: number[]): void => {
      const args = kernel.params.map((_, i) => given[i] ?? 0);
      interpret(kernel, memory, args, semantics, buffersOf(kernel, args, buffers));
    };
    return [kernel.name, call] as const;
  });
  return Object.fromEntries(calls);
}
