// Brings weights into the GPU's cache long before they are used. While a few workgroups of a layer kernel (layer.ts) compute attention, most have nothing to do, and
// neither has the memory: they load a word of each 64 bytes of what they will need in the second round of the matmul behind the next one.
// Weights of its first round are loaded into registers before it begins (matmul-chunks.ts), and those of the next matmul are.

/** A matmul of a layer kernel. */
interface TouchedRows {
  /** Workgroups that it would have: rounds of all workgroups together. */
  readonly rounds: number;
  /** Neighbouring rows of a round; twice as many where gate and up are stacked. */
  readonly rows: number;
  readonly isGated: boolean;
  /** Rows of gate: those of up follow. */
  readonly outputs: number;
  /** Vectors of 16 bytes of a row in `wide`. */
  readonly vectors: number;
  /** Lanes of a workgroup. */
  readonly size: number;
}

/** Vectors of 16 bytes that come into the cache together. */
const LINE = 4;

/** `fn touch`: four words that a lane loads. What they are does not matter, but somebody must use them, or they are not loaded. */
export function touchText({ rounds, rows, isGated, outputs, vectors, size }: TouchedRows): string {
  const lines = Math.floor((rows * vectors) / LINE);
  const regions = isGated ? 2 : 1;
  const loads = [0, 1, 2, 3].map((i) => {
    const line = `min(lane + ${Math.floor(i / regions) * size}u, ${lines - 1}u)`;
    return `wide[first + ${(i % regions) * outputs * vectors}u + ${line} * ${LINE}u].x`;
  });
  return `
fn touch(group: vec3u, groups: vec3u, lane: u32) -> vec4u {
  let first = min(group.x + groups.x, ${rounds - 1}u) * ${rows * vectors}u;
  return vec4u(${loads.join(", ")});
}`;
}
