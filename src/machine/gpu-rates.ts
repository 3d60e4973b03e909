// The limits of a GPU: bytes read and operations computed per second, measured with small kernels (gpu-kernels.ts) and
// the host's clock. It takes a few seconds, and no model or graph.
//
// A rate is the difference between long and short submissions, so that the fixed cost of a submission does not count.
// The fastest of several rounds counts, because other programs can only slow a round down.

import type { GpuDevice } from "../backends/webgpu/device.ts";
import { gpuIdentity } from "../backends/webgpu/device.ts";
import { timePass } from "../backends/webgpu/time-kernels.ts";
import { usage } from "../backends/webgpu/usage.ts";
import { matrixCallsOf, namedCalls } from "../backends/webgpu/wgsl/matrix-calls.ts";
import { AbortedError, MemoryError } from "../base/errors.ts";
import type { GpuMeasurement } from "../limits/gpu-device.ts";
import {
  floatKernel,
  int8Kernel,
  MEASURE_LANES,
  type MeasureKernel,
  matrixKernel,
  readKernel,
} from "./gpu-kernels.ts";
import { measureLink } from "./gpu-link.ts";

export interface GpuRateOptions {
  /** Less work and one round: less exact, and marked so. Nothing is sent between the host and the GPU. */
  readonly quick?: boolean | undefined;
  /** Rounds for each rate; default 5, for a software adapter 3. */
  readonly rounds?: number | undefined;
  /** The least time of a short submission; a long one has five times the work. Default 8. */
  readonly milliseconds?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called with the fraction that is done, 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

/** Work per dispatch: a software adapter would take seconds for a GPU's. */
interface Sizes {
  readonly memoryBytes: number;
  readonly memoryGroups: number;
  readonly cacheBytes: number;
  readonly cacheGroups: number;
  readonly cacheLoads: number;
  readonly groups: number;
  readonly rounds: number;
}

const hardware: Sizes = {
  memoryBytes: 2 ** 30,
  memoryGroups: 4096,
  cacheBytes: 2 ** 25,
  cacheGroups: 1024,
  cacheLoads: 256,
  groups: 4096,
  rounds: 256,
};
const software: Sizes = {
  memoryBytes: 2 ** 26,
  memoryGroups: 256,
  cacheBytes: 2 ** 22,
  cacheGroups: 64,
  cacheLoads: 64,
  groups: 16,
  rounds: 64,
};
const SMALLEST_BYTES = 2 ** 26;
/** Most of a quick measurement is compiling kernels. */
const quickRounds = { rounds: 1, milliseconds: 1 };
const QUICK_BYTES = 2 ** 28;
/** The most dispatches in a submission. */
const MOST_DISPATCHES = 4096;
/** The work of a long submission, in short ones. */
const LONG = 5;

/** One rate to measure, in the order of the measurement. */
interface RateSpec {
  readonly key:
    | "memory"
    | "cache"
    | "f32OpsPerSecond"
    | "f16OpsPerSecond"
    | "int8OpsPerSecond"
    | "matrixOpsPerSecond";
  readonly groups: number;
  kernel(): MeasureKernel | Promise<MeasureKernel>;
}

/** Measures the GPU, which still belongs to the caller. */
export async function measureGpu(
  gpu: GpuDevice,
  given: GpuRateOptions = {},
): Promise<GpuMeasurement> {
  const { facts } = gpu;
  const { quick = false } = given;
  const options = quick ? { ...given, ...quickRounds } : given;
  const sizes = facts.isSoftware ? software : hardware;
  const data = await allocate(gpu, quick ? QUICK_BYTES : sizes.memoryBytes);
  const result = gpu.device.createBuffer({ size: 256, usage: usage.storage });
  const specs = specsFor(gpu, sizes, data.size);
  const rates: Partial<Record<RateSpec["key"], number>> = {};
  try {
    for (const [i, spec] of specs.entries()) {
      options.onProgress?.(i / specs.length);
      const rate = await measureRate(gpu, spec, [data, result], options);
      if (rate !== undefined) rates[spec.key] = rate;
    }
  } finally {
    for (const buffer of [data, result]) buffer.destroy();
  }
  const { memory, cache, f32OpsPerSecond } = rates;
  if (memory === undefined || f32OpsPerSecond === undefined) {
    throw new Error(`webgpu: the GPU "${facts.name}" refused the measuring kernels`);
  }
  return {
    adapter: gpuIdentity(facts),
    name: facts.name,
    isSoftware: facts.isSoftware,
    readBytesPerSecond: memory,
    cachedReads: cache ? [{ setBytes: sizes.cacheBytes, bytesPerSecond: cache }] : [],
    f32OpsPerSecond,
    f16OpsPerSecond: rates.f16OpsPerSecond,
    int8OpsPerSecond: rates.int8OpsPerSecond,
    matrixOpsPerSecond: rates.matrixOpsPerSecond,
    link: quick ? undefined : await measureLink(gpu),
    measuredAt: new Date().toISOString(),
    ...(quick && { quick }),
  };
}

/** Bytes per second of reading memory alone. */
export async function readBandwidth(gpu: GpuDevice, options: GpuRateOptions = {}): Promise<number> {
  const sizes = gpu.facts.isSoftware ? software : hardware;
  const data = await allocate(gpu, sizes.memoryBytes);
  const result = gpu.device.createBuffer({ size: 256, usage: usage.storage });
  try {
    const [memory] = specsFor(gpu, sizes, data.size);
    return (await measureRate(gpu, memory!, [data, result], options)) ?? 0;
  } finally {
    for (const buffer of [data, result]) buffer.destroy();
  }
}

function specsFor({ facts, device }: GpuDevice, sizes: Sizes, dataBytes: number): RateSpec[] {
  const { groups, rounds, memoryGroups, cacheGroups } = sizes;
  const memoryLoads = dataBytes / (16 * MEASURE_LANES * memoryGroups);
  const specs: (RateSpec | false)[] = [
    {
      key: "memory",
      groups: memoryGroups,
      kernel: () => readKernel(dataBytes, memoryGroups, memoryLoads),
    },
    {
      key: "cache",
      groups: cacheGroups,
      kernel: () => readKernel(sizes.cacheBytes, cacheGroups, sizes.cacheLoads),
    },
    { key: "f32OpsPerSecond", groups, kernel: () => floatKernel(32, rounds) },
    facts.f16 && { key: "f16OpsPerSecond", groups, kernel: () => floatKernel(16, rounds) },
    facts.packedDots && { key: "int8OpsPerSecond", groups, kernel: () => int8Kernel(rounds) },
    facts.subgroupMatrix && {
      key: "matrixOpsPerSecond",
      groups,
      kernel: async () => matrixKernel(rounds, (await matrixCallsOf(device)) ?? namedCalls),
    },
  ];
  return specs.filter((spec) => spec !== false);
}

/** Allocates as much of `wanted` as the GPU can bind and has, halving it until it works. */
async function allocate({ device, facts }: GpuDevice, wanted: number): Promise<GPUBuffer> {
  let size = wanted;
  while (size > Math.min(facts.maxBufferBytes, facts.maxBindingBytes)) size /= 2;
  for (; size >= SMALLEST_BYTES; size /= 2) {
    device.pushErrorScope("out-of-memory");
    const buffer = device.createBuffer({ size, usage: usage.storage | usage.copyTarget });
    if (!(await device.popErrorScope())) return buffer;
    buffer.destroy();
  }
  throw new MemoryError(
    `the GPU "${facts.name}" has less than ${SMALLEST_BYTES >> 20} MiB free, which measuring needs. Close the programs that use it, then try again`,
  );
}

/** Work per second; undefined if this GPU cannot run the kernel. */
async function measureRate(
  gpu: GpuDevice,
  spec: RateSpec,
  buffers: readonly GPUBuffer[],
  { rounds = gpu.facts.isSoftware ? 3 : 5, milliseconds = 8, signal }: GpuRateOptions,
): Promise<number | undefined> {
  const { device } = gpu;
  const { code, workOfGroup } = await spec.kernel();
  const pipeline = await compile(device, code);
  if (!pipeline) return undefined;
  const bindings = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
  });
  const run = async (dispatches: number): Promise<number> => {
    if (signal?.aborted) throw new AbortedError("measuring the GPU", { cause: signal.reason });
    return await timePass(device, (pass) => {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings);
      for (let i = 0; i < dispatches; i++) pass.dispatchWorkgroups(spec.groups);
    });
  };
  await run(1); // warm up: clocks rise, memory is allocated
  let few = 1;
  while ((await run(few)) < milliseconds && few < MOST_DISPATCHES) few *= 2;
  let [short, long] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let round = 0; round < rounds; round++) {
    short = Math.min(short, await run(few));
    long = Math.min(long, await run(few * LONG));
  }
  const work = workOfGroup * spec.groups * few;
  // If other programs delayed all short ones, the difference means nothing: then the whole long one counts.
  const isRight = long > 2 * short;
  const [amount, ms] = isRight ? [work * (LONG - 1), long - short] : [work * LONG, long];
  return (amount / ms) * 1000;
}

async function compile(device: GPUDevice, code: string): Promise<GPUComputePipeline | undefined> {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  const compute = { module, entryPoint: "main" };
  const pipeline = await device
    .createComputePipelineAsync({ layout: "auto", compute })
    .catch(() => undefined);
  const error = await device.popErrorScope();
  return error ? undefined : pipeline;
}
