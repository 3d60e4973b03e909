// The model info about weights that stay on disk (docs/inside/disk.md).

import type { ModelInfo } from "../api/api.ts";
import type { Backend } from "../backends/backend.ts";
import { weightBytes } from "../graph/cost.ts";
import type { Graph } from "../graph/graph.ts";
import { diskTokensPerSecond } from "../limits/disk.ts";

/** undefined: all weights are in memory. */
export function diskInfo(
  backend: Backend,
  { weights }: Graph,
  bytesPerSecond: number | undefined,
): ModelInfo["disk"] {
  const use = backend.onDisk?.();
  if (!use) return undefined;
  const { fileBytes: diskBytes, batchBytes, tokenBytes, experts, isDirect } = use;
  const total = weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const speed = bytesPerSecond && {
    bytesPerSecond,
    tokensPerSecond: diskTokensPerSecond({ diskBytes: tokenBytes, bytesPerSecond }),
  };
  const own = experts && { experts: { ...experts } };
  const bytes = { memoryBytes: total - diskBytes, diskBytes, batchBytes, tokenBytes };
  return { ...bytes, isDirect, ...own, ...speed };
}
