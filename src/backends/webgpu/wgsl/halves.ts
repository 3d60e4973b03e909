// WGSL that rounds floats to the nearest half float by integer ops: a device's own conversion may round in any direction, and
// NVIDIA's truncates. The device's conversion then only packs values that are half floats already.

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

/** `fn half(bits: u32) -> f32`: what 16 bits stand for. */
export const halfText = `fn half(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) {
    return select(1.0, -1.0, sign != 0u) * f32(magnitude) * 5.9604644775390625e-8;
  }
  return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u));
}`;
