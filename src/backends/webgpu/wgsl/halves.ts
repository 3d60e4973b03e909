// WGSL that rounds floats to the nearest half float by integer ops: a device's own conversion may round in any direction, and
// NVIDIA's truncates. The device's conversion then only packs values that are half floats already.

/** The smallest magnitude that rounds to an infinite half. */
export const BEYOND_HALF = 65520;

/** `fn nearestHalf(value: f32) -> f32`, and `fn packHalves(values: vec2f) -> u32`. */
export const nearestHalfText = `
fn nearestHalf(value: f32) -> f32 {
  if (abs(value) < 6.103515625e-5) { return round(value * 16777216.0) * 5.9604644775390625e-8; }
  let bits = bitcast<u32>(value);
  return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}
fn packHalves(values: vec2f) -> u32 {
  return pack2x16float(vec2f(nearestHalf(values.x), nearestHalf(values.y)));
}`;

/**
 * With nearestHalfText: the same for activations, which become NaN if F16 cannot hold them. So do the logits then, and the
 * batch is computed again by kernels that leave such rows as they are (Backend.widen).
 */
export const activationHalfText = `
const LARGEST_HALF = 65504.0;
fn activationHalf(value: f32) -> f32 {
  let nearest = nearestHalf(value);
  return bitcast<f32>(bitcast<u32>(nearest) | select(0u, 0x7fc00000u, abs(nearest) > LARGEST_HALF));
}
fn packActivations(values: vec2f) -> u32 {
  let nearest = vec2f(nearestHalf(values.x), nearestHalf(values.y));
  let beyond = select(vec2u(0u), vec2u(0x7e00u, 0x7e000000u), abs(nearest) > vec2f(LARGEST_HALF));
  return pack2x16float(nearest) | beyond.x | beyond.y;
}`;

/** `fn half(bits: u32) -> f32`: the value of 16 bits. */
export const halfText = `fn half(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) {
    return select(1.0, -1.0, sign != 0u) * f32(magnitude) * 5.9604644775390625e-8;
  }
  return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u));
}`;
