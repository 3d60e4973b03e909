// lantern devices: the GPU that --backend webgpu would use, its features and, once measured, its speed, or why there is
// none; all adapters; the machine's memory; and the use of both by the models of running servers.

import {
  type GpuInfo,
  type GpuMeasurement,
  gpuInfo,
  gpuMeasurementJson,
  rememberedGpu,
} from "../../../src/index.ts";
import type { MachineFacts } from "../../../src/platform/node-cli.ts";
import type { GpuAdapter } from "../../../src/platform/node-vulkan.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { dateText, gpuRateRows } from "../gpu-text.ts";
import { measureGpuWatched, noteTo } from "../machine-limits.ts";
import { bytesText, tableText } from "../text.ts";
import { type Asked, askServers } from "./ps.ts";

interface DevicesFlags {
  measure?: boolean;
  json?: boolean;
}

export const devicesCommand: CommandBody = {
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
  const asked = await askServers({}, context);
  const machine = terminal.machine();
  const adapters = terminal.gpuAdapters();
  if (json) {
    const gpu = { ...devicesJson(found, measured), ...adaptersJson(adapters) };
    terminal.out(`${JSON.stringify({ ...gpu, ...memoryJson(machine, asked) })}\n`);
    return;
  }
  terminal.out(hasGpu ? deviceText(found) + measuredText(measured) : `No GPU: ${found}.\n`);
  terminal.out(adaptersText(adapters));
  terminal.out(memoryInUse(machine, asked));
}

/** All adapters of this machine; WebGPU shows the one that would be used. */
function adaptersText(adapters: readonly GpuAdapter[] | string): string {
  if (typeof adapters === "string") return `\nother adapters are not known: ${adapters}\n`;
  const rows = adapters.map(({ name, kind, memoryBytes }) => [
    name,
    kind === "cpu" ? "software" : kind,
    memoryBytes > 0 ? bytesText(memoryBytes) : "the machine's",
  ]);
  return `\n${tableText([["ADAPTER", "KIND", "MEMORY"], ...rows], [2])}`;
}

function adaptersJson(adapters: readonly GpuAdapter[] | string): object {
  if (typeof adapters === "string") return { adapters: [], adapters_reason: adapters };
  return {
    adapters: adapters.map(({ memoryBytes, ...rest }) => ({ ...rest, memory_bytes: memoryBytes })),
  };
}

/** The machine's memory, and the memory of every loaded model that a server here reports. */
function memoryInUse({ memoryBytes, freeBytes }: MachineFacts, asked: readonly Asked[]): string {
  const used = `${bytesText(memoryBytes - freeBytes)} of ${bytesText(memoryBytes)}`;
  const models = asked.flatMap(({ url, status }) =>
    (status?.models ?? []).map((model) => [
      model.id,
      bytesText(model.weightBytes),
      bytesText(model.cacheBytes),
      bytesText(model.scratchBytes),
      model.device ?? "the machine's",
      url,
    ]),
  );
  const silent = asked.flatMap(({ url, error }) => (error === null ? [] : [`${url}: ${error}\n`]));
  const header = ["MODEL", "WEIGHTS", "KV CACHE", "SCRATCH", "MEMORY", "SERVER"];
  const table = models.length > 0 ? `\n${tableText([header, ...models], [1, 2, 3])}` : "";
  return `\nthe machine's memory: ${used} in use\n${table}${silent.join("")}`;
}

function memoryJson({ memoryBytes, freeBytes }: MachineFacts, asked: readonly Asked[]): object {
  return {
    machine: { memory_bytes: memoryBytes, available_bytes: freeBytes },
    models: asked.flatMap(({ url, status }) =>
      (status?.models ?? []).map((model) => ({
        server: url,
        id: model.id,
        weight_bytes: model.weightBytes,
        kv_bytes: model.cacheBytes,
        kv_bytes_at_most: model.cacheBytesAtMost,
        scratch_bytes: model.scratchBytes,
        device: model.device,
      })),
    ),
  };
}

function measuredText(measured: GpuMeasurement | undefined): string {
  if (!measured) return "";
  return `\nmeasured ${dateText(measured.measuredAt)}\n${tableText(gpuRateRows(measured), [1])}`;
}

function deviceText(gpu: GpuInfo): string {
  const yesNo = (has: boolean): string => (has ? "yes" : "no");
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
      ["subgroups", subgroupText(gpu)],
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

function subgroupText({ subgroups, subgroupShuffles }: GpuInfo): string {
  if (typeof subgroupShuffles === "string") return `not used: ${subgroupShuffles}`;
  if (!subgroups) return "no";
  const { min, max } = subgroups;
  const sizes = min === max ? `${min}` : `${min} to ${max}`;
  return `of ${sizes} threads${subgroupShuffles ? ", checked" : ""}`;
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
        subgroup_shuffles: found.subgroupShuffles ?? null,
        subgroup_matrix: found.subgroupMatrix,
        timestamp_queries: found.timestampQueries,
        measured: measured ? gpuMeasurementJson(measured) : null,
      },
    ],
  };
}
