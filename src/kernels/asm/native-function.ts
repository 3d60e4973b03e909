// A kernel as machine code: the result of the assemblers (x64.ts, arm64.ts), bytes and a name. It knows no processor and no
// file format. elf.ts makes a shared object of it; the calling convention is in lower/machine.ts.

/**
 * Position-independent code with its constants after it. The first byte is the entry, and must be aligned to 64 bytes, as
 * the constants are aligned relative to it.
 */
export interface NativeFunction {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}
