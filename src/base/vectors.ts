// Arithmetic on embeddings: scaling by one of llama.cpp's norms, and the cosine of two vectors.

/** llama.cpp's numbers: -1 none, 0 the largest value becomes 32760, 1 taxicab, 2 Euclidean, p the p-norm. */
export type EmbeddingNorm = number;

/** The largest value of int16 that norm 0 uses. */
const INT16_SCALE = 32760;

/** A copy, scaled so that its norm is 1. A vector of zeros stays one. */
export function normalized(vector: Float32Array, norm: EmbeddingNorm): Float32Array {
  const length = lengthOf(vector, norm);
  const scale = length > 0 ? 1 / length : 0;
  return vector.map((value) => value * scale);
}

function lengthOf(vector: Float32Array, norm: EmbeddingNorm): number {
  if (norm === -1) return 1;
  const largest = vector.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (norm === 0 || largest === 0) return largest / INT16_SCALE;
  // Relative to the largest, so that no power of it leaves the range of numbers.
  let sum = 0;
  for (const value of vector) sum += (Math.abs(value) / largest) ** norm;
  return largest * sum ** (1 / norm);
}

/**
 * The similarity of two embeddings: the cosine of the angle between them, from -1 to 1. Of two vectors of zeros it is 1, of one it
 * is 0, as in llama.cpp.
 */
export function cosineSimilarity(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [dot, squaresA, squaresB] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i]! * b[i]!;
    squaresA += a[i]! * a[i]!;
    squaresB += b[i]! * b[i]!;
  }
  if (squaresA === 0 || squaresB === 0) return squaresA === squaresB ? 1 : 0;
  return dot / Math.sqrt(squaresA * squaresB);
}
