// Guard mode (LANTERN_GUARD=1, docs/inside/processors.md): finds generated code that leaves its buffers, which would otherwise silently
// read or write a neighbour's bytes. For tests and debugging: kernels are slower, and memory is wasted.
//
// - Machine code: every buffer ends at the end of a page (arena.ts), and the page after it is protected: the process dies at
//   the instruction that touches it.
// - WebAssembly: every address is checked against the buffers that the kernel was given (guard-calls.ts), and an error
//   names kernel, instruction, address and buffer. Or all kernels are interpreted, with the same checks.
// - Both: the bytes before a buffer in its first page are poisoned. A read gives NaNs; a write is found after the batch.

import type { Kernel } from "../../../kernels/ir/kernel.ts";
import type { GuardWasm } from "../../../kernels/lower/wasm-emit.ts";
import { guardedFunction } from "../../../kernels/lower/wasm-guard.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { NativeAccess } from "../../../platform/platform.ts";
import type { Kernels } from "../executor.ts";
import { type Arena, PAGE } from "../memory/arena.ts";
import type { Layout } from "../memory/layout.ts";
import { type MemoryCall, memoryCall } from "../native/memory.ts";
import { type GuardJob, guardCalls, interpretedCalls, rangesOf } from "./guard-calls.ts";

export interface GuardOptions {
  /** All kernels are interpreted, on one thread. */
  readonly interpret?: boolean;
  /** Called before each kernel on the leader's thread: after a crash, the last one is the culprit. */
  readonly onCall?: (kernel: string, args: readonly number[]) => void;
}

/** Guard mode as an option of the backend: this file is loaded only where it is wanted. */
export interface GuardMode {
  readonly wasm: GuardWasm;
  /** Called once the memory exists, before anything is written to it. */
  watch(layout: Layout, host: NativeAccess): Guard;
}

export function guardMode(options: GuardOptions = {}): GuardMode {
  return { wasm: guardedFunction, watch: (layout, host) => new Guard(layout, options, host) };
}

/** A byte of the poison: floats and half floats of it are NaNs. */
const POISON = 0xff;
/** Bytes before a buffer that are checked after each batch. */
const WATCHED = 256;

const protect: MemoryCall = {
  name: "take_pages_away",
  numbers: { x64: 10, arm64: 226 }, // mprotect
  argument: 0, // PROT_NONE
};

export class Guard {
  readonly job: GuardJob;
  /** Whether there are guard pages, for --explain. */
  readonly note: string;
  readonly #arena: Arena;
  readonly #options: GuardOptions;
  readonly #native: readonly Kernel[];

  constructor({ arena, compiled, reports }: Layout, options: GuardOptions, host: NativeAccess) {
    this.job = { buffers: rangesOf(arena), kernels: compiled.kernels, reports: reports! };
    this.#arena = arena;
    this.#options = options;
    this.#native = compiled.nativeKernels;
    for (const { firstPage, from } of arena.guarded) arena.views.u8.fill(POISON, firstPage, from);
    const refused = guardPages(arena, host);
    const pages = refused === undefined ? "with guard pages" : `without guard pages (${refused})`;
    this.note = `guard mode: kernels are ${options.interpret ? "interpreted" : "checked"}, ${pages}`;
  }

  /** The leader's kernels: those of WebAssembly, and those that are machine code. */
  kernels(exported: Kernels, native: () => Kernels, target: KernelTarget): Kernels {
    const { buffers, kernels } = this.job;
    const { buffer } = this.#arena.memory;
    const made = this.#options.interpret
      ? interpretedCalls([...kernels, ...this.#native], buffers, buffer, {
          dot4: target.dot4,
          fused: target.name !== "wasm",
        })
      : { ...guardCalls(exported, this.job, buffer, 0), ...native() };
    const { onCall } = this.#options;
    return onCall ? told(made, onCall) : made;
  }

  /** After a batch: throws if something was written before a buffer. */
  check(): void {
    const { u8 } = this.#arena.views;
    for (const { name, firstPage, from } of this.#arena.guarded) {
      const start = Math.max(firstPage, from - WATCHED);
      const changed = u8.subarray(start, from).findIndex((byte) => byte !== POISON);
      if (changed >= 0) {
        throw new Error(
          `guard: something was written at ${start + changed}, ${from - start - changed} bytes before "${name}"`,
        );
      }
    }
  }
}

/** Protects the page after each buffer, and the very first page. A string: why that is not possible here. */
function guardPages({ guarded, memory }: Arena, host: NativeAccess): string | undefined {
  if (typeof host === "string") return host;
  const takeAway = memoryCall(host, protect);
  if (typeof takeAway === "string") return takeAway;
  const base = host.address(memory.buffer);
  const end = memory.buffer.byteLength;
  const starts = [
    ...guarded.map(({ guardPage }) => guardPage),
    (guarded[0]?.firstPage ?? 0) - PAGE,
  ];
  for (const page of starts) {
    if (page < 0 || page >= end) continue;
    const answer = takeAway(base + page, PAGE);
    if (answer !== 0) return `the system does not take pages away (${-answer})`;
  }
  return undefined;
}

function told(kernels: Kernels, onCall: NonNullable<GuardOptions["onCall"]>): Kernels {
  const calls = Object.entries(kernels).map(
    ([name, run]) =>
      [
        name,
        (...args: number[]) => {
          onCall(name, args);
          run(...args);
        },
      ] as const,
  );
  return Object.fromEntries(calls);
}
