// `lantern bench matmul --seed-table`: the matmul table of the report on porting llama.cpp to the Loongson 3A6000, measured on
// this machine beside the report's numbers, and whether the best opt level gains as much over opt level 1 as there.

import { byName } from "../../../src/base/by-name.ts";
import { headText, type MatmulReport, medianOf } from "./matmul-report.ts";
import { rateText } from "./measure.ts";
import { renderTable } from "./render.ts";

/** llama.cpp's benchmark-matmult, which the report used unchanged. */
export const seedShape = { n: 11008, k: 4096, m: 128 } as const;

const threadCounts = [1, 2, 4];

/** The report's numbers for a type. */
interface SeedType {
  /** GFLOPS by opt level, with 1, 2 and 4 threads. */
  readonly gflops: Readonly<Record<number, readonly number[]>>;
  /** The gain over opt level 1 on one thread that the best opt level must reach: 3 there, here 4 where there is machine code. */
  readonly leastGain: number;
  /** Rows and tokens of the largest register tile that was tried. */
  readonly mostTile: number;
}

const seedTypes: Readonly<Record<string, SeedType>> = byName({
  f32: {
    gflops: { 1: [1.67, 3.34, 6.67], 2: [12.89, 24.71, 44.11], 3: [59.34, 85.66, 128.46] },
    leastGain: 35,
    mostTile: 5,
  },
  q4_1: {
    gflops: { 1: [4.91, 9.77, 18.96], 2: [25.98, 51.39, 88.84], 3: [39.45, 77.0, 123.32] },
    leastGain: 6,
    mostTile: 4,
  },
});

/** Types that the report does not have are measured as its quantized one. */
const otherType: SeedType = { gflops: {}, leastGain: 6, mostTile: 4 };

export function seedType(type: string): SeedType {
  return seedTypes[type] ?? otherType;
}

/** The report's thread counts, as far as there are cores. */
export function seedThreads(cores: number): number[] {
  return threadCounts.filter((count) => count <= Math.max(1, cores));
}

function seedOf(level: number, type: string, threads: number): number | undefined {
  return seedType(type).gflops[level]?.[threadCounts.indexOf(threads)];
}

interface Bar {
  type: string;
  least: number;
  /** The best opt level that was measured. */
  level: number;
  /** undefined: one of the opt levels was not measured on one thread. */
  gain: number | undefined;
  passed: boolean | undefined;
}

function barsOf(report: MatmulReport): Bar[] {
  return report.flags.type.map((type) => {
    const { leastGain: least } = seedType(type);
    const level = Math.max(3, ...report.levels);
    const [from, to] = [1, level].map((one) => medianOf(report, one, type, 1));
    const gain = from && to ? to / from : undefined;
    return { type, level, least, gain, passed: gain === undefined ? undefined : gain >= least };
  });
}

export function seedTableJson(report: MatmulReport): object {
  return {
    machine: "Loongson 3A6000",
    gflops: Object.fromEntries(report.flags.type.map((type) => [type, seedType(type).gflops])),
    gains: barsOf(report).map(({ type, level, least, gain, passed }) => ({
      type,
      level,
      threads: 1,
      least,
      gain: gain ?? null,
      passed: passed ?? null,
    })),
  };
}

/** Each cell is this machine's speed and the report's. */
export function seedTableText(report: MatmulReport): string {
  const { flags, levels, threads, machine } = report;
  const counts = [...new Set([...threadCounts, ...threads])].toSorted((a, b) => a - b);
  const columns = flags.type.flatMap((type) => counts.map((count) => ({ type, count })));
  const pair = (here: string | undefined, there: string | undefined) =>
    `${here ?? "-"} / ${there ?? "-"}`;
  const text = (value: number | undefined) => (value === undefined ? undefined : rateText(value));
  const rows = levels.map((level) => [
    `opt level ${level}`,
    ...columns.map(({ type, count }) =>
      pair(text(medianOf(report, level, type, count)), text(seedOf(level, type, count))),
    ),
  ]);
  const gain = (from: number | undefined, to: number | undefined) =>
    from && to ? `${rateText(to / from)}x` : undefined;
  for (const level of levels.filter((one) => one >= 3)) {
    if (!levels.includes(1)) break;
    const gains = columns.map(({ type, count }) =>
      pair(
        gain(medianOf(report, 1, type, count), medianOf(report, level, type, count)),
        gain(seedOf(1, type, count), seedOf(level, type, count)),
      ),
    );
    rows.push([`opt level ${level} : 1`, ...gains]);
  }
  const header = [
    "GFLOPS here / seed",
    ...columns.map(({ type, count }) => `${type} (t=${count})`),
  ];
  const right = columns.map((_, i) => i + 1);
  const table = renderTable({ header, rows, right }, flags.markdown ?? false);
  const missing = counts.filter((count) => !threads.includes(count));
  const note =
    missing.length === 0
      ? ""
      : `\nNot measured: ${missing.join(", ")} threads (this machine has ${machine.cores} cores; -t measures them anyway).\n`;
  return `${headText(report)}The seed: Loongson 3A6000, 4 cores, 256-bit LASX; its opt levels are 1 to 3.\n\n${table}${note}\n${barsText(report)}`;
}

function barsText(report: MatmulReport): string {
  const lines = barsOf(report).map(({ type, level, least, gain, passed }) => {
    const what = `${type}, 1 thread: opt level ${level} must be at least ${least}x opt level 1`;
    if (gain === undefined) return `${what}: not measured\n`;
    return `${what}: ${rateText(gain)}x, ${passed ? "pass" : "fail"}\n`;
  });
  return lines.join("");
}
