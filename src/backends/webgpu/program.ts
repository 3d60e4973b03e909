// The plan as the GPU runs it: for every node its kernels with pipeline and bindings, all made when the model is loaded.
// A step only encodes them: nothing is created for it but the command buffer.

import type { GraphNode } from "../../graph/graph.ts";
import type { Buffers, Layout } from "./buffers.ts";
import type { GpuDevice } from "./device.ts";
import { lowerNode } from "./lower.ts";
import { usage } from "./usage.ts";
import type { Kernel, Source } from "./wgsl/kernel.ts";

/** One kernel, ready to run. */
export interface Dispatch {
  readonly kernel: Kernel;
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
}

export interface Program {
  /** In the graph's order. */
  readonly nodes: readonly { readonly node: GraphNode; readonly dispatches: readonly Dispatch[] }[];
  /** How many different shaders there are. */
  readonly pipelines: number;
}

export async function makeProgram(
  gpu: GpuDevice,
  layout: Layout,
  buffers: Buffers,
): Promise<Program> {
  const { device } = gpu;
  const context = {
    parts: layout.weights.parts,
    step: layout.step,
    kv: layout.kvFormat,
    rounded: {},
  };
  const tables = new Map<Uint32Array, GPUBuffer>();
  // Layers differ in what they bind, not in their text: each text is compiled once, all at the same time.
  const pipelines = new Map<string, Promise<GPUComputePipeline>>();
  const pipelineOf = (kernel: Kernel): Promise<GPUComputePipeline> => {
    const known = pipelines.get(kernel.code);
    if (known) return known;
    const made = compile(device, kernel);
    pipelines.set(kernel.code, made);
    return made;
  };
  const ready = async (kernel: Kernel): Promise<Dispatch> => {
    const pipeline = await pipelineOf(kernel);
    const bindings = device.createBindGroup({
      label: kernel.name,
      layout: pipeline.getBindGroupLayout(0),
      entries: kernel.sources.map((source, binding) => ({
        binding,
        resource: resourceOf(source, device, layout, buffers, tables),
      })),
    });
    return { kernel, pipeline, bindings };
  };
  const lowered = layout.plan.graph.nodes.map((node) => ({
    node,
    kernels: lowerNode(node, context),
  }));
  const nodes = await Promise.all(
    lowered.map(async ({ node, kernels }) => ({
      node,
      dispatches: await Promise.all(kernels.map(ready)),
    })),
  );
  return { nodes, pipelines: pipelines.size };
}

async function compile(device: GPUDevice, { name, code }: Kernel): Promise<GPUComputePipeline> {
  const module = device.createShaderModule({ label: name, code });
  try {
    return await device.createComputePipelineAsync({
      label: name,
      layout: "auto",
      compute: { module, entryPoint: "main" },
    });
  } catch (cause) {
    // What is wrong with a text is only told when it is asked for.
    const { messages } = await module.getCompilationInfo();
    const facts = messages.map(({ lineNum, message }) => `line ${lineNum}: ${message}`);
    throw new Error(`webgpu: kernel "${name}" was refused. ${facts.join("; ")}`, { cause });
  }
}

type Resources = {
  readonly [K in Source["kind"]]: (source: Extract<Source, { kind: K }>) => GPUBufferBinding;
};

function resourceOf(
  source: Source,
  device: GPUDevice,
  { plan, weights }: Layout,
  buffers: Buffers,
  tables: Map<Uint32Array, GPUBuffer>,
): GPUBufferBinding {
  const resources: Resources = {
    value: ({ value }) => ({ buffer: buffers.slots[plan.slotOf[value.id]!]! }),
    weight: ({ weight, part }) => {
      const { buffer, offset, bytes } = weights.parts.get(weight.name)![part]!;
      return { buffer: buffers.weights[buffer]!, offset, size: bytes };
    },
    keys: ({ layer }) => ({ buffer: buffers.keys[layer]! }),
    values: ({ layer }) => ({ buffer: buffers.values[layer]! }),
    step: () => ({ buffer: buffers.step }),
    rounded: () => ({ buffer: buffers.rounded }),
    table: ({ words }) => ({ buffer: tableBuffer(words, device, tables) }),
  };
  return (resources[source.kind] as (source: Source) => GPUBufferBinding)(source);
}

/** Codebooks are the same for all weights of a type. */
function tableBuffer(
  words: Uint32Array,
  device: GPUDevice,
  tables: Map<Uint32Array, GPUBuffer>,
): GPUBuffer {
  const known = tables.get(words);
  if (known) return known;
  const buffer = device.createBuffer({
    label: "codebook",
    size: words.byteLength,
    usage: usage.storage | usage.copyTarget,
  });
  device.queue.writeBuffer(buffer, 0, words as Uint32Array<ArrayBuffer>);
  tables.set(words, buffer);
  return buffer;
}

/** Encodes the kernels of one node for a step of this size. */
export function encodeNode(
  pass: GPUComputePassEncoder,
  dispatches: readonly Dispatch[],
  counts: { readonly tokens: number; readonly outputs: number },
): void {
  for (const { kernel, pipeline, bindings } of dispatches) {
    const rows = counts[kernel.rows];
    if (rows < kernel.minRows || rows > kernel.maxRows) continue;
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(...kernel.grid(rows));
  }
}
