// lantern machine: the measured limits of this machine: bytes read and operations computed per second, by number of
// threads. The first call measures, later ones show the stored measurement. docs/use/machine.md explains how.

import {
  type GpuMeasurement,
  gpuMeasurementJson,
  type MachineCodeInfo,
  type MachineMeasurement,
  machineCodeInfo,
  type RatePoint,
  rememberedGpu,
  rememberedMachine,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { dateText, gpuRateRows } from "../gpu-text.ts";
import { measureWatched, noteTo } from "../machine-limits.ts";
import { bytesText, tableText } from "../text.ts";

interface MachineFlags {
  measure?: boolean;
  json?: boolean;
}

export const machineCommand: CommandBody = {
  examples: ["lantern machine", "lantern machine --measure", "lantern machine --json"],
  define(command, context) {
    command
      .option("--measure", "measure again (about 8 seconds)")
      .option("--json", jsonHelp)
      .action((flags: MachineFlags) => machine(flags, context));
  },
};

async function machine(flags: MachineFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const onNote = noteTo(context);
  const known = flags.measure ? undefined : await rememberedMachine({ onNote });
  const measured = known ?? (await measureWatched(context, { anew: true, onNote }));
  const gpu = await rememberedGpu({ onNote });
  const code = await machineCodeInfo();
  if (flags.json) {
    const gpuJson = gpu ? gpuMeasurementJson(gpu) : null;
    terminal.out(
      `${JSON.stringify({ ...machineJson(measured), ...codeJson(code), gpu: gpuJson })}\n`,
    );
  } else terminal.out(machineText(measured) + codeText(code) + (gpu ? gpuText(gpu) : ""));
}

/** The processor's features that kernels can use, and the choices of --isa. */
function codeText(code: MachineCodeInfo): string {
  const features = code.features.length > 0 ? code.features.join(", ") : "not known";
  const kernels =
    "target" in code ? `machine code, ${code.target}` : `WebAssembly: ${code.refused}`;
  const rows = [
    ["processor features", features],
    ["instruction sets", `${code.isas.join(", ")} (--isa)`],
    ["kernels", kernels],
  ];
  return `\n${tableText(rows, [])}`;
}

function codeJson(code: MachineCodeInfo): object {
  return {
    features: code.features,
    isas: code.isas,
    target: "target" in code ? code.target : null,
    no_machine_code: "refused" in code ? code.refused : null,
  };
}

/** Only a stored measurement: "lantern devices --measure" measures. */
function gpuText(gpu: GpuMeasurement): string {
  const kind = gpu.isSoftware ? "software adapter" : "GPU";
  return `\n${kind} ${gpu.name}\nmeasured ${dateText(gpu.measuredAt)}\n\n${tableText(gpuRateRows(gpu), [1])}`;
}

function machineText(machine: MachineMeasurement): string {
  const memory = machine.memoryBytes ? `, ${bytesText(machine.memoryBytes)} of memory` : "";
  const facts = `${machine.cpu}, ${machine.cores} core${machine.cores === 1 ? "" : "s"}${memory}`;
  const date = dateText(machine.measuredAt);
  const header = ["", ...machine.readBytes.map(({ threads }) => threadsText(threads))];
  const row = (name: string, points: readonly RatePoint[], unit: string): string[] => [
    name,
    ...points.map(({ perSecond }) => (perSecond / 1e9).toFixed(1)),
    unit,
  ];
  const rows = [
    header,
    row("reading from memory", machine.readBytes, "GB/s"),
    ...(machine.cachedReads ?? []).map(({ setBytes, readBytes }) =>
      row(`reading the same ${bytesText(setBytes)}`, readBytes, "GB/s"),
    ),
    row("F32 multiply-add", machine.f32Ops, "GFLOPS"),
    row("int8 dot product", machine.int8Ops, "GOPS"),
    ...(machine.int8TileOps ? [row("int8, AMX tiles", machine.int8TileOps, "GOPS")] : []),
  ];
  const columns = machine.readBytes.map((_, index) => index + 1);
  return `${facts}\nmeasured ${date}, ${machine.lowering}\n\n${tableText(rows, columns)}`;
}

function threadsText(threads: number): string {
  return `${threads} thread${threads === 1 ? "" : "s"}`;
}

function machineJson(machine: MachineMeasurement): object {
  const rates = (points: readonly RatePoint[]): object[] =>
    points.map(({ threads, perSecond }) => ({ threads, per_second: perSecond }));
  return {
    cpu: machine.cpu,
    cores: machine.cores,
    memory_bytes: machine.memoryBytes ?? null,
    lowering: machine.lowering,
    measured_at: machine.measuredAt,
    read_bytes: rates(machine.readBytes),
    cached_reads: (machine.cachedReads ?? []).map(({ setBytes, readBytes }) => ({
      set_bytes: setBytes,
      read_bytes: rates(readBytes),
    })),
    f32_ops: rates(machine.f32Ops),
    int8_ops: rates(machine.int8Ops),
    int8_tile_ops: machine.int8TileOps ? rates(machine.int8TileOps) : null,
  };
}
