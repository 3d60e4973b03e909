// The GPU: which adapter was taken, what it can do, and the device that computes. Knows no model and no graph.
//
// Whoever opens a GPU owns it: dispose() destroys the device and with it all buffers. A lost device (driver reset, unplugged,
// destroyed) makes every later use an error that says so; nothing is retried behind anybody's back.

import { DisposedError, UsageError, WorkerError } from "../../base/errors.ts";
import type { GpuAccess } from "../../platform/platform.ts";

/** What the adapter says of itself, for `lantern devices` and --explain. */
export interface GpuFacts {
  readonly name: string;
  readonly vendor: string;
  readonly architecture: string;
  readonly driver: string;
  /** Computes on the processor: right, and slow. */
  readonly isSoftware: boolean;
  readonly maxBufferBytes: number;
  readonly maxBindingBytes: number;
  /** The memory that may be used; undefined: nobody said, and WebGPU does not, so it shows when it is taken. */
  readonly memoryBytes: number | undefined;
  readonly workgroupStorageBytes: number;
  /** That a shader may bind. */
  readonly storageBuffers: number;
  readonly f16: boolean;
  readonly subgroups: { readonly min: number; readonly max: number } | undefined;
  readonly subgroupMatrix: boolean;
  readonly timestampQueries: boolean;
  /** WGSL multiplies four 8-bit numbers at once. */
  readonly packedDots: boolean;
}

/** All that the adapter says of itself: what was measured of one holds for no other, nor for another driver. */
export function gpuIdentity({ name, vendor, architecture, driver }: GpuFacts): string {
  return [name, vendor, architecture, driver].filter((part) => part !== "").join(", ");
}

export interface GpuDeviceOptions {
  /** For tests: no more than these, whatever the adapter allows. */
  limits?: { maxBufferBytes?: number; maxBindingBytes?: number; memoryBytes?: number };
}

/** "lantern devices" and tests ask without opening: the adapter's facts, or why there is none. */
export async function findGpu(access: GpuAccess): Promise<GpuFacts | string> {
  const adapter = await requestAdapter(access);
  if (typeof adapter === "string" || typeof access === "string") return adapter as string;
  return factsOf(adapter, access.gpu, access.memoryBytes);
}

export class GpuDevice {
  readonly facts: GpuFacts;
  readonly #device: GPUDevice;
  /** Why it cannot be used any more. */
  #lost: string | undefined;
  #disposed = false;
  /** The first error that no error scope caught: a bug in a shader or a binding. */
  #error: Error | undefined;
  readonly #doze: (() => Promise<void>) | undefined;
  /** How many calls of wait() are under way. */
  #waiting = 0;
  #dozing = false;

  private constructor(device: GPUDevice, facts: GpuFacts, doze?: () => Promise<void>) {
    this.#device = device;
    this.facts = facts;
    this.#doze = doze;
    void device.lost.then(({ reason, message }) => {
      this.#lost = withoutBuildPaths(message) || reason;
    });
    device.addEventListener("uncapturederror", (event) => {
      this.#error ??= new Error(
        `webgpu: ${withoutBuildPaths((event as GPUUncapturedErrorEvent).error.message)}`,
      );
    });
  }

  /** Opens the GPU that this machine offers; without one, an error that says what to do. */
  static async open(access: GpuAccess, options: GpuDeviceOptions = {}): Promise<GpuDevice> {
    const adapter = await requestAdapter(access);
    if (typeof adapter === "string" || typeof access === "string") {
      throw new UsageError(`backend "webgpu": ${adapter}. "lantern devices" shows what was found`);
    }
    const facts = factsOf(adapter, access.gpu, options.limits?.memoryBytes ?? access.memoryBytes);
    const { maxBufferBytes = facts.maxBufferBytes, maxBindingBytes = facts.maxBindingBytes } =
      options.limits ?? {};
    const device = await adapter.requestDevice({
      requiredFeatures: wantedFeatures(facts) as GPUFeatureName[],
      requiredLimits: {
        maxBufferSize: maxBufferBytes,
        maxStorageBufferBindingSize: maxBindingBytes,
        maxComputeWorkgroupStorageSize: facts.workgroupStorageBytes,
        maxStorageBuffersPerShaderStage: facts.storageBuffers,
      },
    });
    const taken = { ...facts, maxBufferBytes, maxBindingBytes };
    return new GpuDevice(device, taken, facts.isSoftware ? access.doze : undefined);
  }

  /** The device, as long as it can be used. */
  get device(): GPUDevice {
    this.check();
    return this.#device;
  }

  /** Throws when the GPU was lost, disposed of, or given work that it refused. */
  check(): void {
    if (this.#disposed) throw new DisposedError("the GPU");
    if (this.#lost !== undefined) throw this.#lostError();
    if (this.#error) throw this.#error;
  }

  /** Waits for what the device does. A software adapter needs the processor that asking for its end would take. */
  async wait<T>(work: Promise<T>): Promise<T> {
    this.#waiting++;
    void this.#dozeWhileWaiting();
    try {
      return await work;
    } finally {
      this.#waiting--;
    }
  }

  async #dozeWhileWaiting(): Promise<void> {
    if (!this.#doze || this.#dozing) return;
    this.#dozing = true;
    while (this.#waiting > 0) await this.#doze();
    this.#dozing = false;
  }

  /** What a rejected promise of the device means: after a loss that, otherwise what it says. */
  async explain(error: unknown): Promise<Error> {
    // The loss is reported through a promise of its own, which may settle just after the one that failed.
    await new Promise((resolve) => setTimeout(resolve));
    if (this.#lost !== undefined && !this.#disposed) return this.#lostError();
    return error instanceof Error ? error : new Error(String(error));
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#device.destroy();
  }

  #lostError(): WorkerError {
    return new WorkerError(
      `the GPU "${this.facts.name}" was lost (${this.#lost}), and with it the model and its cache. Open the model again, or with backend "cpu"`,
    );
  }
}

/** A message of Dawn's on one line, without the places in its own source that it names. */
export function withoutBuildPaths(message: string): string {
  return message
    .replaceAll(/^\s*at \S+ \(.*:\d+\)\s*$/gm, "")
    .trim()
    .split(/\s*\n\s*/)
    .filter((line) => line !== "")
    .join(" ");
}

async function requestAdapter(access: GpuAccess): Promise<GPUAdapter | string> {
  if (typeof access === "string") return access;
  const { gpu, softwareOnly } = access;
  try {
    const adapter = await gpu.requestAdapter({
      powerPreference: "high-performance",
      forceFallbackAdapter: softwareOnly,
    });
    return adapter ?? "no GPU adapter was found on this machine";
  } catch (error) {
    // Dawn throws where none has the name that was asked for, and lists those that there are.
    return `no GPU adapter could be opened on this machine (${withoutBuildPaths((error as Error).message)})`;
  }
}

/** Whether there are matrices of 16 x 16 half floats whose products are summed up as floats: those that kernels use. */
function hasHalfMatrices(info: GPUAdapterInfo): boolean {
  const { subgroupMatrixConfigs = [] } = info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> };
  return [...subgroupMatrixConfigs].some(({ M, N, K, componentType, resultComponentType }) => {
    const kinds = `${componentType} to ${resultComponentType}`;
    return kinds === "f16 to f32" && [M, N, K].every((size) => size === 16);
  });
}

/** Chromium's, not in WebGPU's types yet. */
interface MatrixConfig {
  readonly M: number;
  readonly N: number;
  readonly K: number;
  readonly componentType: string;
  readonly resultComponentType: string;
}

/** Those that kernels or measurements use where they are there. */
function wantedFeatures(facts: GpuFacts): string[] {
  const wanted: [string, unknown][] = [
    ["subgroups", facts.subgroups],
    ["shader-f16", facts.f16],
    ["chromium-experimental-subgroup-matrix", facts.subgroupMatrix],
    ["timestamp-query", facts.timestampQueries],
  ];
  return wanted.filter(([, has]) => has).map(([name]) => name);
}

function factsOf(adapter: GPUAdapter, gpu: GPU, memoryBytes: number | undefined): GpuFacts {
  const { info, limits, features } = adapter;
  const has = (name: string): boolean => (features as ReadonlySet<string>).has(name);
  return {
    name: info.device || info.description || info.architecture || "unknown GPU",
    vendor: info.vendor,
    architecture: info.architecture,
    driver: info.description,
    isSoftware: info.isFallbackAdapter ?? false, // browsers of 2024 do not say
    maxBufferBytes: limits.maxBufferSize,
    maxBindingBytes: limits.maxStorageBufferBindingSize,
    memoryBytes,
    workgroupStorageBytes: limits.maxComputeWorkgroupStorageSize,
    storageBuffers: limits.maxStorageBuffersPerShaderStage,
    f16: has("shader-f16"),
    subgroups: has("subgroups")
      ? { min: info.subgroupMinSize, max: info.subgroupMaxSize }
      : undefined,
    subgroupMatrix: has("chromium-experimental-subgroup-matrix") && hasHalfMatrices(info),
    timestampQueries: has("timestamp-query"),
    packedDots: gpu.wgslLanguageFeatures?.has("packed_4x8_integer_dot_product") ?? false, // old browsers have no such list
  };
}
