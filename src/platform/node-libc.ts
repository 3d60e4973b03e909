// The few C library calls that Node does not offer: sealable memory files, and descriptors that Node does not close
// when the thread that opened them ends. Linux only; -1 is failure, as in C.

import * as fs from "node:fs";

/** The part of node:ffi that is used; it is experimental and has no types yet. */
export interface Ffi {
  /** null: this program with everything it is linked with, including the C library. */
  readonly DynamicLibrary: new (
    path: string | null,
  ) => FfiLibrary;
  getRawPointer(memory: ArrayBufferLike | Uint8Array): bigint;
}

export interface FfiLibrary {
  getSymbol(name: string): bigint;
  getFunction(
    name: string,
    signature: { arguments: readonly string[]; return: string },
  ): (...values: (number | bigint)[]) => unknown;
}

export interface Libc {
  /** An empty file in memory that can be sealed and, where Linux supports that, not executed as a program. */
  memoryFile(name: string): number;
  /** Prevents any later change of the file's content, size or seals; returns whether that worked. */
  seal(descriptor: number): boolean;
  isSealed(descriptor: number): boolean;
  /** Opens for reading; does not follow a link or wait for a pipe. */
  open(path: string): number;
  close(descriptor: number): void;
}

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const MFD_NOEXEC_SEAL = 8; // since Linux 6.3
const F_ADD_SEALS = 1033;
const F_GET_SEALS = 1034;
const SEALS = 1 | 2 | 4 | 8; // no more seals, no shrinking, no growing, no writing
const O_CLOEXEC = 0o2000000;

/** undefined: this program has no such calls (another C library, or an old one). */
export function libcCalls(ffi: Ffi): Libc | undefined {
  try {
    const libc = new ffi.DynamicLibrary(null);
    const call = (name: string, ...types: string[]) =>
      libc.getFunction(name, { arguments: types, return: "i32" }) as (
        ...values: (number | bigint)[]
      ) => number;
    const create = call("memfd_create", "pointer", "u32");
    const control = call("fcntl", "i32", "i32", "i32");
    const open = call("open", "pointer", "i32");
    const close = call("close", "i32");
    const withText = (text: string, work: (pointer: bigint) => number): number => {
      const bytes = Buffer.from(`${text}\0`);
      const result = work(ffi.getRawPointer(bytes));
      return bytes.length > 0 ? result : -1; // the text is alive until here
    };
    const isSealed = (descriptor: number): boolean => {
      const seals = control(descriptor, F_GET_SEALS, 0);
      return seals >= 0 && (seals & SEALS) === SEALS;
    };
    return {
      memoryFile: (name) =>
        withText(name, (pointer) => {
          const flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
          const descriptor = create(pointer, flags | MFD_NOEXEC_SEAL);
          return descriptor >= 0 ? descriptor : create(pointer, flags);
        }),
      seal: (descriptor) => control(descriptor, F_ADD_SEALS, SEALS) === 0 && isSealed(descriptor),
      isSealed,
      open: (path) => {
        const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
        return withText(path, (pointer) =>
          open(pointer, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
        );
      },
      close: (descriptor) => void close(descriptor),
    };
  } catch {
    return undefined;
  }
}
