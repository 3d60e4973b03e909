// lantern verify: compares backends with the reference, op by op on a real model. A table for each on stdout, progress
// on stderr; the exit code is 1 if one of its three verdicts is FAILED.

import { InvalidArgumentError } from "commander";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import {
  type BackendVerification,
  type ChainedVerdict,
  type Difference,
  type HeldType,
  type KvType,
  type LogitsDifference,
  UsageError,
  type Verification,
  type VerifyOptions,
  verify,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { modelHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import {
  addCacheTypeFlags,
  kvTypeOf,
  modelOf,
  modelOption,
  openFlag,
  weightsOption,
} from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel, sayWarnings } from "../load-model.ts";
import { tableText } from "../text.ts";

interface VerifyFlags {
  model?: string;
  backends?: string[];
  layers?: number[];
  gpuLayers?: number | "all" | "auto";
  prompt?: string;
  tokens: number;
  cacheType?: KvType;
  cacheTypeK?: KvType;
  cacheTypeV?: KvType;
  weights?: HeldType;
  tolerance: number;
  threads?: number;
  json?: boolean;
}

const differentExitCode = 1;

export const verifyCommand: CommandBody = {
  examples: [
    "lantern verify -m model.gguf",
    "lantern verify -m model.gguf --backends cpu,webgpu --layers 0-3 --json",
  ],
  define(command, context) {
    addCacheTypeFlags(command)
      .addOption(modelOption(modelHelp(defaultModel)))
      .option(
        "--backends <names>",
        "backends to check, separated by commas (default: cpu, and webgpu if there is a GPU)",
        (text: string) => text.split(","),
      )
      .option(
        "--layers <list>",
        "compare only these layers, as in 0,4-7 (default: all)",
        layersFlag,
      )
      .addOption(openFlag("gpuLayers"))
      .option("-p, --prompt <text>", "the prompt (default: the beginning of a story)")
      .option(
        "--tokens <n>",
        "length of the prompt, in tokens; the last two are computed one by one",
        numberFlag({ integer: true, min: 1, max: 256 }),
        12,
      )
      .addOption(weightsOption())
      .option(
        "--tolerance <x>",
        "largest allowed difference of an op, relative to the largest value of its row",
        numberFlag({ min: 0 }),
        1e-4,
      )
      .addOption(openFlag("threads"))
      .option("--json", "print one JSON object, with every value")
      .action((flags: VerifyFlags) => run(flags, context));
  },
};

/** "0,4-7": whole numbers and ranges. */
function layersFlag(text: string): number[] {
  return text.split(",").flatMap((part) => {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part.trim());
    const [first, last] = match ? [Number(match[1]), Number(match[2] ?? match[1])] : [1, 0];
    if (first > last || last - first > 10_000) {
      throw new InvalidArgumentError("Expected layers separated by commas, as in 0,4-7.");
    }
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

async function run(flags: VerifyFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const path = await locateModel(modelOf(flags), context, signal);
  const { backends, layers, prompt, tokens, tolerance, threads, gpuLayers } = flags;
  if (gpuLayers === "auto") {
    throw new UsageError(
      "--gpu-layers: got auto, which can mean no layer at all, expected a number or all",
    );
  }
  const kvType = kvTypeOf(flags);
  const options: VerifyOptions = {
    tokens,
    tolerance,
    ...(kvType !== undefined && { kvType }),
    ...(flags.weights && { weights: flags.weights }),
    ...(backends && { backends }),
    ...(layers && { layers }),
    ...(prompt !== undefined && { prompt }),
    ...(threads !== undefined && { threads }),
    ...(gpuLayers !== undefined && { gpuLayers }),
    signal,
    onProgress: (now, done, total) => {
      if (!terminal.errIsTerminal) return;
      terminal.err(`\r${now}: ${Math.floor((100 * done) / total)}%\x1b[K`);
    },
  };
  const result = await verify(path, options).finally(() => {
    if (terminal.errIsTerminal) terminal.err("\r\x1b[K");
  });
  sayWarnings(result, context);
  terminal.out(flags.json ? `${JSON.stringify(resultJson(result))}\n` : resultText(result));
  if (!result.passed) context.exitCode = differentExitCode;
}

function resultText(result: Verification): string {
  const { tokens, batches, tolerance, rounding } = result;
  const head = `${tokens.length} tokens in batches of ${batches.join(", ")}; tolerance ${errorText(tolerance)} of the largest value of a row`;
  const noise = `Rounding alone (the reference with the last bits of every value changed) changes the logits by ${errorText(rounding.relative)}.`;
  return [head, noise, ...result.backends.map((backend) => backendText(backend, result))]
    .join("\n\n")
    .concat("\n");
}

function backendText(backend: BackendVerification, { tolerance }: Verification): string {
  const rows = backend.ops.map((op) => [
    op.op,
    String(op.values),
    errorText(op.absolute),
    errorText(op.relative),
    errorText(op.chainedRelative),
    op.worst,
  ]);
  const titles = ["op", "values", "absolute", "relative", "chained", "worst"];
  const verdicts = [
    `op by op: ${aloneText(backend, tolerance)}`,
    `chained: ${chainedText(backend.chained)}`,
    `as in use: ${logitsText(backend.logits)}`,
  ];
  return `${backend.name}: ${backend.passed ? "passed" : "FAILED"}\n${tableText([titles, ...rows], [1, 2, 3, 4])}${verdicts.join("\n")}`;
}

function aloneText({ firstBeyond, halves }: BackendVerification, tolerance: number): string {
  if (firstBeyond) {
    const { name, op, alone } = firstBeyond;
    return `FAILED, the first op outside ${errorText(tolerance)} is ${name} (${op}), ${placeText(alone)}`;
  }
  const inHalves =
    halves.values > 0
      ? ` (${halves.values} values on matrix units within ${errorText(halves.tolerance)})`
      : "";
  return `every op is within ${errorText(tolerance)} of the reference${inHalves}`;
}

function chainedText({
  tolerance,
  largest,
  allowed,
  roundings,
  firstBeyond,
}: ChainedVerdict): string {
  if (!largest) return "nothing was compared";
  const most = `${errorText(largest.chained.relative)} at ${largest.name}`;
  if (firstBeyond) {
    const { name, op, chained } = firstBeyond;
    return `FAILED, the first value outside ${errorText(tolerance)} is ${name} (${op}), ${placeText(chained)}; the largest difference is ${most}`;
  }
  if (allowed === 0)
    return `every value is within ${errorText(tolerance)}; the largest difference is ${most}`;
  const values = allowed === 1 ? "1 value is" : `${allowed} values are`;
  return `${values} outside ${errorText(tolerance)}, the largest difference ${most}, but no further than ${roundings} times what rounding alone moves them`;
}

function placeText({ batch, row, column, got, expected, relative }: Difference): string {
  return `batch ${batch}, row ${row}, column ${column}: got ${got}, expected ${expected} (${errorText(relative)})`;
}

function logitsText({
  relative,
  tolerance,
  positions,
  sameTop,
  largestLostLead,
}: BackendVerification["logits"]): string {
  const judged =
    relative <= tolerance
      ? `logits within ${errorText(relative)} (at most ${errorText(tolerance)})`
      : `FAILED, logits are off by ${errorText(relative)}, expected at most ${errorText(tolerance)}`;
  const lost =
    sameTop === positions ? "" : ` (elsewhere its lead was at most ${errorText(largestLostLead)})`;
  return `${judged}, the same most likely token at ${sameTop} of ${positions} positions${lost}`;
}

function errorText(error: number): string {
  return error === 0 ? "0" : error.toExponential(1);
}

function resultJson(result: Verification): object {
  const logits = (found: LogitsDifference) => ({
    relative: found.relative,
    positions: found.positions,
    same_top: found.sameTop,
    largest_lost_lead: found.largestLostLead,
  });
  return {
    passed: result.passed,
    tokens: result.tokens,
    batches: result.batches,
    tolerance: result.tolerance,
    rounding: logits(result.rounding),
    backends: result.backends.map(({ name, passed, ops, values, ...found }) => ({
      name,
      passed,
      first_beyond: found.firstBeyond ?? null,
      halves: found.halves,
      chained: {
        tolerance: found.chained.tolerance,
        largest: found.chained.largest ?? null,
        allowed: found.chained.allowed,
        first_beyond: found.chained.firstBeyond ?? null,
      },
      logits: { ...logits(found.logits), tolerance: found.logits.tolerance },
      ops: ops.map(({ chainedRelative, ...op }) => ({ ...op, chained_relative: chainedRelative })),
      values,
    })),
  };
}
