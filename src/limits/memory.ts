// How much fits beside the weights: tokens of KV cache in what they leave of a device's memory. Activations are left out;
// they are small beside either.

/** Tokens that fit; undefined when the weights alone do not. */
export function tokensThatFit(
  memoryBytes: number,
  weightBytes: number,
  kvBytesPerToken: number,
): number | undefined {
  const left = memoryBytes - weightBytes;
  return left < 0 ? undefined : Math.floor(left / kvBytesPerToken);
}
