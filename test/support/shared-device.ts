// One GPUDevice for many tests: each opener has a device of its own to look at, with its own buffers, listeners and changed methods, but
// shaders are compiled once for the file. A software driver spends most of a test on compiling what the one before compiled.

import type { GpuAccess } from "../../src/platform/platform.ts";

interface Real {
  readonly device: GPUDevice;
  readonly modules: Map<string, GPUShaderModule>;
  readonly codes: WeakMap<GPUShaderModule, string>;
  readonly pipelines: Map<string, Promise<GPUComputePipeline>>;
  /** Of the one who has it. */
  listeners: ((event: Event) => void)[];
  hasFailed: boolean;
}

type Destroyable = { destroy(): void };

const idle = new Map<string, Real[]>();

/** The same adapters, whose devices are given out again after destroy(). */
export function sharedDevices(access: Exclude<GpuAccess, string>): Exclude<GpuAccess, string> {
  const { gpu } = access;
  const requestAdapter = async (options?: GPURequestAdapterOptions): Promise<GPUAdapter | null> => {
    const adapter = await gpu.requestAdapter(options);
    return (
      adapter && changed(adapter, { requestDevice: async (wanted) => await taken(adapter, wanted) })
    );
  };
  return { ...access, gpu: changed(gpu, { requestAdapter }) };
}

/** Ends what is idle: Dawn ends the whole process where promises of its own are left. */
export async function endSharedDevices(): Promise<void> {
  for (const { device } of [...idle.values()].flat()) {
    device.destroy();
    await device.lost;
  }
  idle.clear();
}

/** `of` with other methods. Whatever is written to it stays there; a method of Dawn's takes no other `this`. */
function changed<T extends object>(of: T, own: Partial<T>): T {
  return new Proxy(own as T, {
    get(target, name) {
      if (name in target) return Reflect.get(target, name);
      const value = Reflect.get(of, name, of);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

async function taken(adapter: GPUAdapter, wanted?: GPUDeviceDescriptor): Promise<GPUDevice> {
  const key = JSON.stringify([adapter.info.device, adapter.info.description, wanted]);
  const real = idle.get(key)?.pop() ?? (await opened(adapter, wanted));
  return lent(real, () => {
    if (real.hasFailed) real.device.destroy();
    else idle.set(key, [...(idle.get(key) ?? []), real]);
  });
}

async function opened(adapter: GPUAdapter, wanted?: GPUDeviceDescriptor): Promise<Real> {
  const device = await adapter.requestDevice(wanted);
  const maps = { modules: new Map(), codes: new WeakMap(), pipelines: new Map() };
  const real: Real = { device, ...maps, listeners: [], hasFailed: false };
  device.addEventListener("uncapturederror", (event) => {
    real.hasFailed = true;
    for (const listener of real.listeners) listener(event);
  });
  return real;
}

function lent(real: Real, giveBack: () => void): GPUDevice {
  const { device } = real;
  const { promise: lost, resolve } = Promise.withResolvers<GPUDeviceLostInfo>();
  let isHeld = true;
  void device.lost.then((info) => {
    real.hasFailed = true;
    resolve(info);
  });
  const made: Destroyable[] = [];
  const keep = <T extends Destroyable>(one: T): T => {
    made.push(one);
    return one;
  };
  let scopes = 0;
  return changed(device, {
    lost,
    queue: changed(device.queue, {}),
    addEventListener: (_: string, listener: unknown) => {
      real.listeners.push(listener as (event: Event) => void);
    },
    createBuffer: (wanted) => keep(device.createBuffer(wanted)),
    createQuerySet: (wanted) => keep(device.createQuerySet(wanted)),
    createShaderModule: (wanted) => moduleOf(real, wanted),
    createComputePipelineAsync: (wanted) => pipelineOf(real, wanted),
    pushErrorScope: (filter) => {
      scopes++;
      device.pushErrorScope(filter);
    },
    popErrorScope: () => {
      scopes--;
      return device.popErrorScope();
    },
    destroy: () => {
      if (!isHeld) return;
      isHeld = false;
      for (const one of made) one.destroy();
      real.listeners = [];
      if (scopes !== 0) real.hasFailed = true;
      resolve({ reason: "destroyed", message: "it was destroyed" } as GPUDeviceLostInfo);
      giveBack();
    },
  } as Partial<GPUDevice>);
}

function moduleOf(real: Real, wanted: GPUShaderModuleDescriptor): GPUShaderModule {
  const known = real.modules.get(wanted.code);
  if (known) return known;
  const made = real.device.createShaderModule(wanted);
  real.modules.set(wanted.code, made);
  real.codes.set(made, wanted.code);
  return made;
}

async function pipelineOf(
  real: Real,
  wanted: GPUComputePipelineDescriptor,
): Promise<GPUComputePipeline> {
  const { module, entryPoint, constants } = wanted.compute;
  const code = real.codes.get(module);
  if (wanted.layout !== "auto" || code === undefined) {
    return await real.device.createComputePipelineAsync(wanted);
  }
  const key = JSON.stringify([code, entryPoint, constants]);
  const made = real.pipelines.get(key) ?? real.device.createComputePipelineAsync(wanted);
  real.pipelines.set(key, made);
  try {
    return await made;
  } catch (error) {
    real.pipelines.delete(key);
    throw error;
  }
}
