// The ways to compute a matmul on a GPU as profiles of a tune file, and the identity of the GPU and kernels that times
// are for.

import { type GpuFacts, gpuIdentity } from "../backends/webgpu/device.ts";
import { MATMUL_REVISION, matmulShapes } from "../backends/webgpu/tuning.ts";
import { DEFAULT_VARIANT, type TuneIdentity, type TuneProfile } from "./tune-file.ts";

export function gpuTuneProfiles(): TuneProfile[] {
  return [DEFAULT_VARIANT, ...matmulShapes.keys()].map((variant) => ({
    backend: "webgpu",
    level: 3,
    variant,
    idle: "spin",
  }));
}

/** The GPU and the kernels that times are for. */
export function gpuTuneIdentity(facts: GpuFacts): TuneIdentity {
  const { subgroups, f16, packedDots, subgroupMatrix } = facts;
  const lanes = subgroups ? `subgroups=${subgroups.min}-${subgroups.max}` : "no-subgroups";
  const has = { f16, dot4: packedDots, matrices: subgroupMatrix };
  const features = Object.entries(has).flatMap(([name, is]) => (is ? [name] : []));
  return {
    engine: `kernels webgpu-${MATMUL_REVISION}`,
    cpu: gpuIdentity(facts),
    cores: 1,
    features: ["webgpu", lanes, ...features].join(" "),
  };
}
