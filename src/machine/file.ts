// The stored measurement as a small JSON file (format: docs/inside/machine-file.md), and the check whether it still applies to
// this machine. Text in, text out: the platform knows where the file is.

import type { CachedReads, MachineMeasurement, RatePoint } from "../api/rates.ts";
import { detectWasmFeatures } from "../kernels/features.ts";

/** Version of the format and of the method; a file of another version is measured again. */
const MACHINE_FILE_VERSION = 2;

/** Properties that must match for a measurement to apply. */
export type MachineIdentity = Pick<MachineMeasurement, "cpu" | "cores" | "lowering">;

/**
 * The lowering of kernels here, for messages; a measurement of another lowering is stale. `target`: of the machine
 * code, if that is measured.
 */
export function loweringText(target?: string): string {
  if (target !== undefined) return `machine code for ${target}`;
  const { relaxed, dot4 } = detectWasmFeatures();
  return `WebAssembly SIMD, ${relaxed ? `relaxed (dot4 ${dot4})` : "not relaxed"}`;
}

/** Rates by number of threads: { "1": 2.1e10, "2": 3.9e10 }. */
type RatesJson = Record<string, number>;

interface MachineJson {
  lantern_machine: number;
  cpu: string;
  cores: number;
  memory_bytes: number | null;
  lowering: string;
  measured_at: string;
  read_bytes_per_second: RatesJson;
  cached_reads: { set_bytes: number; read_bytes_per_second: RatesJson }[];
  f32_ops_per_second: RatesJson;
  int8_ops_per_second: RatesJson;
  /** Only with AMX tiles. */
  int8_tile_ops_per_second?: RatesJson;
  /** Only of a quick measurement. */
  quick?: boolean;
}

export function machineToText(machine: MachineMeasurement): string {
  const json: MachineJson = {
    lantern_machine: MACHINE_FILE_VERSION,
    cpu: machine.cpu,
    cores: machine.cores,
    memory_bytes: machine.memoryBytes ?? null,
    lowering: machine.lowering,
    measured_at: machine.measuredAt,
    read_bytes_per_second: ratesToJson(machine.readBytes),
    cached_reads: (machine.cachedReads ?? []).map(({ setBytes, readBytes }) => ({
      set_bytes: setBytes,
      read_bytes_per_second: ratesToJson(readBytes),
    })),
    f32_ops_per_second: ratesToJson(machine.f32Ops),
    int8_ops_per_second: ratesToJson(machine.int8Ops),
    ...(machine.int8TileOps && { int8_tile_ops_per_second: ratesToJson(machine.int8TileOps) }),
    ...(machine.quick && { quick: true }),
  };
  return `${JSON.stringify(json, undefined, 2)}\n`;
}

function ratesToJson(points: readonly RatePoint[]): RatesJson {
  return Object.fromEntries(points.map(({ threads, perSecond }) => [threads, perSecond]));
}

/** The measurement in the text, or a sentence that says why it cannot be used. */
export function machineFromText(
  text: string,
  here: MachineIdentity,
): MachineMeasurement | { readonly refused: string } {
  let json: Partial<MachineJson>;
  try {
    json = (JSON.parse(text) ?? {}) as Partial<MachineJson>;
  } catch {
    return { refused: "it is not JSON" };
  }
  const version = json.lantern_machine;
  if (version !== MACHINE_FILE_VERSION) {
    return { refused: `it has version ${version}, expected ${MACHINE_FILE_VERSION}` };
  }
  try {
    const machine = fromJson(json);
    const other = differenceOf(machine, here);
    return other ? { refused: other } : machine;
  } catch (error) {
    if (!(error instanceof WrongField)) throw error;
    return { refused: error.message };
  }
}

/** The difference between the measured machine and this one; undefined: none. */
function differenceOf(machine: MachineIdentity, here: MachineIdentity): string | undefined {
  for (const key of ["cpu", "cores", "lowering"] as const) {
    if (machine[key] === here[key]) continue;
    return `it was measured with another ${names[key]}: ${machine[key]}, now ${here[key]}`;
  }
  return undefined;
}

const names: Readonly<Record<keyof MachineIdentity, string>> = {
  cpu: "processor",
  cores: "number of cores",
  lowering: "instruction set",
};

/** Never leaves this file: a bad field becomes a refusal, not an error. */
class WrongField extends Error {}

function fromJson(json: Partial<MachineJson>): MachineMeasurement {
  const {
    cpu,
    cores,
    memory_bytes: memory,
    lowering,
    measured_at: date,
    cached_reads: sets,
    int8_tile_ops_per_second: tileOps,
    quick = false,
  } = json;
  check("cpu", typeof cpu === "string");
  check("cores", isPositive(cores));
  check("memory_bytes", memory === null || isPositive(memory));
  check("lowering", typeof lowering === "string");
  check("measured_at", typeof date === "string" && !Number.isNaN(Date.parse(date)));
  check("cached_reads", Array.isArray(sets));
  check("quick", typeof quick === "boolean");
  return {
    cpu: cpu!,
    cores: cores!,
    memoryBytes: memory ?? undefined,
    lowering: lowering!,
    readBytes: ratesFromJson("read_bytes_per_second", json.read_bytes_per_second),
    cachedReads: sets!.map(cachedFromJson),
    f32Ops: ratesFromJson("f32_ops_per_second", json.f32_ops_per_second),
    int8Ops: ratesFromJson("int8_ops_per_second", json.int8_ops_per_second),
    ...(tileOps !== undefined && {
      int8TileOps: ratesFromJson("int8_tile_ops_per_second", tileOps),
    }),
    measuredAt: date!,
    ...(quick && { quick }),
  };
}

function cachedFromJson(set: Partial<MachineJson["cached_reads"][number]> | null): CachedReads {
  check("cached_reads: set_bytes", isPositive(set?.set_bytes));
  const readBytes = ratesFromJson("cached_reads", set?.read_bytes_per_second);
  return { setBytes: set!.set_bytes!, readBytes };
}

function ratesFromJson(field: string, rates: RatesJson | undefined): RatePoint[] {
  const points = Object.entries(rates ?? {})
    .map(([threads, perSecond]) => ({ threads: Number(threads), perSecond }))
    .sort((a, b) => a.threads - b.threads);
  const isRight = (point: RatePoint): boolean =>
    Number.isInteger(point.threads) && isPositive(point.threads) && isPositive(point.perSecond);
  check(field, points[0]?.threads === 1 && points.every(isRight));
  return points;
}

function isPositive(value: unknown): boolean {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}

function check(field: string, holds: boolean): void {
  if (!holds) throw new WrongField(`its field ${field} is missing or wrong`);
}
