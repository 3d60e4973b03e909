// Brings the matrices of a batch's layers to the GPU while it computes: pieces are read from the file straight into mapped memory,
// several at a time and in order, copied from there into the slot of their layer and cut into planes (cut-planes.ts). A piece of a
// layer is copied once the kernels of the layer that had the slot before it are submitted: the queue keeps that order.
//
// It follows one batch at a time: begin(), then for each layer ready() and done(), then end().

import { AbortedError } from "../../../base/errors.ts";
import type { GpuDevice } from "../device.ts";
import { MAP_WRITE, usage } from "../usage.ts";
import type { WeightLayout } from "../weight-layout.ts";
import { cutGroups, cutPlaneText } from "./cut-planes.ts";
import {
  STREAM_PIECE,
  STREAM_SLOTS,
  STREAM_STAGES,
  type StreamPiece,
  type StreamTarget,
  streamPieces,
} from "./stream-layout.ts";
import type { StreamSource } from "./stream-source.ts";

/** Memory that the host fills and the GPU copies from. */
interface Stage {
  readonly buffer: GPUBuffer;
  /** Resolves when the host may fill it. */
  mapped: Promise<undefined>;
}

/** A batch on its way. */
interface Batch {
  next: number;
  /** Pieces of each unit that are not copied yet. */
  readonly left: number[];
  /** By unit: all of it is copied; its kernels are submitted. */
  readonly copied: readonly PromiseWithResolvers<void>[];
  readonly computed: readonly PromiseWithResolvers<void>[];
  isStopped: boolean;
  work: Promise<unknown>;
}

export class WeightStream {
  /** Bytes that were copied to the GPU so far. */
  copiedBytes = 0;
  readonly #gpu: GpuDevice;
  readonly #weights: readonly GPUBuffer[];
  readonly #source: StreamSource;
  readonly #pieces: readonly StreamPiece[];
  readonly #stages: readonly Stage[];
  /** A piece before it is cut into planes. */
  readonly #raw: GPUBuffer;
  readonly #pipelines: ReadonlyMap<string, GPUComputePipeline>;
  readonly #bindings = new Map<StreamTarget, GPUBindGroup>();
  readonly #units: number;
  #batch: Batch | undefined;

  private constructor(
    gpu: GpuDevice,
    layout: WeightLayout,
    weights: readonly GPUBuffer[],
    source: StreamSource,
    pipelines: ReadonlyMap<string, GPUComputePipeline>,
  ) {
    const { device } = gpu;
    this.#gpu = gpu;
    this.#weights = weights;
    this.#source = source;
    this.#pieces = streamPieces(layout);
    this.#units = layout.streamed?.units.length ?? 0;
    this.#pipelines = pipelines;
    this.#raw = device.createBuffer({
      label: "streamed blocks",
      size: STREAM_PIECE,
      usage: usage.storage | usage.copyTarget,
    });
    this.#stages = Array.from({ length: STREAM_STAGES }, (_, i) => {
      const buffer = device.createBuffer({
        label: `stage ${i}`,
        size: STREAM_PIECE,
        usage: usage.mapWrite | usage.copySource,
      });
      return { buffer, mapped: mapped(gpu, buffer) };
    });
  }

  static async make(
    gpu: GpuDevice,
    layout: WeightLayout,
    weights: readonly GPUBuffer[],
    source: StreamSource,
  ): Promise<WeightStream> {
    const texts = new Set(
      streamPieces(layout).flatMap(({ to }) => to.map(({ plane }) => plane && cutPlaneText(plane))),
    );
    texts.delete(undefined);
    const pipelines = await gpu.wait(
      Promise.all(
        [...(texts as Set<string>)].map(async (code) => {
          const module = gpu.device.createShaderModule({ label: "cut planes", code });
          const compute = { module, entryPoint: "main" };
          const made = gpu.device.createComputePipelineAsync({ layout: "auto", compute });
          return [code, await made] as const;
        }),
      ),
    );
    return new WeightStream(gpu, layout, weights, source, new Map(pipelines));
  }

  /** Bytes that every batch copies. */
  get batchBytes(): number {
    return this.#pieces.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Starts to read the first layers. */
  begin(): void {
    this.#source.check();
    const left = new Array<number>(this.#units).fill(0);
    for (const { unit } of this.#pieces) left[unit]!++;
    const gates = () =>
      Array.from({ length: this.#units }, () => {
        const gate = Promise.withResolvers<void>();
        gate.promise.catch(() => {}); // the waiting code has the error
        return gate;
      });
    const batch: Batch = {
      ...{ next: 0, left, copied: gates(), computed: gates() },
      isStopped: false,
      work: Promise.resolve(),
    };
    this.#batch = batch;
    batch.work = Promise.all(this.#stages.map((stage) => this.#fill(batch, stage)));
  }

  /** Waits until all matrices of a layer are on their way before the next submission. */
  async ready(unit: number): Promise<void> {
    await this.#batch!.copied[unit]!.promise;
  }

  /** The kernels of a layer are submitted. */
  done(unit: number): void {
    this.#batch!.computed[unit]!.resolve();
  }

  /** Ends the batch, computed or not: nothing is read into mapped memory after it. */
  async end(): Promise<void> {
    const batch = this.#batch;
    if (!batch) return;
    stop(batch, new AbortedError("the batch"));
    await batch.work;
    if (this.#batch === batch) this.#batch = undefined;
  }

  async #fill(batch: Batch, stage: Stage): Promise<void> {
    try {
      for (;;) {
        const piece = this.#pieces[batch.next];
        if (!piece || batch.isStopped) return;
        batch.next++;
        await stage.mapped;
        if (batch.isStopped) return;
        const { buffer } = stage;
        const target = new Uint8Array(buffer.getMappedRange(), 0, piece.bytes);
        await this.#source.read(piece.weight, target, piece.at);
        const before = piece.unit - STREAM_SLOTS;
        if (before >= 0) await batch.computed[before]!.promise;
        buffer.unmap();
        if (!batch.isStopped) this.#copy(piece, buffer);
        stage.mapped = mapped(this.#gpu, buffer);
        if (--batch.left[piece.unit]! === 0) batch.copied[piece.unit]!.resolve();
      }
    } catch (error) {
      // A stage that is still mapped is mapped anew for the next batch.
      stage.buffer.unmap();
      stage.mapped = mapped(this.#gpu, stage.buffer);
      stop(batch, error);
    }
  }

  #copy({ to, bytes }: StreamPiece, stage: GPUBuffer): void {
    const commands = this.#gpu.device.createCommandEncoder();
    const [first] = to;
    if (!first!.plane) {
      const { buffer, offset } = first!;
      commands.copyBufferToBuffer(stage, 0, this.#weights[buffer]!, offset, first!.bytes);
    } else {
      commands.copyBufferToBuffer(stage, 0, this.#raw, 0, Math.ceil(bytes / 4) * 4);
      const pass = commands.beginComputePass();
      for (const target of to) {
        pass.setPipeline(this.#pipelines.get(cutPlaneText(target.plane!))!);
        pass.setBindGroup(0, this.#bind(target));
        pass.dispatchWorkgroups(cutGroups(target.bytes));
      }
      pass.end();
    }
    this.#gpu.device.queue.submit([commands.finish()]);
    this.copiedBytes += bytes;
  }

  #bind(target: StreamTarget): GPUBindGroup {
    const known = this.#bindings.get(target);
    if (known) return known;
    const { buffer, offset, bytes, plane } = target;
    const made = this.#gpu.device.createBindGroup({
      layout: this.#pipelines.get(cutPlaneText(plane!))!.getBindGroupLayout(0),
      entries: [
        { binding: 0, resource: { buffer: this.#raw } },
        { binding: 1, resource: { buffer: this.#weights[buffer]!, offset, size: bytes } },
      ],
    });
    this.#bindings.set(target, made);
    return made;
  }
}

function mapped(gpu: GpuDevice, buffer: GPUBuffer): Promise<undefined> {
  const promise = gpu.wait(buffer.mapAsync(MAP_WRITE));
  promise.catch(() => {}); // who fills it has the error
  return promise;
}

function stop(batch: Batch, reason: unknown): void {
  batch.isStopped = true;
  for (const gate of [...batch.copied, ...batch.computed]) gate.reject(reason);
}
