// lantern devices: the GPU that --backend webgpu would compute on, and what it can do; or why there is none.

import { type GpuInfo, gpuInfo } from "../../index.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { bytesText, tableText } from "../text.ts";

interface DevicesFlags {
  json?: boolean;
}

export const devicesCommand: CliCommand = {
  name: "devices",
  summary: "show the GPU that --backend webgpu would use",
  examples: ["lantern devices", "lantern devices --json"],
  define(command, context) {
    command
      .option("--json", "print one JSON object")
      .action((flags: DevicesFlags) => devices(flags, context));
  },
};

async function devices({ json }: DevicesFlags, { terminal }: CliContext): Promise<void> {
  const found = await gpuInfo();
  if (json) terminal.out(`${JSON.stringify(devicesJson(found))}\n`);
  else terminal.out(typeof found === "string" ? `No GPU: ${found}.\n` : deviceText(found));
}

function deviceText(gpu: GpuInfo): string {
  const { subgroups } = gpu;
  const yesNo = (has: boolean): string => (has ? "yes" : "no");
  const sizes =
    subgroups && (subgroups.min === subgroups.max ? `${subgroups.min}` : rangeText(subgroups));
  return tableText(
    [
      ["name", gpu.name],
      ["vendor", [gpu.vendor, gpu.architecture].filter(Boolean).join(", ") || "not said"],
      ["driver", gpu.driver || "not said"],
      ["kind", gpu.isSoftware ? "software: computes on the processor, right and slow" : "GPU"],
      ["memory", memoryText(gpu)],
      ["largest buffer", bytesText(gpu.maxBufferBytes)],
      ["largest binding", bytesText(gpu.maxBindingBytes)],
      ["workgroup memory", bytesText(gpu.workgroupStorageBytes)],
      ["half floats", yesNo(gpu.f16)],
      ["subgroups", sizes ? `of ${sizes} threads` : "no"],
      ["subgroup matrices", yesNo(gpu.subgroupMatrix)],
      ["timestamp queries", yesNo(gpu.timestampQueries)],
    ],
    [],
  );
}

function memoryText({ memoryBytes, isSoftware }: GpuInfo): string {
  if (memoryBytes !== undefined) return `${bytesText(memoryBytes)} (LANTERN_GPU_MEMORY)`;
  if (isSoftware) return "the machine's";
  return "not said by WebGPU: -ngl auto finds out how many layers fit";
}

function rangeText({ min, max }: { min: number; max: number }): string {
  return `${min} to ${max}`;
}

function devicesJson(found: GpuInfo | string): object {
  if (typeof found === "string") return { devices: [], reason: found };
  return {
    devices: [
      {
        name: found.name,
        vendor: found.vendor,
        architecture: found.architecture,
        driver: found.driver,
        software: found.isSoftware,
        max_buffer_bytes: found.maxBufferBytes,
        max_binding_bytes: found.maxBindingBytes,
        memory_bytes: found.memoryBytes ?? null,
        workgroup_storage_bytes: found.workgroupStorageBytes,
        f16: found.f16,
        subgroups: found.subgroups ?? null,
        subgroup_matrix: found.subgroupMatrix,
        timestamp_queries: found.timestampQueries,
      },
    ],
  };
}
