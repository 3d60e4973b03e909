// The parts that all benchmarks share on the command line: flags, a status line, and the description of the machine.

import { Option } from "commander";
import { quietCores } from "../../../src/base/machine-load.ts";
import { machineCodeInfo, type OptLevel } from "../../../src/index.ts";
import type { MachineFacts, MachineLoad, Terminal } from "../../../src/platform/node-cli.ts";
import { jsonHelp, levelHelp, threadsHelp } from "../flag-help.ts";
import { numberListFlag } from "../flag-values.ts";

export interface BenchOutputFlags {
  json?: boolean;
  markdown?: boolean;
}

export function threadsOption(help: string = threadsHelp): Option {
  const flag = numberListFlag({ integer: true, min: 1, max: 256 });
  return new Option("-t, --threads <n,...>", help).argParser(flag);
}

export function levelsOption(usual: string): Option {
  const flag = numberListFlag({ integer: true, min: 1, max: 4 });
  return new Option("--level <n,...>", levelHelp(usual)).argParser(flag);
}

/** 4 if this machine can run machine code, otherwise 3. */
export async function bestOptLevel(): Promise<OptLevel> {
  return "target" in (await machineCodeInfo()) ? 4 : 3;
}

export function jsonOption(): Option {
  return new Option("--json", jsonHelp).conflicts("markdown");
}

export function markdownOption(): Option {
  return new Option("--markdown", "print a Markdown table");
}

/** A status line on stderr that overwrites itself, if stderr is a terminal; "" removes it. */
export function statusLine(terminal: Terminal): (text: string) => void {
  return (text) => {
    if (terminal.errIsTerminal) terminal.err(`\r${text.slice(0, terminal.columns - 1)}\x1b[K`);
  };
}

export function machineText(
  machine: MachineFacts,
  before: MachineLoad,
  after: MachineLoad,
): string {
  const facts = `${machine.cpu}, ${machine.cores} cores, ${machine.system}`;
  if (before.loadAverage === undefined || after.loadAverage === undefined) return facts;
  return `${facts}; load ${before.loadAverage.toFixed(2)} before, ${after.loadAverage.toFixed(2)} after`;
}

export function disturbedNote(results: readonly { othersCores: number }[]): string | undefined {
  const worst = Math.max(...results.map(({ othersCores }) => othersCores));
  if (worst <= quietCores) return undefined;
  return `Other programs used up to ${worst.toFixed(1)} cores during the measurement: this machine can be faster.`;
}

/** The JSON that all benchmarks print with --json. */
export function machineJson({ cpu, cores, memoryBytes, system }: MachineFacts): object {
  return { cpu, cores, memory_bytes: memoryBytes, system };
}
