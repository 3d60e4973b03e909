// What all benchmarks share: their command line, answers with their speeds and CPU time, the load of the machine, tables, temporary
// folders and made-up models. The order of contestants and the arithmetic are in src/base/measure.ts. Nothing here is asserted.

import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { renderTable } from "../apps/cli/bench/render.ts";
import { writeModel } from "../scripts/make-model.ts";
import { syntheticModel } from "../scripts/synthetic-model.ts";
import { LanternError, SourceError, UsageError } from "../src/base/errors.ts";
import type { GenerateOptions, GenerationResult, Model } from "../src/index.ts";
import { Random } from "../test/support/random.ts";

/** A flag of a command line. */
export interface Flag<T> {
  readonly short?: string | undefined;
  /** What stands for its value in the usage; undefined: it has none. */
  readonly shown: string | undefined;
  readonly usual: T;
  /** From its last value. */
  parse(text: string): T;
}

interface MakeFlag<T> {
  (usual: T, short?: string): Flag<T>;
  (usual?: undefined, short?: string): Flag<T | undefined>;
}

function flagOf<T>(shown: string, parse: (text: string) => T): MakeFlag<T> {
  const make = (usual: T, short?: string): Flag<T> => ({
    ...{ shown, usual, short },
    parse,
  });
  return make as MakeFlag<T>;
}

function wholeFrom(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text !== "" && Number.isInteger(value) && value >= least) return value;
    throw new UsageError(`got "${text}", expected a whole number of at least ${least}`);
  };
}

function listOf<T>(parse: (text: string) => T): (text: string) => T[] {
  return (text) => text.split(",").map(parse);
}

function numberOf(text: string): number {
  const value = Number(text);
  if (text !== "" && Number.isFinite(value)) return value;
  throw new UsageError(`got "${text}", expected a number`);
}

/** Whole numbers: count from 1, whole from 0. */
export const count: MakeFlag<number> = flagOf("N", wholeFrom(1));
export const counts: MakeFlag<number[]> = flagOf("N,...", listOf(wholeFrom(1)));
export const whole: MakeFlag<number> = flagOf("N", wholeFrom(0));
export const number: MakeFlag<number> = flagOf("X", numberOf);
export const text: MakeFlag<string> = flagOf("TEXT", (value) => value);
export const texts: MakeFlag<string[]> = flagOf(
  "A,B",
  listOf((value) => value),
);
export const isOn: Flag<boolean> = { shown: undefined, usual: false, parse: () => true };

/** One of these words. */
export function choice<T extends string>(usual: T, words: readonly T[]): Flag<T> {
  return flagOf(words.join("|"), (value): T => {
    const found = words.find((word) => word === value);
    if (found !== undefined) return found;
    throw new UsageError(`got "${value}", expected ${words.join(", ")}`);
  })(usual);
}

type Flags = Readonly<Record<string, Flag<unknown>>>;
export type Values<F> = { readonly [K in keyof F]: F[K] extends Flag<infer T> ? T : never };

/**
 * Reads the command line and runs a benchmark. `call`: as it is started, up to its arguments. `takes`: names of its arguments,
 * [optional] ones last, "..." for more of the same. Help is the comment that the benchmark's file begins with.
 */
export async function bench<F extends Flags>(
  call: string,
  takes: string,
  flags: F,
  main: (values: Values<F>, args: readonly string[]) => Promise<unknown>,
  argv: readonly string[] = process.argv.slice(2),
): Promise<void> {
  const usage = usageOf(call, takes, flags);
  try {
    const { values, args, isHelp } = parsed(takes, flags, argv);
    if (isHelp) console.log(`${usage}\n\n${headOf(process.argv[1]!)}`);
    else await main(values, args);
  } catch (error) {
    if (!(error instanceof LanternError)) throw error;
    console.error(error instanceof UsageError ? `${error.message}\n${usage}` : error.message);
    process.exitCode ??= error instanceof UsageError ? 2 : 1;
  }
}

function parsed<F extends Flags>(takes: string, flags: F, argv: readonly string[]) {
  const names = new Map(Object.keys(flags).map((key) => [flagName(key), key]));
  const options = Object.fromEntries(
    [...names].map(([name, key]) => {
      const { shown, short } = flags[key]!;
      const type = shown === undefined ? ("boolean" as const) : ("string" as const);
      return [name, { type, multiple: true, ...(short !== undefined && { short }) }];
    }),
  );
  const { values: given, positionals: args } = parseOrSay(argv, options);
  const values = Object.fromEntries(Object.entries(flags).map(([key, { usual }]) => [key, usual]));
  for (const [name, key] of names) {
    const texts = given[name];
    if (texts !== undefined) values[key] = parseValue(name, flags[key]!, texts);
  }
  const isHelp = given.help !== undefined;
  const parts = takes.split(" ").filter((part) => part !== "");
  const least = parts.filter((part) => !part.startsWith("[") && part !== "...").length;
  const most = parts.includes("...") ? Number.POSITIVE_INFINITY : parts.length;
  if (!isHelp && (args.length < least || args.length > most)) {
    throw new UsageError(`got ${args.length} arguments, expected ${takes || "none"}`);
  }
  return { values: values as Values<F>, args, isHelp };
}

function parseOrSay(
  argv: readonly string[],
  options: Readonly<Record<string, { type: "string" | "boolean"; multiple: boolean }>>,
) {
  try {
    const all = { help: { type: "boolean" as const, multiple: true }, ...options };
    const { values, positionals } = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: all,
    });
    return { values: values as Readonly<Record<string, string[] | undefined>>, positionals };
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function parseValue(name: string, flag: Flag<unknown>, values: readonly string[]): unknown {
  try {
    return flag.parse(values.at(-1)!);
  } catch (error) {
    throw new UsageError(`--${name}: ${(error as Error).message}`);
  }
}

function flagName(key: string): string {
  return key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function usageOf(call: string, takes: string, flags: Flags): string {
  const shown = Object.entries(flags).map(([key, flag]) => {
    const names = `${flag.short === undefined ? "" : `-${flag.short}, `}--${flagName(key)}`;
    const usual = flag.usual === undefined || flag.usual === false ? "" : ` = ${flag.usual}`;
    return flag.shown === undefined ? `[${names}]` : `[${names} ${flag.shown}${usual}]`;
  });
  return ["usage:", call, takes, ...shown].filter((part) => part !== "").join(" ");
}

/** The comment that a file begins with. */
function headOf(path: string): string {
  const lines = readFileSync(path, "utf8").split("\n");
  const end = lines.findIndex((line) => !line.startsWith("//"));
  return lines
    .slice(0, end)
    .map((line) => line.replace(/^\/\/ ?/, ""))
    .join("\n");
}

/** The load average of the last minute. */
export function load(): number {
  return loadavg()[0]!;
}

/** CPU time of all threads of this process, in ms. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

export interface Timed<T> {
  readonly result: T;
  readonly ms: number;
  /** Of all threads of this process. */
  readonly cpuMs: number;
}

export async function timed<T>(work: () => Promise<T> | T): Promise<Timed<T>> {
  const [started, before] = [performance.now(), cpuMs()];
  const result = await work();
  return { result, ms: performance.now() - started, cpuMs: cpuMs() - before };
}

/** Greedy text to the last token that was asked for, without drafts: speeds say nothing of the text. */
const plain = { temperature: 0, ignoreEos: true, speculate: false } as const;

/** Speeds in tokens per second. */
export interface Answer extends GenerationResult, Pick<Timed<unknown>, "ms" | "cpuMs"> {
  /** Of each token and of those listed beside it, where that was asked for. */
  readonly logprobs: readonly number[];
  readonly promptPerSecond: number;
  readonly generatedPerSecond: number;
}

export async function answer(
  model: Model,
  prompt: string | readonly number[],
  options: GenerateOptions,
): Promise<Answer> {
  const logprobs: number[] = [];
  const { result, ms, cpuMs } = await timed(async () => {
    const generation = model.generate(prompt, { ...plain, ...options });
    if (options.logprobs !== undefined) {
      for await (const { logprob = 0, top = [] } of generation.tokens()) {
        logprobs.push(logprob, ...top.map((other) => other.logprob));
      }
    }
    return await generation.result;
  });
  const { promptTokens, promptMs, generatedTokens, generatedMs } = result.timings;
  return {
    ...{ ...result, logprobs, ms, cpuMs },
    promptPerSecond: (1000 * promptTokens) / promptMs,
    // The first token comes from the prompt's logits.
    generatedPerSecond: (1000 * (generatedTokens - 1)) / generatedMs,
  };
}

/** Token ids that repeat themselves from run to run; other seeds begin in another way. */
export function tokensOf(vocabSize: number, count: number, seed: number): number[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => 3 + random.below(vocabSize - 3));
}

export async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "lantern-bench-"));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A file of a made-up model (scripts/make-model.ts), which is removed afterwards. */
export async function withMadeModel<T>(
  shape: string,
  type: string,
  work: (path: string) => Promise<T>,
): Promise<T> {
  return await withFolder(async (folder) => {
    const path = join(folder, `${shape}.gguf`);
    await writeModel(syntheticModel(shape, type), path);
    return await work(path);
  });
}

/** The first token that is another one; -1: all are the same. */
export function firstDifference(ids: readonly number[], others: readonly number[]): number {
  return ids.findIndex((id, at) => id !== others[at]);
}

export function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** A table in Markdown; columns after the first ones are numbers. */
export function printTable(
  header: readonly string[],
  rows: readonly (readonly (string | number)[])[],
  texts = 1,
): void {
  const right = header.map((_, column) => column).slice(texts);
  const cells = rows.map((row) => row.map(String));
  process.stdout.write(renderTable({ header, rows: cells, right }, true));
}

/**
 * The path of a module of another engine's package, beside the project or in the folder that LANTERN_PEERS names; a SourceError that says
 * how to install it where it is in neither. They are no dependencies of the project: their binaries weigh hundreds of megabytes.
 */
export function locatePeer(module: string, installed: string): string {
  for (const folder of [fileURLToPath(new URL("..", import.meta.url)), process.env.LANTERN_PEERS]) {
    if (!folder) continue;
    try {
      return createRequire(join(resolve(folder), "package.json")).resolve(module);
    } catch {
      // Not in this one.
    }
  }
  throw new SourceError(
    `bench: ${installed} is neither installed in the project nor in the folder of LANTERN_PEERS. Install it anywhere: npm i --prefix DIR ${installed}, then start this again with LANTERN_PEERS=DIR`,
  );
}
