// A kernel as machine code: what the encoders (x64.ts, arm64.ts) hand to whoever makes it callable. It is bytes and a
// name; it knows no processor and no file format. What a call looks like is said in lower/machine.ts.

/**
 * Position-independent code with its constants behind it. The first byte is the entry, and has to lie on a multiple of
 * 64 bytes: constants are aligned to it.
 */
export interface NativeFunction {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}
