// The benchmark of single matmuls as the public API has it. What it needs (backends, kernels) is loaded when it is
// called: a page that only opens models, whose backends live on threads of their own, never loads it here.

import type { MatmulBenchOptions, MatmulSpeed } from "../../api/api.ts";

/** The speed of one matmul on this machine; keeps the calling thread busy meanwhile. */
export async function benchMatmul(options: MatmulBenchOptions): Promise<MatmulSpeed> {
  const { measureMatmul } = await import("./matmul.ts");
  return await measureMatmul(options);
}
