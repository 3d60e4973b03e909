// The scans on the GPU: the shapes that they refuse, and their kernels (../wgsl/scan.ts).

import type { Weight } from "../../../graph/graph.ts";
import { deltaNetKernel, MOST_KEYS, SCAN_BUFFERS, ssmScanKernel, wkvKernel } from "../wgsl/scan.ts";
import type { GpuOp } from "./op.ts";

export const ssmScan: GpuOp<"ssm_scan"> = {
  supports: ({ a, states }) => fits(states) ?? isFloat(a) ?? true,
  lower: (node, context) => [ssmScanKernel(node, context)],
  inline: (node, inlined, context) => ssmScanKernel(node, context, inlined),
  buffers: () => SCAN_BUFFERS + 6,
};

export const deltaNet: GpuOp<"delta_net"> = {
  supports: ({ k, keyHeads }) => fits(k.cols / keyHeads) ?? true,
  lower: (node, context) => [deltaNetKernel(node, context)],
  inline: (node, inlined, context) => deltaNetKernel(node, context, inlined),
  buffers: () => SCAN_BUFFERS + 6,
};

export const wkv: GpuOp<"wkv"> = {
  supports: ({ v, heads }) => fits(v.cols / heads) ?? true,
  lower: (node, context) => [wkvKernel(node, context)],
  inline: (node, inlined, context) => wkvKernel(node, context, inlined),
  buffers: ({ bonus }) => SCAN_BUFFERS + (bonus ? 5 : 6),
};

function fits(keys: number): string | undefined {
  if (keys <= MOST_KEYS) return undefined;
  return `the GPU scans states of at most ${MOST_KEYS} keys, got ${keys}`;
}

function isFloat({ dtype, shape }: Weight): string | undefined {
  if (shape.length === 1 || dtype.asFloat32) return undefined;
  return `the GPU does not read decays of ${dtype.name}`;
}
