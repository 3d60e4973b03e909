// An adapter that says it has subgroups of 32 lanes and matrix units, whatever it has. Its device can be changed before anyone uses it.

import type { GpuAccess } from "../../src/platform/platform.ts";

const claimed = {
  subgroupMinSize: 32,
  subgroupMaxSize: 32,
  subgroupMatrixConfigs: [
    { M: 16, N: 16, K: 16, componentType: "f16", resultComponentType: "f32" },
  ],
};
const matrices = "chromium-experimental-subgroup-matrix";

/** The adapter of `access` with these claims; `change` sees its device first. */
export function claimingAccess(
  access: GpuAccess,
  change: (device: GPUDevice) => void = () => {},
): Exclude<GpuAccess, string> {
  if (typeof access === "string") throw new Error(access);
  const { gpu } = access;
  const requestAdapter = async (options?: GPURequestAdapterOptions) => {
    const adapter = await gpu.requestAdapter(options);
    return adapter && claimingAdapter(adapter, change);
  };
  const { wgslLanguageFeatures } = gpu;
  return { ...access, gpu: { requestAdapter, wgslLanguageFeatures } as unknown as GPU };
}

function claimingAdapter(adapter: GPUAdapter, change: (device: GPUDevice) => void): GPUAdapter {
  const { info, limits, features } = adapter;
  const { vendor, architecture, device, description, isFallbackAdapter } = info;
  return {
    info: { vendor, architecture, device, description, isFallbackAdapter, ...claimed },
    limits,
    features: new Set([...features, "subgroups", matrices]),
    requestDevice: async (descriptor: GPUDeviceDescriptor) => {
      const requiredFeatures = [...(descriptor.requiredFeatures ?? [])].filter((name) =>
        (features as ReadonlySet<string>).has(name),
      );
      const opened = await adapter.requestDevice({ ...descriptor, requiredFeatures });
      change(opened);
      return opened;
    },
  } as unknown as GPUAdapter;
}
