// The profiles of a matmul over devices: the device that prepares the activations (init), the one that multiplies
// (compute), and the data that moves between them (part of init, or finish). Their times at any number of tokens come from
// two tune files. Arithmetic only; cross-backends.ts shows them, sides.ts decides by them.

import { bytesFor } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { type Basis, basisFor, type DeviceAt, estimate } from "./estimate.ts";
import { type TransferTimes, transferTimes } from "./gpu-transfers.ts";
import type { StageTimes, TuneFile, TuneGroup, TuneProblem } from "./tune-file.ts";

/** Microseconds; finish: results come back to the host. */
export interface DeviceStages extends StageTimes {
  readonly finish: number;
}

/** Known times of a matmul at some number of tokens. */
interface Known {
  readonly cpu: StageTimes;
  readonly gpu: StageTimes;
  readonly transfer: Transfer | undefined;
  /** The time of the weights' own way to the GPU. */
  readonly weights: number | undefined;
}

interface Transfer {
  readonly there: number;
  readonly prepared: number | undefined;
  readonly back: number;
}

export interface DeviceProfile {
  readonly name: string;
  /** One sentence, for a legend. */
  readonly about: string;
  /** undefined: not measured, or there is no such way. */
  stages(known: Known): DeviceStages | undefined;
}

/** In the order of the columns in which they are shown. */
export const deviceProfiles: readonly DeviceProfile[] = [
  {
    name: "cpu",
    about: "the CPU prepares activations and multiplies",
    stages: ({ cpu }) => ({ ...cpu, finish: 0 }),
  },
  {
    name: "webgpu",
    about: "the GPU does both; activations and results stay there, as in a model that is all there",
    stages: ({ gpu }) => ({ ...gpu, finish: 0 }),
  },
  {
    name: "moved",
    about: "webgpu, but activations come from the CPU, and results go back",
    stages: ({ gpu, transfer }) =>
      transfer && {
        init: transfer.there + gpu.init,
        compute: gpu.compute,
        finish: transfer.back,
      },
  },
  {
    name: "mixed",
    about: "the CPU prepares activations, the GPU multiplies, and results go back",
    stages: ({ cpu, gpu, transfer }) =>
      transfer?.prepared === undefined
        ? undefined
        : {
            init: cpu.init + transfer.prepared,
            compute: gpu.compute,
            finish: transfer.back,
          },
  },
  {
    name: "weights",
    about: "moved, but the weights are sent for this batch, too",
    stages: ({ gpu, transfer, weights }) =>
      transfer && weights !== undefined
        ? {
            init: weights + transfer.there + gpu.init,
            compute: gpu.compute,
            finish: transfer.back,
          }
        : undefined,
  },
];

export function stagesTotal({ init, compute, finish }: DeviceStages): number {
  return init + compute + finish;
}

/** The tune files of both devices, and their limits where they are known. */
export interface DeviceFiles {
  readonly cpu: TuneFile;
  readonly gpu: TuneFile;
  readonly threads: number;
  readonly cpuLimits?: DeviceAt | undefined;
  readonly gpuLimits?: DeviceAt | undefined;
}

/** Times of one matmul on both devices, at any number of tokens. */
export interface MatmulTimesOf {
  cpu(m: number): StageTimes | undefined;
  gpu(m: number): StageTimes | undefined;
  /** By profile; undefined if there is no time. */
  stages(m: number): readonly (DeviceStages | undefined)[];
  /** The numbers of tokens at which it was measured, on either. */
  readonly measured: readonly number[];
}

/** undefined: its type was not measured on one of them. */
export function matmulTimesOf(
  { cpu, gpu, threads, cpuLimits, gpuLimits }: DeviceFiles,
  problem: TuneProblem,
): MatmulTimesOf | undefined {
  const here = basisFor(cpu, problem, threads, cpuLimits);
  const there = basisFor(gpu, problem, 1, gpuLimits);
  if (!here || !there) return undefined;
  const transfers = transferTimes(gpu);
  const weightBytes = bytesFor(dtypeByName(problem.dtype)!, problem.n * problem.k);
  const weights = transfers?.there(weightBytes * (problem.experts?.count ?? 1));
  const cpuAt = once((m) => fastestStages(cpu, here, m));
  const gpuAt = once((m) => fastestStages(gpu, there, m));
  return {
    cpu: cpuAt,
    gpu: gpuAt,
    stages(m) {
      const [onCpu, onGpu] = [cpuAt(m), gpuAt(m)];
      if (!onCpu || !onGpu) return deviceProfiles.map(() => undefined);
      const transfer = transfers && transferAt(transfers, there.group, problem, m);
      return deviceProfiles.map((profile) =>
        profile.stages({ cpu: onCpu, gpu: onGpu, transfer, weights }),
      );
    },
    measured: [
      ...new Set([here.group, there.group].flatMap(({ lines }) => lines.map(({ m }) => m))),
    ].sort((a, b) => a - b),
  };
}

/** Layers are alike: each number of tokens is estimated once. */
function once<T>(find: (m: number) => T): (m: number) => T {
  const known = new Map<number, T>();
  return (m) => {
    if (!known.has(m)) known.set(m, find(m));
    return known.get(m)!;
  };
}

/** The stages of the profile with the least total. */
export function fastestStages(file: TuneFile, basis: Basis, m: number): StageTimes | undefined {
  let best: StageTimes | undefined;
  for (const profile of file.profiles.keys()) {
    const times = estimate(basis, profile, m);
    if (times && (!best || times.init + times.compute < best.init + best.compute)) best = times;
  }
  return best && { init: best.init, compute: best.compute };
}

function transferAt(
  times: TransferTimes,
  { transfers = [] }: TuneGroup,
  { n, k, experts }: TuneProblem,
  m: number,
): Transfer {
  // Whether kernels read prepared activations depends on the number of tokens.
  const near = transfers.findLast((line) => line.m <= m) ?? transfers[0];
  return {
    there: times.there(4 * m * k),
    prepared: near?.prepared === undefined ? undefined : times.prepared?.(4 * m * k),
    back: times.back(4 * m * n * (experts?.used ?? 1)),
  };
}
