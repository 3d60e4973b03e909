// The GPU: the adapter, its features and limits, and its device. Knows no model and no graph.
//
// The code that opens a GPU owns it: dispose() destroys the device and with it all buffers. After a device is lost
// (driver reset, unplugged, destroyed), every use is an error that says so, and `lost` resolves: the model must be
// opened again.

import {
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  messageOf,
  UsageError,
} from "../../base/errors.ts";
import type { GpuAccess } from "../../platform/platform.ts";
import { probeSubgroups } from "./subgroup-probe.ts";
import { SUBGROUP } from "./wgsl/subgroups.ts";

/** The adapter's description of itself, for `lantern devices` and --explain. */
export interface GpuFacts {
  readonly name: string;
  readonly vendor: string;
  readonly architecture: string;
  readonly driver: string;
  /** A software adapter, which computes on the processor. */
  readonly isSoftware: boolean;
  readonly maxBufferBytes: number;
  readonly maxBindingBytes: number;
  /** The memory that may be used; undefined: not known, since WebGPU does not say, so that allocating is the only test. */
  readonly memoryBytes: number | undefined;
  readonly workgroupStorageBytes: number;
  /** Lanes of a workgroup, at most. */
  readonly workgroupLanes: number;
  /** Storage buffers that a shader may bind. */
  readonly storageBuffers: number;
  readonly f16: boolean;
  readonly subgroups: { readonly min: number; readonly max: number } | undefined;
  /** Of an opened device whose kernels would use subgroups: true where their shuffles are right; a text: why it counts as one without. */
  readonly subgroupShuffles?: true | string;
  readonly subgroupMatrix: boolean;
  readonly timestampQueries: boolean;
  /** WGSL has dot4I8Packed. */
  readonly packedDots: boolean;
}

/** Identifies adapter and driver: a measurement holds for this combination only. */
export function gpuIdentity({ name, vendor, architecture, driver }: GpuFacts): string {
  return [name, vendor, architecture, driver].filter((part) => part !== "").join(", ");
}

export interface GpuDeviceOptions {
  /** For tests: limits below the adapter's. */
  limits?: {
    maxBufferBytes?: number;
    maxBindingBytes?: number;
    memoryBytes?: number;
    storageBuffers?: number;
  };
}

/** The adapter's facts, or the reason why there is none, without opening a device: its claims about subgroups are not checked. */
export async function findGpu(access: GpuAccess): Promise<GpuFacts | string> {
  const adapter = await requestAdapter(access);
  if (typeof adapter === "string" || typeof access === "string") return adapter as string;
  return factsOf(adapter, access.gpu, access.memoryBytes);
}

/** The facts that an opened device has. One is opened only where its subgroups are to be checked. */
export async function findCheckedGpu(access: GpuAccess): Promise<GpuFacts | string> {
  const found = await findGpu(access);
  if (typeof found === "string" || !hasSubgroups(found)) return found;
  try {
    const gpu = await GpuDevice.open(access);
    gpu.dispose();
    await gpu.ended();
    return gpu.facts;
  } catch (error) {
    return `the GPU "${found.name}" cannot be opened (${withoutBuildPaths(messageOf(error))})`;
  }
}

/** Whether kernels would exchange values through subgroups. */
function hasSubgroups({ subgroups }: GpuFacts): boolean {
  return subgroups !== undefined && subgroups.min >= SUBGROUP;
}

export class GpuDevice {
  #facts: GpuFacts;
  /** By their text: backends that share a device compile each of them once. */
  readonly pipelines: Map<string, Promise<GPUComputePipeline>> = new Map();
  #device: GPUDevice;
  /** Another device of the same adapter: an adapter gives only one. */
  readonly #request: () => Promise<GPUDevice>;
  /** Resolves when it was lost, unless it was disposed of. */
  readonly lost: Promise<DeviceLostError>;
  readonly #resolveLost: (error: DeviceLostError) => void;
  /** Why it cannot be used any more. */
  #lost: string | undefined;
  #disposed = false;
  /** The first error that no error scope caught: a bug in a shader or a binding. */
  #error: Error | undefined;
  /** Batches that may be submitted ahead; undefined: a default. */
  readonly ahead: number | undefined;
  /** Workgroups of a kernel of a whole layer (layers.ts); 0: there are none, or they could not wait for each other here; undefined: a default. */
  layerGroups: number | undefined;
  readonly #doze: (() => Promise<void>) | undefined;
  /** The number of calls of wait() under way. */
  #waiting = 0;
  #dozing = false;

  private constructor(
    device: GPUDevice,
    request: () => Promise<GPUDevice>,
    facts: GpuFacts,
    { ahead, layerGroups }: Pick<Exclude<GpuAccess, string>, "ahead" | "layerGroups">,
    doze?: () => Promise<void>,
  ) {
    this.ahead = ahead;
    this.layerGroups = layerGroups;
    this.#device = device;
    this.#request = request;
    this.#facts = facts;
    this.#doze = doze;
    const { promise, resolve } = Promise.withResolvers<DeviceLostError>();
    this.lost = promise;
    this.#resolveLost = resolve;
    this.#follow(device);
  }

  #follow(device: GPUDevice): void {
    void device.lost.then(({ reason, message }) => {
      if (device !== this.#device) return; // renewed
      this.#lost = withoutBuildPaths(message) || reason;
      if (!this.#disposed) this.#resolveLost(this.#lostError());
    });
    device.addEventListener("uncapturederror", (event) => {
      const { message } = (event as GPUUncapturedErrorEvent).error;
      this.#error ??= isOutOfMemory(message)
        ? this.#memoryError(withoutBuildPaths(message))
        : new Error(`webgpu: ${withoutBuildPaths(message)}`);
    });
  }

  /** Opens this machine's GPU; without one, throws an error with the remedy. */
  static async open(access: GpuAccess, options: GpuDeviceOptions = {}): Promise<GpuDevice> {
    const adapter = await requestAdapter(access);
    if (typeof adapter === "string" || typeof access === "string") {
      throw new UsageError(`backend "webgpu": ${adapter}. "lantern devices" shows what was found`);
    }
    const request = async (): Promise<GPUDevice> => {
      const again = await requestAdapter(access);
      if (typeof again === "string") throw new UsageError(`backend "webgpu": ${again}`);
      return await again.requestDevice(descriptor);
    };
    const facts = factsOf(adapter, access.gpu, options.limits?.memoryBytes ?? access.memoryBytes);
    const {
      maxBufferBytes = facts.maxBufferBytes,
      maxBindingBytes = facts.maxBindingBytes,
      storageBuffers = facts.storageBuffers,
    } = options.limits ?? {};
    const descriptor: GPUDeviceDescriptor = {
      requiredFeatures: wantedFeatures(facts) as GPUFeatureName[],
      requiredLimits: {
        maxBufferSize: maxBufferBytes,
        maxStorageBufferBindingSize: maxBindingBytes,
        maxComputeWorkgroupStorageSize: facts.workgroupStorageBytes,
        maxComputeInvocationsPerWorkgroup: facts.workgroupLanes,
        maxComputeWorkgroupSizeX: facts.workgroupLanes,
        maxStorageBuffersPerShaderStage: storageBuffers,
      },
    };
    const device = await adapter.requestDevice(descriptor);
    const taken = { ...facts, maxBufferBytes, maxBindingBytes, storageBuffers };
    const doze = facts.isSoftware ? access.doze : undefined;
    const gpu = new GpuDevice(device, request, taken, access, doze);
    if (hasSubgroups(facts)) await gpu.#checkSubgroups();
    return gpu;
  }

  get facts(): GpuFacts {
    return this.#facts;
  }

  async #checkSubgroups(): Promise<void> {
    try {
      const found = await probeSubgroups(this);
      this.#facts =
        found === true
          ? { ...this.#facts, subgroupShuffles: true }
          : {
              ...this.#facts,
              subgroups: undefined,
              subgroupShuffles: withoutBuildPaths(found),
              subgroupMatrix: false,
            };
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** The device; throws if it cannot be used any more. */
  get device(): GPUDevice {
    this.check();
    return this.#device;
  }

  /** Replaces this device, of which no object is in use any more, by another one: a device keeps freed memory for buffers to come. */
  async renew(): Promise<void> {
    const old = this.device;
    await this.wait(old.queue.onSubmittedWorkDone());
    this.#device = await this.#request();
    this.#follow(this.#device);
    this.pipelines.clear();
    old.destroy();
  }

  /** Throws when the GPU was lost, disposed of, or has refused work. */
  check(): void {
    if (this.#disposed) throw new DisposedError("the GPU");
    if (this.#lost !== undefined) throw this.#lostError();
    if (this.#error) throw this.#error;
  }

  /** Waits for work of the device. With a software adapter it sleeps meanwhile: polling would take the processor from it. */
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

  /** The error of a rejected promise of the device: its loss, if it was lost. */
  async explain(error: unknown): Promise<Error> {
    // The loss is another promise, which may settle just after the one that was rejected.
    await new Promise((resolve) => setTimeout(resolve));
    if (this.#lost !== undefined && !this.#disposed) return this.#lostError();
    return error instanceof Error ? error : new Error(messageOf(error));
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#device.destroy();
  }

  /**
   * Resolves when nothing waits for the device any more, after dispose(). A thread must not end before: Dawn ends the whole process
   * where promises of its own are left.
   */
  async ended(): Promise<void> {
    while (this.#waiting > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    await new Promise((resolve) => setTimeout(resolve)); // the waiting calls continue
  }

  #memoryError(why: string): DeviceMemoryError {
    return new DeviceMemoryError(`the GPU "${this.facts.name}" ran out of memory (${why})`);
  }

  #lostError(): DeviceLostError {
    if (isOutOfMemory(this.#lost!)) return this.#memoryError(this.#lost!);
    return new DeviceLostError(
      `the GPU "${this.facts.name}" was lost (${this.#lost}), and with it running requests and the cache. The next request opens the model again; if that fails, use \`backend: "cpu"\``,
    );
  }
}

/** Whether a device that refused memory was lost for that: no API says so, and Dawn loses one that has none for the copy of a write. */
function isOutOfMemory(message: string): boolean {
  return /OUT_OF_(DEVICE_|HOST_|POOL_)?MEMORY|OUTOFMEMORY|out of memory/i.test(message);
}

/** A message of Dawn on one line, without paths of its source. */
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
    if (adapter) return adapter;
    // Dawn calls only SwiftShader a fallback; Mesa's lavapipe computes on the processor, too, and is found as any other.
    const other = softwareOnly ? await gpu.requestAdapter() : null;
    if (other?.info.isFallbackAdapter) return other;
    return other
      ? `the GPU adapter of this machine (${other.info.description}) does not compute on the processor`
      : "no GPU adapter was found on this machine";
  } catch (error) {
    // Dawn throws if no adapter has the requested name, and lists those that there are.
    return `no GPU adapter could be opened on this machine (${withoutBuildPaths((error as Error).message)})`;
  }
}

/** Whether there are matrix units for 16 x 16 half floats with float32 sums, which kernels use. */
function hasHalfMatrices(info: GPUAdapterInfo): boolean {
  // Kernels count on a matrix being held by a subgroup, and on the lanes of a subgroup being a subgroup: not so where drivers choose 64 lanes.
  if (info.subgroupMinSize !== SUBGROUP || info.subgroupMaxSize !== SUBGROUP) return false;
  const { subgroupMatrixConfigs = [] } = info as { subgroupMatrixConfigs?: Iterable<MatrixConfig> };
  return [...subgroupMatrixConfigs].some(({ M, N, K, componentType, resultComponentType }) => {
    const kinds = `${componentType} to ${resultComponentType}`;
    return kinds === "f16 to f32" && [M, N, K].every((size) => size === 16);
  });
}

/** Experimental in Chromium, and not in WebGPU's types yet. */
interface MatrixConfig {
  readonly M: number;
  readonly N: number;
  readonly K: number;
  readonly componentType: string;
  readonly resultComponentType: string;
}

/** The features that kernels or measurements use, where the adapter has them. */
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
    workgroupLanes: Math.min(
      limits.maxComputeInvocationsPerWorkgroup,
      limits.maxComputeWorkgroupSizeX,
    ),
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
