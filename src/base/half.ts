// Half floats: IEEE binary16 (F16) and bfloat16 (BF16) to and from float32, exact, round to nearest even.
//
// F16 -> F32 is a table of 65,536 floats (256 KiB): every quantized block has one or two half floats, and a lookup is faster
// than arithmetic. Each thread builds it at its first lookup; most have none, as kernels convert by themselves.

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);

let f16Table: Float32Array | undefined;

/** The value of the half float with these 16 bits. */
export function f16ToF32(bits: number): number {
  f16Table ??= buildF16Table();
  return f16Table[bits]!;
}

/** The 16 bits of the half float nearest to `value`; overflow becomes infinity, NaN stays NaN. */
export function f32ToF16(value: number): number {
  scratchF32[0] = value;
  const bits = scratchU32[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00; // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // Below 2^-14: subnormal half. Adding 0.5 makes the FPU round at bit 2^-24, which is a half's last bit there.
    scratchU32[0] = magnitude;
    scratchF32[0] = scratchF32[0]! + 0.5;
    return sign | (scratchU32[0]! - 0x3f000000);
  }
  const lastKept = (magnitude >>> 13) & 1;
  return sign | ((magnitude - 0x38000000 + 0xfff + lastKept) >>> 13);
}

/** The value of the bfloat16 with these 16 bits. */
export function bf16ToF32(bits: number): number {
  scratchU32[0] = bits << 16;
  return scratchF32[0]!;
}

/** The 16 bits of the bfloat16 nearest to `value`; NaN stays a quiet NaN. */
export function f32ToBf16(value: number): number {
  scratchF32[0] = value;
  const bits = scratchU32[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function buildF16Table(): Float32Array {
  // As bits: powers take ten times as long.
  const table = new Float32Array(65536);
  const words = new Uint32Array(table.buffer);
  for (let bits = 0; bits < 0x8000; bits++) {
    const fraction = bits & 0x3ff;
    if (bits < 0x400) table[bits] = fraction * 2 ** -24;
    else if (bits < 0x7c00) words[bits] = (bits << 13) + (112 << 23);
    else words[bits] = fraction === 0 ? 0x7f800000 : 0x7fc00000;
    words[bits | 0x8000] = bits > 0x7c00 ? 0x7fc00000 : (words[bits]! | 0x80000000) >>> 0;
  }
  return table;
}
