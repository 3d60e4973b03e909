// The tables of `lantern bench matmul`: a row per opt level, a column per type and thread count.

import { summarize } from "../../../src/base/measure.ts";
import type { OptLevel, RegisterTile } from "../../../src/index.ts";
import type { MachineFacts, MachineLoad } from "../../../src/platform/node-cli.ts";
import { rateText } from "./measure.ts";
import { type BenchOutputFlags, machineJson, machineText } from "./options.ts";
import { renderTable } from "./render.ts";

export interface MatmulFlags extends BenchOutputFlags {
  type: string[];
  threads?: number[];
  level?: OptLevel[];
  rows: number;
  columns: number;
  tokens: number;
  repetitions: number;
  seconds: number;
  tile?: readonly RegisterTile[] | "all";
  seedTable?: boolean;
}

export interface Entrant {
  level: OptLevel;
  type: string;
  threads: number;
  /** undefined: the opt level's default tile. */
  tile: RegisterTile | undefined;
  /** One for each round. */
  gflops: number[];
  kernel: string;
  othersCores: number;
}

export function entrant(
  level: OptLevel,
  type: string,
  threads: number,
  tile?: RegisterTile,
): Entrant {
  return { level, type, threads, tile, gflops: [], kernel: "", othersCores: 0 };
}

export interface MatmulReport {
  flags: MatmulFlags;
  levels: readonly OptLevel[];
  threads: readonly number[];
  machine: MachineFacts;
  entrants: readonly Entrant[];
  before: MachineLoad;
  after: MachineLoad;
}

/** The median of an opt level, type and thread count; undefined: it was not measured. */
export function medianOf(
  { entrants }: MatmulReport,
  level: number,
  type: string,
  threads: number,
): number | undefined {
  const found = entrants.find(
    (one) => one.level === level && one.type === type && one.threads === threads,
  );
  return found && summarize(found.gflops).median;
}

/** The shape of the matmul, and the machine. */
export function headText({ flags, machine, before, after }: MatmulReport): string {
  const problem = `[${flags.tokens}, ${flags.columns}] x [${flags.rows}, ${flags.columns}]^T`;
  return `${problem}\n${machineText(machine, before, after)}\n`;
}

export function reportJson({ flags, machine, entrants, before, after }: MatmulReport): object {
  return {
    n: flags.rows,
    k: flags.columns,
    m: flags.tokens,
    machine: machineJson(machine),
    load: { before: before.loadAverage ?? null, after: after.loadAverage ?? null },
    results: entrants.map((one) => ({
      level: one.level,
      type: one.type,
      threads: one.threads,
      ...(one.tile && { tile: `${one.tile.rows}x${one.tile.tokens}` }),
      gflops: summarize(one.gflops),
      samples: one.gflops,
      kernel: one.kernel,
      others_cores: one.othersCores,
    })),
  };
}

/** A row per level, a column per type and thread count; below, the ratio of the last row to the first. */
export function reportText(report: MatmulReport): string {
  const { flags, levels, threads, entrants } = report;
  const columns = flags.type.flatMap((type) => threads.map((count) => ({ type, count })));
  const rows = levels.map((level) => [
    `opt level ${level}`,
    ...columns.map(({ type, count }) => rateText(medianOf(report, level, type, count)!)),
  ]);
  const [first, last] = [levels[0]!, levels.at(-1)!];
  if (first !== last) {
    const gains = columns.map(({ type, count }) => {
      const [from, to] = [first, last].map((level) => medianOf(report, level, type, count)!);
      return `${rateText(to! / from!)}x`;
    });
    rows.push([`opt level ${last} : ${first}`, ...gains]);
  }
  const header = ["GFLOPS", ...columns.map(({ type, count }) => `${type} (t=${count})`)];
  const table = renderTable(
    { header, rows, right: columns.map((_, i) => i + 1) },
    flags.markdown ?? false,
  );
  const kernels = new Map(
    entrants.map(({ level, type, kernel }) => [`opt level ${level}, ${type}`, kernel]),
  );
  const names = Array.from(kernels, ([which, kernel]) => `${which}: ${kernel}\n`).join("");
  return `${headText(report)}\n${table}\n${names}`;
}
