// lantern bench matmul: the speed of single matmuls for every opt level, type and thread count, as a table with a row for
// each level (../bench/matmul-report.ts). The entrants alternate; each shows the median of its rounds. --tile measures
// register tiles instead (../bench/matmul-tiles.ts), --seed-table the rows of the seed's own table beside its numbers
// (../bench/seed-table.ts).
//
// A face uses only the public API, so this command cannot take the cases of the conformance table: `npm run bench:ops`
// measures those. Both have the size of matmulBenchShape.

import { type Command, InvalidArgumentError, Option } from "commander";
import { othersCores } from "../../../src/base/machine-load.ts";
import { measure } from "../../../src/base/measure.ts";
import { benchMatmul, matmulBenchShape, type OptLevel, UsageError } from "../../../src/index.ts";
import {
  type Entrant,
  entrant,
  type MatmulFlags,
  type MatmulReport,
  reportJson,
  reportText,
} from "../bench/matmul-report.ts";
import { checkedTiles, tilesFlag, tilesText } from "../bench/matmul-tiles.ts";
import {
  bestOptLevel,
  disturbedNote,
  jsonOption,
  levelsOption,
  markdownOption,
  statusLine,
  threadsOption,
} from "../bench/options.ts";
import { seedShape, seedTableJson, seedTableText, seedThreads } from "../bench/seed-table.ts";
import type { CliContext } from "../command.ts";
import { numberFlag } from "../flag-values.ts";
import { plural } from "../text.ts";

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
    .addOption(
      new Option(
        "--tile <BxT,...>",
        'register tiles, rows x tokens, as in 5x4, or "all": prints a table of them (default opt level: 2, whose tiles can be any)',
      ).argParser(tilesFlag),
    )
    .addOption(
      new Option(
        "--seed-table",
        "the table of the Loongson 3A6000 report, measured here: opt levels x F32 and Q4_1 x 1, 2, 4 threads",
      ),
    )
    .addOption(jsonOption())
    .addOption(markdownOption())
    .action((flags: MatmulFlags) => matmul(flags, command, context));
}

function typeList(text: string): string[] {
  const names = text.toLowerCase().split(",");
  if (!names.includes("")) return [...new Set(names)];
  throw new InvalidArgumentError("Expected types separated by commas, as in f32,q4_1.");
}

async function matmul(given: MatmulFlags, command: Command, context: CliContext): Promise<void> {
  const { terminal } = context;
  const machine = terminal.machine();
  const flags = given.seedTable ? seedFlags(given, command) : given;
  const threads =
    flags.threads ??
    (flags.seedTable ? seedThreads(machine.cores) : [...new Set([1, machine.cores])]);
  const levels = await levelsFor(flags);
  const entrants = await entrantsOf(flags, levels, threads);
  const before = terminal.load();
  await measureAll(entrants, flags, context);
  const report = { flags, levels, threads, machine, entrants, before, after: terminal.load() };
  terminal.out(flags.json ? `${JSON.stringify(jsonOf(report))}\n` : textOf(report));
  const note = disturbedNote(entrants);
  if (note) terminal.err(`${context.color().err.red(note)}\n`);
}

/** The seed's matmul, unless flags say otherwise. */
function seedFlags(flags: MatmulFlags, command: Command): MatmulFlags {
  const isGiven = (name: string) => command.getOptionValueSource(name) === "cli";
  if (flags.tile)
    throw new UsageError(
      "bench matmul: --seed-table and --tile print different tables. Give one of them",
    );
  return {
    ...flags,
    rows: isGiven("rows") ? flags.rows : seedShape.n,
    columns: isGiven("columns") ? flags.columns : seedShape.k,
    tokens: isGiven("tokens") ? flags.tokens : seedShape.m,
    repetitions: isGiven("repetitions") ? flags.repetitions : 1,
  };
}

/** All opt levels that this machine can run; with register tiles, the opt level whose tiles can be any. */
async function levelsFor({ level, tile }: MatmulFlags): Promise<readonly OptLevel[]> {
  if (level) return level;
  if (tile) return [2];
  const best = await bestOptLevel();
  const all: readonly OptLevel[] = [1, 2, 3, 4];
  return all.filter((one) => one <= best);
}

/** Every combination; types and register tiles are checked before anything is measured. */
async function entrantsOf(
  flags: MatmulFlags,
  levels: readonly OptLevel[],
  threads: readonly number[],
): Promise<Entrant[]> {
  const all: Entrant[] = [];
  for (const level of levels) {
    for (const type of flags.type) {
      const shape = { type, level, n: flags.rows, k: flags.columns, m: flags.tokens };
      const tiles = await checkedTiles(flags.tile, shape);
      for (const count of threads)
        for (const tile of tiles) all.push(entrant(level, type, count, tile));
    }
  }
  return all;
}

async function measureAll(
  entrants: readonly Entrant[],
  flags: MatmulFlags,
  { terminal }: CliContext,
): Promise<void> {
  const status = statusLine(terminal);
  try {
    await measure({
      contestants: entrants,
      rounds: flags.repetitions,
      run: async (one, round) => {
        const tile = one.tile ? `, tile ${one.tile.rows}x${one.tile.tokens}` : "";
        const what = `opt level ${one.level}, ${one.type}, ${plural(one.threads, "thread")}${tile}`;
        const of = `${entrants.indexOf(one) + 1} of ${entrants.length}, round ${round + 1} of ${flags.repetitions}`;
        status(`${what}: ${of}`);
        const start = terminal.load();
        const { gflops, kernel } = await benchMatmul({
          type: one.type,
          n: flags.rows,
          k: flags.columns,
          m: flags.tokens,
          level: one.level,
          threads: one.threads,
          seconds: flags.seconds,
          ...(one.tile && { tile: one.tile }),
        });
        one.gflops.push(gflops);
        one.kernel = kernel;
        one.othersCores = Math.max(one.othersCores, othersCores(start, terminal.load()));
      },
    });
  } finally {
    status("");
  }
}

function textOf(report: MatmulReport): string {
  if (report.flags.seedTable) return seedTableText(report);
  return report.flags.tile ? tilesText(report) : reportText(report);
}

function jsonOf(report: MatmulReport): object {
  const json = reportJson(report);
  return report.flags.seedTable ? { ...json, seed: seedTableJson(report) } : json;
}
