// lantern bench matmul: the speed of single matmuls for every opt level, type and thread count, as a table with
// a row for each level. The entrants take turns; each shows the median of its rounds.
//
// A face uses only the public API, so this command cannot take the cases of the conformance table: `npm run bench:ops`
// measures those. Both have the size of matmulBenchShape.

import { type Command, InvalidArgumentError, Option } from "commander";
import { benchMatmul, matmulBenchShape, type OptLevel } from "../../index.ts";
import type { MachineFacts, MachineLoad } from "../../platform/node-cli.ts";
import { othersCores } from "../bench/machine-load.ts";
import { rateText, summarize } from "../bench/measure.ts";
import {
  type BenchOutputFlags,
  bestOptLevel,
  disturbedNote,
  jsonOption,
  levelsOption,
  machineText,
  markdownOption,
  statusLine,
  threadsOption,
} from "../bench/options.ts";
import { renderTable } from "../bench/render.ts";
import type { CliContext } from "../command.ts";
import { numberFlag } from "../flag-values.ts";
import { plural } from "../text.ts";

interface MatmulFlags extends BenchOutputFlags {
  type: string[];
  threads?: number[];
  level?: OptLevel[];
  rows: number;
  columns: number;
  tokens: number;
  repetitions: number;
  seconds: number;
}

interface Entrant {
  level: OptLevel;
  type: string;
  threads: number;
  /** One for each round. */
  gflops: number[];
  kernel: string;
  othersCores: number;
}

const defaultTypes = "f32,q4_1";
const size = numberFlag({ integer: true, min: 1, max: 1 << 20 });

export function defineMatmul(command: Command, context: CliContext): void {
  command
    .addOption(
      new Option("--type <name,...>", "types of the weights")
        .argParser(typeList)
        .default(typeList(defaultTypes), defaultTypes),
    )
    .addOption(threadsOption("compute threads (default: 1 and all cores)"))
    .addOption(levelsOption("all that this machine can run"))
    .option("-N, --rows <n>", "rows of the weights (outputs)", size, matmulBenchShape.n)
    .option("-K, --columns <n>", "columns of the weights (inputs)", size, matmulBenchShape.k)
    .option("-M, --tokens <n>", "rows of the activations (tokens)", size, matmulBenchShape.m)
    .option(
      "-r, --repetitions <n>",
      "rounds in which every combination is measured",
      numberFlag({ integer: true, min: 1, max: 1000 }),
      3,
    )
    .option("--seconds <s>", "seconds for each combination in a round", numberFlag({ min: 0 }), 0.5)
    .addOption(jsonOption())
    .addOption(markdownOption())
    .action((flags: MatmulFlags) => matmul(flags, context));
}

function typeList(text: string): string[] {
  const names = text.toLowerCase().split(",");
  if (!names.includes("")) return [...new Set(names)];
  throw new InvalidArgumentError("Expected types separated by commas, as in f32,q4_1.");
}

async function matmul(flags: MatmulFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const machine = terminal.machine();
  const threads = flags.threads ?? [...new Set([1, machine.cores])];
  const allLevels: readonly OptLevel[] = [1, 2, 3, 4];
  const best = await bestOptLevel();
  const levels = flags.level ?? allLevels.filter((level) => level <= best);
  const entrants = levels.flatMap((level) =>
    flags.type.flatMap((type) => threads.map((count) => entrant(level, type, count))),
  );
  const status = statusLine(terminal);
  const before = terminal.load();
  for (let round = 1; round <= flags.repetitions; round++) {
    for (const one of entrants) {
      // The reference always uses one thread: measuring it again would give the same.
      if (one.level === 1 && one.threads > 1) continue;
      status(
        `opt level ${one.level}, ${one.type}, ${plural(one.threads, "thread")}: round ${round}`,
      );
      const start = terminal.load();
      const { gflops, kernel } = await benchMatmul({
        type: one.type,
        n: flags.rows,
        k: flags.columns,
        m: flags.tokens,
        level: one.level,
        threads: one.threads,
        seconds: flags.seconds,
      });
      one.gflops.push(gflops);
      one.kernel = kernel;
      one.othersCores = Math.max(one.othersCores, othersCores(start, terminal.load()));
    }
  }
  status("");
  const measured = entrants.filter(({ gflops }) => gflops.length > 0);
  const report = { flags, levels, machine, entrants: measured, before, after: terminal.load() };
  terminal.out(
    flags.json ? `${JSON.stringify(reportJson(report))}\n` : reportText(report, threads),
  );
  const note = disturbedNote(measured);
  if (note) terminal.err(`${context.color().err.red(note)}\n`);
}

function entrant(level: OptLevel, type: string, threads: number): Entrant {
  return { level, type, threads, gflops: [], kernel: "", othersCores: 0 };
}

interface MatmulReport {
  flags: MatmulFlags;
  levels: readonly OptLevel[];
  machine: MachineFacts;
  entrants: readonly Entrant[];
  before: MachineLoad;
  after: MachineLoad;
}

function reportJson({ flags, machine, entrants, before, after }: MatmulReport): object {
  return {
    n: flags.rows,
    k: flags.columns,
    m: flags.tokens,
    machine: {
      cpu: machine.cpu,
      cores: machine.cores,
      memory_bytes: machine.memoryBytes,
      system: machine.system,
    },
    load: { before: before.loadAverage ?? null, after: after.loadAverage ?? null },
    results: entrants.map((one) => ({
      level: one.level,
      type: one.type,
      threads: one.threads,
      gflops: summarize(one.gflops),
      samples: one.gflops,
      kernel: one.kernel,
      others_cores: one.othersCores,
    })),
  };
}

/** A row per level, a column per type and thread count; below, the ratio of the last row to the first. */
function reportText(report: MatmulReport, threads: readonly number[]): string {
  const { flags, levels, machine, entrants, before, after } = report;
  const columns = flags.type.flatMap((type) => threads.map((count) => ({ type, count })));
  const median = (level: number, type: string, count: number): number | undefined => {
    const found = entrants.find(
      (one) => one.level === level && one.type === type && one.threads === count,
    );
    return found && summarize(found.gflops).median;
  };
  const rows = levels.map((level) => [
    `opt level ${level}`,
    ...columns.map(({ type, count }) => {
      const value = median(level, type, count);
      return value === undefined ? "-" : rateText(value);
    }),
  ]);
  const [first, last] = [levels[0]!, levels.at(-1)!];
  if (first !== last) {
    const gains = columns.map(({ type, count }) => {
      const [from, to] = [median(first, type, count), median(last, type, count)];
      return from && to ? `${rateText(to / from)}x` : "-";
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
  const problem = `[${flags.tokens}, ${flags.columns}] x [${flags.rows}, ${flags.columns}]^T`;
  return `${problem}\n${machineText(machine, before, after)}\n\n${table}\n${names}`;
}
