// The WebGPU backend: weights as in the file, values and KV cache on the GPU; every op a WGSL kernel that is generated for
// this model when it is loaded. In Node through the npm package `webgpu` (Dawn), in a browser through navigator.gpu.
//
// A step is one submission: step data in, all kernels, logits out through one copy. Activations are rounded as the reference
// rounds them, to DType.activation; products and sums are those of floats (docs/gpu.md).

import { AbortedError, DisposedError } from "../../base/errors.ts";
import { type GraphNode, hiddenOf, type Value, type Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { Step } from "../../graph/step.ts";
import type {
  Backend,
  KvCacheOptions,
  MemoryNeed,
  MemoryUse,
  RunOptions,
  Tap,
  WeightReader,
} from "../backend.ts";
import { allocate, type Buffers, hasRoom, type Layout, layOut } from "./buffers.ts";
import type { GpuDevice } from "./device.ts";
import { supportsNode } from "./lower.ts";
import { encodeNode, makeProgram, type Program } from "./program.ts";
import { StepArea } from "./step-area.ts";
import { Uploader } from "./upload.ts";
import { MAP_READ } from "./usage.ts";

interface Prepared {
  readonly layout: Layout;
  readonly buffers: Buffers;
  readonly program: Program;
  readonly uploader: Uploader;
  readonly area: StepArea;
  /** The last step's output, mostly logits: [maxOutputs, vocab]. */
  readonly logits: Float32Array;
}

export class WebGpuBackend implements Backend {
  readonly name = "webgpu";
  /** Of the host: it only waits. */
  readonly threads = 1;
  readonly #gpu: GpuDevice;
  #layout: Layout | undefined;
  #prepared: Prepared | undefined;
  #disposed = false;

  /** Owns the GPU from here on: dispose() closes it. */
  constructor(gpu: GpuDevice) {
    this.#gpu = gpu;
  }

  supports(node: GraphNode): true | string {
    return supportsNode(node);
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    this.#alive();
    const { use } = this.#layOut(plan, kv);
    const { facts } = this.#gpu;
    return {
      ...use,
      // How much memory a GPU has, WebGPU does not say: prepare() finds out.
      limitBytes: facts.memoryBytes ?? Number.POSITIVE_INFINITY,
      deviceBytes: facts.isSoftware ? 0 : use.weightBytes + use.kvBytes + use.workBytes,
    };
  }

  async fits(plan: Plan, kv: KvCacheOptions): Promise<boolean> {
    this.#alive();
    return await hasRoom(this.#gpu, layOut(plan, kv, this.#gpu.facts));
  }

  async prepare(plan: Plan, kv: KvCacheOptions): Promise<void> {
    this.#alive();
    const layout = this.#layOut(plan, kv);
    try {
      const buffers = await allocate(this.#gpu, layout);
      const uploader = new Uploader(this.#gpu, layout.weights, buffers.weights);
      this.#prepared = {
        layout,
        buffers,
        program: await makeProgram(this.#gpu, layout, buffers),
        uploader,
        area: new StepArea(layout.step, uploader.vectors),
        logits: new Float32Array(mostRows(plan) * plan.graph.output.cols),
      };
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const { uploader } = this.#ready();
    try {
      await uploader.upload(weight, read);
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
  }

  async run(step: Step, { tap, stop, input, replace }: RunOptions = {}): Promise<void> {
    const prepared = this.#ready();
    if (stop?.()) throw new AbortedError("the step");
    const { layout, buffers, program, area, logits } = prepared;
    const { device } = this.#gpu;
    device.queue.writeBuffer(buffers.step, 0, area.fill(step));
    if (input) this.#write(layout.plan.graph.input!, input);
    if (tap) await this.#runTapped(step, prepared, tap, replace);
    const counts = { tokens: step.tokenCount, outputs: step.outputCount };
    const commands = device.createCommandEncoder();
    if (!tap) {
      const pass = commands.beginComputePass();
      for (const { dispatches } of program.nodes) encodeNode(pass, dispatches, counts);
      pass.end();
    }
    const { output } = layout.plan.graph;
    const values = counts[output.rows] * output.cols;
    await this.#submitAndRead(commands, output, 0, values, logits);
    if (stop?.()) throw new AbortedError("the step");
  }

  readLogits(row: number, target: Float32Array): void {
    const { layout, logits } = this.#ready();
    const { cols } = layout.plan.graph.output;
    target.set(logits.subarray(row * cols, (row + 1) * cols));
  }

  async readHidden(row: number, target: Float32Array): Promise<void> {
    const { layout } = this.#ready();
    const hidden = hiddenOf(layout.plan.graph)!;
    const commands = this.#gpu.device.createCommandEncoder();
    await this.#submitAndRead(commands, hidden, row * hidden.cols, hidden.cols, target);
  }

  copyKvBlock(from: number, to: number): void {
    const { layout, buffers } = this.#ready();
    const { device } = this.#gpu;
    const bytes = layout.kvBlockBytes;
    const commands = device.createCommandEncoder();
    for (const layer of [...buffers.keys, ...buffers.values]) {
      commands.copyBufferToBuffer(layer, from * bytes, buffers.block, 0, bytes);
      commands.copyBufferToBuffer(buffers.block, 0, layer, to * bytes, bytes);
    }
    device.queue.submit([commands.finish()]); // before the next step, which is submitted later
  }

  memory(): MemoryUse {
    return this.#prepared?.layout.use ?? { weightBytes: 0, kvBytes: 0, workBytes: 0 };
  }

  explain(): readonly string[] {
    const { facts } = this.#gpu;
    const kind = facts.isSoftware ? "a software adapter: right, and slow" : facts.vendor;
    return [
      `GPU ${facts.name} (${kind}), ${facts.driver}`,
      "products in floats, of activations that are rounded as on the CPU",
      ...(this.#prepared ? explainProgram(this.#prepared) : []),
    ];
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#prepared = undefined;
    this.#layout = undefined;
    this.#gpu.dispose(); // and with it every buffer
  }

  /** Submits `commands` with a copy of `count` floats of a value after them, and waits for it. */
  async #submitAndRead(
    commands: GPUCommandEncoder,
    value: Value,
    from: number,
    count: number,
    target: Float32Array,
  ): Promise<void> {
    const { layout, buffers } = this.#ready();
    const { queue } = this.#gpu.device;
    const slot = buffers.slots[layout.plan.slotOf[value.id]!]!;
    const bytes = count * 4;
    if (count > 0) commands.copyBufferToBuffer(slot, from * 4, buffers.read, 0, bytes);
    queue.submit([commands.finish()]);
    try {
      if (count === 0) {
        await queue.onSubmittedWorkDone();
      } else {
        await buffers.read.mapAsync(MAP_READ, 0, bytes);
        target.set(new Float32Array(buffers.read.getMappedRange(0, bytes)));
        buffers.read.unmap();
      }
    } catch (error) {
      throw await this.#gpu.explain(error);
    }
    this.#gpu.check();
  }

  /** One node after the other, each value read back right after it. */
  async #runTapped(
    step: Step,
    { program }: Prepared,
    tap: Tap,
    replace: RunOptions["replace"],
  ): Promise<void> {
    const counts = { tokens: step.tokenCount, outputs: step.outputCount };
    for (const { node, dispatches } of program.nodes) {
      const commands = this.#gpu.device.createCommandEncoder();
      const pass = commands.beginComputePass();
      encodeNode(pass, dispatches, counts);
      pass.end();
      if (!node.out) {
        this.#gpu.device.queue.submit([commands.finish()]);
        continue;
      }
      const data = new Float32Array(counts[node.out.rows] * node.out.cols);
      await this.#submitAndRead(commands, node.out, 0, data.length, data);
      tap(node.out, data);
      const instead = replace?.(node.out);
      if (instead) this.#write(node.out, instead);
    }
  }

  /** Whole rows of a value, from the host. */
  #write(value: Value, rows: Float32Array): void {
    const { layout, buffers } = this.#ready();
    const slot = buffers.slots[layout.plan.slotOf[value.id]!]!;
    this.#gpu.device.queue.writeBuffer(slot, 0, rows as Float32Array<ArrayBuffer>);
  }

  #layOut(plan: Plan, kv: KvCacheOptions): Layout {
    const known = this.#layout;
    if (known?.plan === plan && known.kv.blocks === kv.blocks && known.kv.dtype === kv.dtype) {
      return known;
    }
    this.#layout = layOut(plan, kv, this.#gpu.facts);
    return this.#layout;
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the WebGPU backend");
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("webgpu backend: run() before prepare()");
    return this.#prepared;
  }
}

function mostRows({ graph, limits }: Plan): number {
  return graph.output.rows === "tokens" ? limits.maxTokens : limits.maxOutputs;
}

function explainProgram({ layout, program }: Prepared): string[] {
  const { weights } = layout;
  const split = [...weights.parts].filter(([, parts]) => parts.length > 1);
  return [
    `${weights.buffers.length} buffers of weights, ${program.pipelines} shaders`,
    ...split.map(([name, parts]) => `${name}: in ${parts.length} parts, larger than a binding`),
    ...program.nodes.map(({ node, dispatches }) => {
      return `${node.name}: ${dispatches.map(({ kernel }) => kernel.name).join(", ")}`;
    }),
  ];
}
