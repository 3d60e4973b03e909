// Two engines on the same file, taking turns: rounds that something disturbed are measured again, and what was never
// quiet is not reported unless the caller insists. Knows no engine: a side is a name and a function that measures.

import { type Command, Option } from "commander";
import { SourceError } from "../src/base/errors.ts";
import { rateText, summarize } from "../src/cli/bench/measure.ts";
import { jsonOption, markdownOption, threadsOption } from "../src/cli/bench/options.ts";
import { renderTable } from "../src/cli/bench/render.ts";
import { numberFlag } from "../src/cli/flag-values.ts";
import type { Terminal } from "../src/platform/node-cli.ts";
import type { QuietWatch } from "./quiet.ts";

/** What every comparison is asked with. */
export interface CompareFlags {
  threads?: number[];
  prompt: number;
  predict: number;
  repetitions: number;
  wait: number;
  force?: boolean;
  json?: boolean;
  markdown?: boolean;
}

export function addCompareFlags(program: Command): Command {
  const count = numberFlag({ integer: true, min: 1, max: 1 << 20 });
  return program
    .addOption(threadsOption())
    .option("-p, --prompt <n>", "tokens of the prompt", count, 128)
    .option("-n, --predict <n>", "tokens to generate", count, 32)
    .option("-r, --repetitions <n>", "rounds", count, 5)
    .option("--wait <s>", "seconds to wait for a quiet machine", numberFlag({ min: 0 }), 60)
    .addOption(new Option("--force", "report also what was measured on a busy machine"))
    .addOption(jsonOption())
    .addOption(markdownOption());
}

const busyExitCode = 3;

/** Waits until nothing else runs; throws when that does not happen, unless --force. */
export async function settle(
  watch: QuietWatch,
  { force = false, wait }: CompareFlags,
): Promise<void> {
  const busy = await watch.settle(force ? 0 : wait);
  if (busy === undefined || force) return;
  process.exitCode = busyExitCode;
  throw new SourceError(
    `bench: the machine is busy: ${busy}, also after ${wait} s. End what runs, or measure all the same with --force`,
  );
}

/** Prints the lines as the flags say; `facts` are the machine and the versions. */
export function report(
  terminal: Terminal,
  lines: readonly Line[],
  facts: string,
  flags: CompareFlags,
): void {
  const { force = false, markdown = false, repetitions } = flags;
  const sizes = { promptTokens: flags.prompt, generatedTokens: flags.predict };
  terminal.out(
    flags.json
      ? jsonText(lines, facts, force)
      : reportText(lines, { facts, ...sizes, repetitions, force, markdown }),
  );
  if (lines.some(({ disturbed }) => disturbed) && !force) process.exitCode = busyExitCode;
}

/** Tokens per second. */
export interface Speed {
  prompt: number;
  generation: number;
}

export interface Side<Input> {
  readonly name: string;
  readonly samples: Speed[];
  /** One round; every side gets the same input. */
  measure(input: Input): Promise<Speed>;
}

/** Says what disturbed a round: bench/quiet.ts, with whatever it must ask first. */
export interface Watch {
  begin(): Promise<void> | void;
  disturbance(): Promise<string | undefined> | string | undefined;
}

export interface RoundOptions {
  repetitions: number;
  /** Takes disturbed rounds as they are. */
  force: boolean;
  onRound(done: number): void;
}

/** One model and thread count. */
export interface Line {
  model: string;
  threads: number;
  /** In the order of the columns; ratios are of the first to the second. */
  sides: readonly [Pick<Side<never>, "name" | "samples">, Pick<Side<never>, "name" | "samples">];
  /** Why its rounds could not be quiet; undefined: they were. */
  disturbed: string | undefined;
}

/**
 * Fills both sides with as many rounds as wanted, in alternating order; returns what disturbed those that were taken
 * after as many again had been thrown away.
 */
export async function runRounds<Input>(
  sides: readonly [Side<Input>, Side<Input>],
  nextInput: () => Input,
  watch: Watch,
  { repetitions, force, onRound }: RoundOptions,
): Promise<string | undefined> {
  let thrownAway = 0;
  let disturbed: string | undefined;
  for (let done = 0; done < repetitions; ) {
    onRound(done);
    const input = nextInput();
    await watch.begin();
    const measured: [Side<Input>, Speed][] = [];
    for (const side of done % 2 === 0 ? sides : sides.toReversed()) {
      measured.push([side, await side.measure(input)]);
    }
    const disturbance = await watch.disturbance();
    if (disturbance !== undefined && !force && thrownAway < repetitions) {
      thrownAway++;
      continue;
    }
    disturbed = disturbance ?? disturbed;
    for (const [side, speed] of measured) side.samples.push(speed);
    done++;
  }
  return disturbed;
}

export interface ReportOptions {
  /** The machine and the versions. */
  facts: string;
  promptTokens: number;
  generatedTokens: number;
  repetitions: number;
  force: boolean;
  markdown: boolean;
}

export function reportText(lines: readonly Line[], options: ReportOptions): string {
  const { force, repetitions } = options;
  const names = lines[0]!.sides.map(({ name }) => name);
  const header = ["model", "threads"];
  for (const test of [`pp${options.promptTokens}`, `tg${options.generatedTokens}`]) {
    header.push(`${test} ${names[0]}`, names[1]!, "ratio");
  }
  const rows = lines.map((line) => {
    const cells = [line.model, String(line.threads)];
    if (line.disturbed && !force) return [...cells, `not reported: ${line.disturbed}`];
    for (const test of ["prompt", "generation"] as const) {
      cells.push(...line.sides.map((side) => rateText(median(side.samples, test))));
      cells.push(`${ratio(line, test).toFixed(2)}${line.disturbed ? "*" : ""}`);
    }
    return cells;
  });
  const table = renderTable({ header, rows, right: [1, 2, 3, 4, 5, 6, 7] }, options.markdown);
  const disturbed = lines.find((line) => line.disturbed)?.disturbed;
  const note = disturbed && force ? `\n* The machine was busy: ${disturbed}.\n` : "";
  return `${options.facts}\ntokens/s, median of ${repetitions}\n\n${table}${note}`;
}

export function jsonText(lines: readonly Line[], facts: string, force: boolean): string {
  const results = lines.map((line) => ({
    model: line.model,
    threads: line.threads,
    ...Object.fromEntries(line.sides.map(({ name, samples }) => [name, sideJson(samples)])),
    ratio:
      line.disturbed && !force
        ? null
        : { prompt: ratio(line, "prompt"), generation: ratio(line, "generation") },
    disturbed: line.disturbed ?? null,
  }));
  return `${JSON.stringify({ machine: facts, results })}\n`;
}

function sideJson(samples: readonly Speed[]): unknown {
  const of = (test: keyof Speed) => {
    const speeds = samples.map((speed) => speed[test]);
    return { ...summarize(speeds), samples: speeds };
  };
  return { prompt: of("prompt"), generation: of("generation") };
}

function median(samples: readonly Speed[], test: keyof Speed): number {
  return summarize(samples.map((speed) => speed[test])).median;
}

function ratio({ sides: [first, second] }: Line, test: keyof Speed): number {
  return median(first.samples, test) / median(second.samples, test);
}
