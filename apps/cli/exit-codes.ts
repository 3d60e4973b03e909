// The exit codes: one number for each kind of error, so that a script can tell them apart. `lantern --help` and
// docs/use/exit-codes.md list them.

import { type ErrorCode, LanternError } from "../../src/base/errors.ts";
import { interruptExitCode } from "./interrupt.ts";

const failureExitCode = 1;
export const usageExitCode = 2;
const fileExitCode = 3;
const modelExitCode = 4;
const sizeExitCode = 5;

const byKind: Readonly<Record<ErrorCode, number>> = {
  usage: usageExitCode,
  source: fileExitCode,
  format: modelExitCode,
  model: modelExitCode,
  context: sizeExitCode,
  memory: sizeExitCode,
  aborted: interruptExitCode,
  disposed: failureExitCode,
  worker: failureExitCode,
};

export function exitCodeOf(error: unknown): number {
  return error instanceof LanternError ? byKind[error.code] : failureExitCode;
}

const meanings: readonly (readonly [code: number, meaning: string])[] = [
  [0, "done"],
  [failureExitCode, "the command failed, or a check found a difference"],
  [usageExitCode, "a flag or an argument is wrong"],
  [fileExitCode, "a file, an address or a download could not be read or written"],
  [modelExitCode, "the model file is damaged or not supported"],
  [sizeExitCode, "the model does not fit in memory, or the prompt in the context"],
  [interruptExitCode, "stopped with Ctrl-C"],
];

/** For the end of the help. */
export const exitCodesText: string = `\nExit codes:\n${meanings
  .map(([code, meaning]) => `  ${String(code).padEnd(5)}${meaning}\n`)
  .join("")}`;
