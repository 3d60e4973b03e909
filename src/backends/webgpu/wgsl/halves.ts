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
