// A made-up GPU with so much memory: buffers beyond it are errors of the scope "out-of-memory", as in WebGPU. It computes nothing, and
// counts what is held. As Dawn's, a device keeps the memory of small buffers that were destroyed.

import type { GpuAccess } from "../../src/platform/platform.ts";

export interface LimitedGpu {
  readonly access: Exclude<GpuAccess, string>;
  /** Bytes of the buffers of all devices, and the most that there may be. */
  readonly held: number;
  limit: number;
  /** How many devices were opened. */
  readonly devices: number;
  /** The newest device is lost, with this message. */
  lose(message: string): void;
}

export function limitedGpu(limit: number): LimitedGpu {
  let [held, devices] = [0, 0];
  let lose = (_: string): void => {};
  const openDevice = (): GPUDevice => {
    devices++;
    const { promise, resolve } = Promise.withResolvers<GPUDeviceLostInfo>();
    lose = (message) => resolve({ reason: "unknown", message } as GPUDeviceLostInfo);
    const scopes: { filter: string; error: GPUError | null }[] = [];
    const own = new Map<object, number>();
    let kept = 0;
    const createBuffer = ({ size, label, usage }: GPUBufferDescriptor): object => {
      const buffer = { size, label, usage, destroy: () => free(buffer, true) };
      const reused = Math.min(kept, size);
      if (held + size - reused > gpu.limit) {
        const scope = scopes.findLast(({ filter }) => filter === "out-of-memory");
        if (scope) scope.error ??= { message: `no memory for ${size} bytes` } as GPUError;
        return buffer;
      }
      kept -= reused;
      held += size - reused;
      own.set(buffer, size);
      return buffer;
    };
    const free = (buffer: object, keeps: boolean): void => {
      const size = own.get(buffer) ?? 0;
      own.delete(buffer);
      if (keeps && size < SMALL) kept += size;
      else held -= size;
    };
    const device = {
      lost: promise,
      addEventListener: () => {},
      createBuffer,
      pushErrorScope: (filter: string) => void scopes.push({ filter, error: null }),
      popErrorScope: async () => scopes.pop()!.error,
      queue: { submit: () => {}, onSubmittedWorkDone: async () => {} },
      destroy: () => {
        for (const buffer of own.keys()) free(buffer, false);
        held -= kept;
        kept = 0;
      },
    };
    return device as unknown as GPUDevice;
  };
  const numbers = { maxBufferSize: 2 ** 30, maxStorageBufferBindingSize: 2 ** 30 };
  const limits = {
    ...numbers,
    maxComputeWorkgroupStorageSize: 16_384,
    maxComputeInvocationsPerWorkgroup: 256,
    maxComputeWorkgroupSizeX: 256,
    maxStorageBuffersPerShaderStage: 10,
  };
  const info = { vendor: "made up", architecture: "", device: "small", description: "" };
  const adapter = { info, limits, features: new Set(), requestDevice: async () => openDevice() };
  const gpu: LimitedGpu = {
    access: {
      gpu: { requestAdapter: async () => adapter } as unknown as GPU,
      softwareOnly: false,
    } as LimitedGpu["access"],
    get held() {
      return held;
    },
    get devices() {
      return devices;
    },
    limit,
    lose: (message) => lose(message),
  };
  return gpu;
}

/** Smaller buffers share memory that is kept for others. */
const SMALL = 4096;
