// The order and roundings in which the CPU's kernels add up, which another device must know to compute the same bits. Kernels are
// described once for vectors of any width (ops/), so this is little: whether a multiply-add rounds once, and the number of lanes that the
// sums of a kernel have. Matmuls on every device add up each row in the order of its columns.

export interface Arithmetic {
  /** f32v.fma rounds once. */
  readonly fused: boolean;
  /** 32-bit lanes of the vectors of a kernel that is not a matmul, which is called for values in these numbers. */
  lanes(kernel: string, counts: readonly number[]): number;
}
