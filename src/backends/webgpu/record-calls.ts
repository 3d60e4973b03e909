// Records the calls of WebGPU's API for a profile: each method of the device, its queue, buffers and encoders is replaced
// by one that measures itself. Only a device whose backend was opened with a profile has them, so that nothing else pays.
//
// Times are the host's. A call that enqueues work returns before the work is done; mapAsync and onSubmittedWorkDone take
// until it is. A copy within the GPU has bytes, but no time of its own.

import type { CallKind, CallTable } from "../../base/call-table.ts";
import { usage } from "./usage.ts";

/** Buffers of the profiler itself have labels that begin so; their calls are not recorded. */
export const PROFILER_LABEL = "profiler";

type Method = (...args: never[]) => unknown;

/** The recording of a method. */
interface Recorded extends CallKind {
  /** The bytes that a call moves or allocates. */
  bytes?(...args: readonly unknown[]): number;
  /** Too many to be kept one by one for a trace. */
  readonly isFrequent?: boolean;
  /** Whether a call is the profiler's own, which is not recorded. */
  isOwn?(...args: readonly unknown[]): boolean;
  /** The result is a promise: the call takes until it resolves. */
  readonly isAsync?: boolean;
  /** Makes another object whose calls are recorded. */
  readonly makes?: (made: object, calls: CallTable) => void;
}

function isOwn(buffer: unknown): boolean {
  return (buffer as GPUBuffer).label.startsWith(PROFILER_LABEL);
}

const bufferBytes = (descriptor: unknown): number => (descriptor as { size: number }).size;

/** writeBuffer(buffer, offset, data, from?, count?): counts in elements of the data. */
function writtenBytes(_: unknown, __: unknown, data: unknown, from = 0, count?: unknown): number {
  const { byteLength, BYTES_PER_ELEMENT: size = 1 } = data as Uint8Array;
  return typeof count === "number" ? count * size : byteLength - (from as number) * size;
}

/** copyBufferToBuffer(from, offset, to, offset, bytes) */
const copiedBytes = (...args: readonly unknown[]): number => args[4] as number;

const queued: CallKind = { copy: "device to device", movesLater: true };

const passMethods: Readonly<Record<string, Recorded>> = {
  dispatchWorkgroups: { isFrequent: true },
};

const encoderMethods: Readonly<Record<string, Recorded>> = {
  beginComputePass: { makes: (pass, calls) => record(pass, passMethods, calls) },
  copyBufferToBuffer: { ...queued, bytes: copiedBytes, isOwn: (...args) => isOwn(args[2]) },
  finish: {},
};

const queueMethods: Readonly<Record<string, Recorded>> = {
  submit: {},
  writeBuffer: { copy: "host to device", bytes: writtenBytes },
  onSubmittedWorkDone: { isAsync: true },
};

const deviceMethods: Readonly<Record<string, Recorded>> = {
  createBuffer: { bytes: bufferBytes, movesLater: true, makes: recordBuffer },
  createBindGroup: { isFrequent: true },
  createShaderModule: {},
  createComputePipelineAsync: { isAsync: true },
  createQuerySet: {},
  createCommandEncoder: { makes: (encoder, calls) => record(encoder, encoderMethods, calls) },
  popErrorScope: { isAsync: true },
};

/** From now on, the calls of this device are recorded. */
export function recordCalls(device: GPUDevice, calls: CallTable): void {
  record(device, deviceMethods, calls);
  record(device.queue, queueMethods, calls);
}

function record(of: object, methods: Readonly<Record<string, Recorded>>, calls: CallTable): void {
  for (const [name, how] of Object.entries(methods)) replace(of, name, how, calls);
}

function replace(of: object, name: string, how: Recorded, calls: CallTable): void {
  const original = (of as Readonly<Record<string, Method>>)[name]!;
  const { bytes, makes } = how;
  const measured = (...args: never[]): unknown => {
    if (how.isOwn?.(...args)) return original.apply(of, args);
    const start = performance.now();
    const result = original.apply(of, args);
    const moved = bytes?.(...args) ?? 0;
    const done = (): void => {
      const end = performance.now();
      calls.add(name, end - start, moved, how);
      if (!how.isFrequent) calls.log(name, start, end, moved, how.copy);
    };
    if (how.isAsync)
      void (result as Promise<unknown>).then(done, () => {}); // the caller handles the error
    else done();
    if (makes) makes(result as object, calls);
    return result;
  };
  Object.defineProperty(of, name, { value: measured, configurable: true });
}

function recordBuffer(made: object, calls: CallTable): void {
  const buffer = made as GPUBuffer;
  if (isOwn(buffer)) return;
  replace(buffer, "destroy", {}, calls);
  recordFreeing(buffer, calls);
  if ((buffer.usage & usage.mapRead) === 0) return;
  replace(buffer, "mapAsync", { isAsync: true }, calls);
  recordReading(buffer, calls);
}

/** Records the memory of the buffer, from now until it is destroyed. */
function recordFreeing(buffer: GPUBuffer, calls: CallTable): void {
  calls.allocated(buffer.size, performance.now());
  const destroy = buffer.destroy.bind(buffer);
  let isHeld = true;
  const freed = (): undefined => {
    destroy();
    if (isHeld) calls.allocated(-buffer.size, performance.now());
    isHeld = false;
  };
  Object.defineProperty(buffer, "destroy", { value: freed, configurable: true });
}

/** The time from getMappedRange to unmap, in which the host copies the mapped bytes. */
function recordReading(buffer: GPUBuffer, calls: CallTable): void {
  const map = buffer.getMappedRange.bind(buffer);
  const unmap = buffer.unmap.bind(buffer);
  let [start, bytes] = [0, 0];
  const getMappedRange = (offset?: number, size?: number): ArrayBuffer => {
    start = performance.now();
    bytes = size ?? buffer.size;
    return map(offset, size);
  };
  const unmapped = (): undefined => {
    const end = performance.now();
    calls.add("read mapped range", end - start, bytes, { copy: "device to host" });
    calls.log("read mapped range", start, end, bytes, "device to host");
    unmap();
  };
  Object.defineProperty(buffer, "getMappedRange", { value: getMappedRange, configurable: true });
  Object.defineProperty(buffer, "unmap", { value: unmapped, configurable: true });
}
