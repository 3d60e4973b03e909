// Times each kernel of a batch by timestamp queries, every dispatch in a compute pass of its own. For measuring only: passes
// cost time, so the sum is more than the time of the batch.

import type { RowCounts } from "../../graph/batch.ts";
import type { GpuDevice } from "./device.ts";
import { type Dispatch, encodePart, gridIn, type Program, runsIn } from "./program.ts";
import type { KernelFilter } from "./tuning.ts";
import { MAP_READ, usage } from "./usage.ts";
import type { Kernel } from "./wgsl/kernel.ts";

export interface KernelTime {
  readonly kernel: Kernel;
  readonly microseconds: number;
}

/** The most queries of a query set. */
const MOST_QUERIES = 4096;

export async function timeKernels(
  gpu: GpuDevice,
  program: Program,
  counts: RowCounts,
): Promise<KernelTime[]> {
  const { device } = gpu;
  const run = dispatchesOf(program, counts, () => true).slice(0, MOST_QUERIES / 2);
  const bytes = run.length * 16;
  const querySet = device.createQuerySet({ type: "timestamp", count: run.length * 2 });
  const resolved = device.createBuffer({
    size: bytes,
    usage: usage.queryResolve | usage.copySource,
  });
  const read = device.createBuffer({ size: bytes, usage: usage.mapRead | usage.copyTarget });
  const commands = device.createCommandEncoder();
  run.forEach(({ kernel, pipeline, bindings }, i) => {
    const pass = commands.beginComputePass({
      timestampWrites: {
        querySet,
        beginningOfPassWriteIndex: 2 * i,
        endOfPassWriteIndex: 2 * i + 1,
      },
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(...gridIn(kernel, counts));
    pass.end();
  });
  commands.resolveQuerySet(querySet, 0, run.length * 2, resolved, 0);
  commands.copyBufferToBuffer(resolved, 0, read, 0, bytes);
  device.queue.submit([commands.finish()]);
  await read.mapAsync(MAP_READ, 0, bytes);
  const times = new BigUint64Array(read.getMappedRange(0, bytes).slice(0));
  for (const buffer of [resolved, read]) buffer.destroy();
  querySet.destroy();
  return run.map(({ kernel }, i) => {
    return { kernel, microseconds: Number(times[2 * i + 1]! - times[2 * i]!) / 1000 };
  });
}

/** Milliseconds of one compute pass, from its submission to its end, by the host's clock. */
export async function timePass(
  device: GPUDevice,
  encode: (pass: GPUComputePassEncoder) => void,
): Promise<number> {
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  encode(pass);
  pass.end();
  const finished = commands.finish();
  const before = performance.now();
  device.queue.submit([finished]);
  await device.queue.onSubmittedWorkDone();
  return performance.now() - before;
}

/** The same by the clock of the GPU, from the pass's first dispatch to its last: without the host's time to submit it. */
async function timedPass(
  device: GPUDevice,
  encode: (pass: GPUComputePassEncoder) => void,
): Promise<number> {
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 });
  const resolved = device.createBuffer({ size: 16, usage: usage.queryResolve | usage.copySource });
  const read = device.createBuffer({ size: 16, usage: usage.mapRead | usage.copyTarget });
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass({
    timestampWrites: { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
  });
  encode(pass);
  pass.end();
  commands.resolveQuerySet(querySet, 0, 2, resolved, 0);
  commands.copyBufferToBuffer(resolved, 0, read, 0, 16);
  device.queue.submit([commands.finish()]);
  await read.mapAsync(MAP_READ);
  const [began, ended] = new BigUint64Array(read.getMappedRange());
  read.unmap();
  for (const buffer of [resolved, read]) buffer.destroy();
  querySet.destroy();
  return Number(ended! - began!) / 1e6;
}

/** The dispatches of a batch of this size that are wanted. */
export function dispatchesOf(program: Program, counts: RowCounts, wants: KernelFilter): Dispatch[] {
  return program.parts.flatMap(({ nodes, dispatches }) =>
    dispatches.filter(({ kernel }) => runsIn(kernel, counts) && wants(kernel, nodes)),
  );
}

/** Batches of the two submissions that are compared, and the number of comparisons. */
const repeats = { few: 2, many: 10, differences: 5 } as const;
/** Repeats of slow batches: the time of a submission does not matter then. */
const slowRepeats = { few: 1, many: 4, differences: 3 } as const;

/** Milliseconds of such a batch, at least; on an adapter that computes on the CPU all are. */
const SLOW_MS = 20;

/**
 * Milliseconds of a batch: the difference between few and many batches in one submission. By the GPU's clock where there is one: by
 * the host's, a submission of 112 dispatches took 0.2 to 0.3 ms of an H200's machine, and counted as if the GPU had computed.
 */
export async function timeBatch(
  { device, facts }: GpuDevice,
  program: Program,
  counts: RowCounts,
  wants: KernelFilter = () => true,
): Promise<number> {
  const dispatches = dispatchesOf(program, counts, wants);
  if (dispatches.length === 0) return 0;
  const timed = facts.timestampQueries && !facts.isSoftware ? timedPass : timePass;
  const run = (repeats: number): Promise<number> =>
    timed(device, (pass) => {
      for (let i = 0; i < repeats; i++) {
        encodePart(pass, dispatches, counts);
      }
    });
  const isSlow = facts.isSoftware || (await run(repeats.few)) > SLOW_MS * repeats.few;
  const { few, many, differences: count } = isSlow ? slowRepeats : repeats;
  if (facts.isSoftware) await run(few);
  const differences: number[] = [];
  let whole = Number.POSITIVE_INFINITY;
  for (let i = 0; i < count; i++) {
    const all = await run(many);
    whole = Math.min(whole, all / many);
    differences.push((all - (await run(few))) / (many - few));
  }
  const middle = differences.sort((a, b) => a - b)[count >> 1]!;
  // On a busy machine few batches can take longer than many: then the time of a batch with its submission.
  return middle > 0 ? middle : whole;
}
