// How many storage buffers a shader may bind differs between devices: an op that needs more is refused with both numbers. Needs no
// GPU.

import { expect, test } from "vitest";
import { layOutBatch } from "../../src/backends/webgpu/batch-area.ts";
import { supportsNode } from "../../src/backends/webgpu/ops/table.ts";
import type { Kernel } from "../../src/backends/webgpu/wgsl/kernel.ts";
import { deltaNetKernel, ssmScanKernel, wkvKernel } from "../../src/backends/webgpu/wgsl/scan.ts";
import type { ScanContext } from "../../src/backends/webgpu/wgsl/scan-shape.ts";
import { exchangeFor } from "../../src/backends/webgpu/wgsl/subgroups.ts";
import type { GraphNode } from "../../src/graph/graph.ts";
import { opCases } from "../conformance/op-cases.ts";
import { opModel } from "../conformance/table.ts";

const kernels = { ssm_scan: ssmScanKernel, delta_net: deltaNetKernel, wkv: wkvKernel };

test.each(Object.keys(kernels) as (keyof typeof kernels)[])(
  "%s is refused where shaders bind fewer storage buffers than its kernel",
  (op) => {
    const { graph } = opModel(op, opCases[op]);
    const batch = layOutBatch(graph, { maxTokens: 4, maxOutputs: 4 }, 4);
    const context = { batch, exchange: exchangeFor(undefined), workgroupBytes: 16_384 };
    const make = kernels[op] as (node: GraphNode, context: ScanContext) => Kernel;
    const nodes = graph.nodes.filter((node) => node.op === op);
    expect(nodes.length).toBeGreaterThan(1);
    for (const node of nodes) {
      const { length: needed } = make(node, context).sources;
      expect(supportsNode(node, needed)).toBe(true);
      expect(supportsNode(node, needed - 1)).toBe(
        `the GPU's shaders bind at most ${needed - 1} storage buffers, and "${op}" needs ${needed}`,
      );
    }
  },
);
