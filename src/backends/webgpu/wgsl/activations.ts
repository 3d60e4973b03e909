// WGSL that reads rows of activations, for matmuls and for their rounding.

/** `fn activation4(token, i)`: four activations from column i on; zeros after the last. */
export function activationText(cols: number): string {
  if (cols % 4 === 0) {
    return `
fn activation4(token: u32, i: u32) -> vec4f { return x[token * ${cols / 4}u + i / 4u]; }`;
  }
  return `
fn activation(token: u32, i: u32) -> f32 {
  if (i >= ${cols}u) { return 0.0; }
  return x[token * ${cols}u + i];
}
fn activation4(token: u32, i: u32) -> vec4f {
  return vec4f(activation(token, i), activation(token, i + 1u), activation(token, i + 2u), activation(token, i + 3u));
}`;
}
