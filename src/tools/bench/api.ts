// The public API of the matmul benchmark. Backends and kernels are loaded when it is called: a page that only opens models never
// loads them here, because their backends run on other threads.

import type { MatmulBenchOptions, MatmulSpeed, RegisterTile } from "../../api/api.ts";

/** The default size, for `lantern bench matmul` and the bench cases of test/conformance. */
export const matmulBenchShape: Readonly<Pick<MatmulBenchOptions, "n" | "k" | "m">> = {
  n: 4096,
  k: 4096,
  m: 128,
};

/** The speed of one matmul on this machine; blocks the calling thread meanwhile. */
export async function benchMatmul(options: MatmulBenchOptions): Promise<MatmulSpeed> {
  const { measureMatmul } = await import("./matmul.ts");
  return await measureMatmul(options);
}

/** The register tiles that an opt level has for a matmul on this machine; [] for opt level 1. */
export async function matmulTiles(
  options: Pick<MatmulBenchOptions, "type" | "n" | "k" | "m" | "level">,
): Promise<RegisterTile[]> {
  const { tilesOf } = await import("./matmul.ts");
  return await tilesOf(options);
}
