// lantern devices: the GPU that --backend webgpu would use, its features and, once measured, its speed; or why there
// is none.

import {
  type GpuInfo,
  type GpuMeasurement,
  gpuInfo,
  gpuMeasurementJson,
  rememberedGpu,
} from "../../index.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { dateText, gpuRateRows } from "../gpu-text.ts";
import { measureGpuWatched, noteTo } from "../machine-limits.ts";
import { bytesText, tableText } from "../text.ts";

interface DevicesFlags {
  measure?: boolean;
  json?: boolean;
}

export const devicesCommand: CliCommand = {
  name: "devices",
  summary: "show the GPU that --backend webgpu would use",
  examples: ["lantern devices", "lantern devices --measure", "lantern devices --json"],
  define(command, context) {
    command
      .option("--measure", "measure the GPU's speed (a few seconds)")
      .option("--json", jsonHelp)
      .action((flags: DevicesFlags) => devices(flags, context));
  },
};

async function devices({ json, measure }: DevicesFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const onNote = noteTo(context);
  const found = await gpuInfo();
  const hasGpu = typeof found !== "string";
  const measured =
    measure && hasGpu
      ? await measureGpuWatched(context, { anew: true, onNote })
      : await rememberedGpu({ onNote });
  if (json) terminal.out(`${JSON.stringify(devicesJson(found, measured))}\n`);
  else if (hasGpu) terminal.out(deviceText(found) + measuredText(measured));
  else terminal.out(`No GPU: ${found}.\n`);
}

function measuredText(measured: GpuMeasurement | undefined): string {
  if (!measured) return "";
  return `\nmeasured ${dateText(measured.measuredAt)}\n${tableText(gpuRateRows(measured), [1])}`;
}

function deviceText(gpu: GpuInfo): string {
  const { subgroups } = gpu;
  const yesNo = (has: boolean): string => (has ? "yes" : "no");
  const sizes =
    subgroups && (subgroups.min === subgroups.max ? `${subgroups.min}` : rangeText(subgroups));
  return tableText(
    [
      ["name", gpu.name],
      ["vendor", [gpu.vendor, gpu.architecture].filter(Boolean).join(", ") || "unknown"],
      ["driver", gpu.driver || "unknown"],
      ["kind", gpu.isSoftware ? "software: runs on the CPU, slowly" : "GPU"],
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
  return "unknown (WebGPU does not say); -ngl auto finds out how many layers fit";
}

function rangeText({ min, max }: { min: number; max: number }): string {
  return `${min} to ${max}`;
}

function devicesJson(found: GpuInfo | string, measured: GpuMeasurement | undefined): object {
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
        measured: measured ? gpuMeasurementJson(measured) : null,
      },
    ],
  };
}
