// In which order and with which roundings the CPU's kernels add up: what another device must know to compute the same bits. Kernels
// are described once for vectors of any width (ops/), so this is little: whether a multiply-add rounds once, and how many lanes
// the sums of a kernel have. Matmuls add up each row in the order of its columns, whatever computes them.

export interface Arithmetic {
  /** f32v.fma rounds once. */
  readonly fused: boolean;
  /** 32-bit lanes of the vectors of a kernel that is not a matmul, which is called for values in these numbers. */
  lanes(kernel: string, counts: readonly number[]): number;
}
