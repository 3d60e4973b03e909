// Two engines on the same file, taking turns: rounds that something disturbed are measured again, and what was never
// quiet is not reported unless the caller insists. Knows no engine: a side is a name and a function that measures.

import { availableParallelism } from "node:os";
import { rateText } from "../apps/cli/bench/measure.ts";
import { machineText, statusLine } from "../apps/cli/bench/options.ts";
import { renderTable } from "../apps/cli/bench/render.ts";
import { SourceError } from "../src/base/errors.ts";
import { measure, median, type RoundWatch, summarize } from "../src/base/measure.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { count, counts, type Flag, isOn, number } from "./harness.ts";
import { QuietWatch } from "./quiet.ts";

/** What every comparison is asked with. */
export interface CompareFlags {
  readonly threads: number[];
  readonly prompt: number;
  readonly predict: number;
  readonly repetitions: number;
  /** Seconds to wait for a quiet machine. */
  readonly wait: number;
  /** Reports also what was measured on a busy machine. */
  readonly force: boolean;
  readonly json: boolean;
  readonly markdown: boolean;
}

export const compareFlags: { readonly [K in keyof CompareFlags]: Flag<CompareFlags[K]> } = {
  threads: counts([availableParallelism()], "t"),
  prompt: count(128, "p"),
  predict: count(32, "n"),
  repetitions: count(5, "r"),
  wait: number(60),
  force: isOn,
  json: isOn,
  markdown: isOn,
};

const busyExitCode = 3;

export interface Comparison {
  readonly terminal: Terminal;
  readonly watch: QuietWatch;
  readonly lines: Line[];
  status(text: string): void;
}

/** Waits for a quiet machine, lets `compare` add lines, and prints them; it returns the versions. */
export async function comparison(
  flags: CompareFlags,
  compare: (comparison: Comparison) => Promise<string>,
): Promise<void> {
  const terminal = nodeTerminal();
  const [watch, before] = [new QuietWatch(terminal), terminal.load()];
  const { force, wait } = flags;
  const busy = await watch.settle(force ? 0 : wait);
  if (busy !== undefined && !force) {
    process.exitCode = busyExitCode;
    throw new SourceError(
      `bench: the machine is busy: ${busy}, also after ${wait} s. End what runs, or measure all the same with --force`,
    );
  }
  const [lines, status] = [[] as Line[], statusLine(terminal)];
  const versions = await compare({ terminal, watch, lines, status }).finally(() => status(""));
  const facts = `${machineText(terminal.machine(), before, terminal.load())}; ${versions}`;
  terminal.out(flags.json ? jsonText(lines, facts, force) : reportText(lines, facts, flags));
  if (lines.some(({ disturbed }) => disturbed) && !force) process.exitCode = busyExitCode;
}

/** Tokens per second. */
export interface Speed {
  readonly prompt: number;
  readonly generation: number;
}

export interface Side<Input> {
  readonly name: string;
  /** One round; every side gets the same input. */
  measure(input: Input): Promise<Speed>;
}

/** One model and thread count. */
export interface Line {
  readonly model: string;
  readonly threads: number;
  /** In the order of the columns; ratios are of the first to the second. */
  readonly sides: readonly { readonly name: string; readonly samples: readonly Speed[] }[];
  /** Why its rounds could not be quiet; undefined: they were. */
  readonly disturbed: string | undefined;
}

/** Rounds in turns; as many again may be thrown away because something disturbed them. */
export async function runRounds<Input>(
  sides: readonly Side<Input>[],
  nextInput: () => Input,
  watch: RoundWatch,
  {
    repetitions,
    force,
    onRound,
  }: { repetitions: number; force: boolean; onRound(done: number): void },
): Promise<Pick<Line, "sides" | "disturbed">> {
  let input: Input;
  const { samples, disturbed } = await measure({
    contestants: sides,
    rounds: repetitions,
    watch,
    mostRepeats: force ? 0 : repetitions,
    onRound: (done) => {
      onRound(done);
      input = nextInput();
    },
    run: (side) => side.measure(input),
  });
  return { sides: sides.map(({ name }, i) => ({ name, samples: samples[i]! })), disturbed };
}

export function reportText(
  lines: readonly Line[],
  facts: string,
  flags: Pick<CompareFlags, "prompt" | "predict" | "repetitions" | "force" | "markdown">,
): string {
  const { force, repetitions } = flags;
  const names = lines[0]!.sides.map(({ name }) => name);
  const tests = [`pp${flags.prompt}`, `tg${flags.predict}`];
  const header = ["model", "threads"];
  for (const test of tests) header.push(`${test} ${names[0]}`, names[1]!, "ratio");
  const rows = lines.map((line) => {
    const cells = [line.model, String(line.threads)];
    if (line.disturbed && !force) return [...cells, `not reported: ${line.disturbed}`];
    for (const test of ["prompt", "generation"] as const) {
      const [first, second] = medians(line, test);
      cells.push(rateText(first), rateText(second));
      cells.push(`${(first / second).toFixed(2)}${line.disturbed ? "*" : ""}`);
    }
    return cells;
  });
  const table = renderTable({ header, rows, right: [1, 2, 3, 4, 5, 6, 7] }, flags.markdown);
  const disturbed = lines.find((line) => line.disturbed)?.disturbed;
  const note = disturbed && force ? `\n* The machine was busy: ${disturbed}.\n` : "";
  return `${facts}\ntokens/s, median of ${repetitions}\n\n${table}${note}`;
}

export function jsonText(lines: readonly Line[], facts: string, force: boolean): string {
  const results = lines.map((line) => {
    const ratio = (test: keyof Speed) => {
      const [first, second] = medians(line, test);
      return first / second;
    };
    return {
      model: line.model,
      threads: line.threads,
      ...Object.fromEntries(line.sides.map(({ name, samples }) => [name, sideJson(samples)])),
      ratio:
        line.disturbed && !force
          ? null
          : { prompt: ratio("prompt"), generation: ratio("generation") },
      disturbed: line.disturbed ?? null,
    };
  });
  return `${JSON.stringify({ machine: facts, results })}\n`;
}

function sideJson(samples: readonly Speed[]): unknown {
  const of = (test: keyof Speed) => {
    const speeds = samples.map((speed) => speed[test]);
    return { ...summarize(speeds), samples: speeds };
  };
  return { prompt: of("prompt"), generation: of("generation") };
}

function medians({ sides }: Line, test: keyof Speed): [number, number] {
  const [first, second] = sides.map(({ samples }) => median(samples.map((one) => one[test])));
  return [first!, second!];
}
