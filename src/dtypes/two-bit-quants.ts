// Packs the 2-bit quants of a super-block (q2_k and q3_k) into 64 bytes: each half of 128 values takes 32 bytes, whose
// byte i holds value i of each of four sub-blocks of 32, the first sub-block in the lowest bits.

export function packTwoBitQuants(
  quants: Uint8Array | Int8Array, // [256], only the lowest two bits count
  dst: Uint8Array,
  at: number,
): void {
  for (let half = 0; half < 2; half++) {
    for (let i = 0; i < 32; i++) {
      const first = 128 * half + i;
      dst[at + 32 * half + i] =
        (quants[first]! & 3) |
        ((quants[first + 32]! & 3) << 2) |
        ((quants[first + 64]! & 3) << 4) |
        ((quants[first + 96]! & 3) << 6);
    }
  }
}
