// Scales that are powers of two (E8M0), in WGSL.

/** `fn halfPower(e)`: half the power of two that a byte stands for, 2^(e - 128); below the normal floats for e = 0 and 1. */
export const halfPowerText = `
fn halfPower(e: u32) -> f32 { return bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u)); }`;
