// WGSL that rounds to half floats by their bits: which way a device's own conversion rounds is its choice, and NVIDIA's cuts
// off. The device packs what is a half float already.

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
