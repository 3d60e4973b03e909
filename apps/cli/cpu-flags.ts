// The flags that bind compute threads to CPUs, under llama.cpp's names. docs/use/machine.md explains them and their platforms.

import { type Command, InvalidArgumentError, Option } from "commander";
import type { CpuBinding } from "../../src/index.ts";

export interface CpuFlags {
  cpuMask?: string;
  cpuRange?: string;
  cpuStrict?: boolean;
  numa?: NonNullable<CpuBinding["numa"]>;
}

/** -C, -Cr, --cpu-strict, --numa */
export function addCpuFlags(command: Command): Command {
  return command
    .option("-C, --cpu-mask <mask>", "bind threads to these CPUs: hexadecimal, a bit for each")
    .option(
      "--cpu-range <lo-hi>",
      "bind threads to these CPUs, from the first to the last (also: -Cr)",
    )
    .option(
      "--cpu-strict <0|1>",
      "whether each thread is bound to one CPU of its own (default: 0)",
      zeroOrOne,
    )
    .addOption(
      new Option(
        "--numa <type>",
        "bind threads by NUMA node; distribute: to all nodes in turn, isolate: to the one that loads the model, numactl: to the CPUs that numactl gave",
      ).choices(["distribute", "isolate", "numactl"]),
    );
}

function zeroOrOne(text: string): boolean {
  if (text === "0" || text === "1") return text === "1";
  throw new InvalidArgumentError("Expected 0 or 1.");
}

/** These flags alone, for a command whose other flags are not those of a model. */
export function cpuFlags({ cpuMask, cpuRange, cpuStrict, numa }: CpuFlags): CpuFlags {
  return {
    ...(cpuMask !== undefined && { cpuMask }),
    ...(cpuRange !== undefined && { cpuRange }),
    ...(cpuStrict !== undefined && { cpuStrict }),
    ...(numa !== undefined && { numa }),
  };
}

/** undefined: no flag was given. */
export function cpuBinding(flags: CpuFlags): CpuBinding | undefined {
  const { cpuMask: mask, cpuRange: range, cpuStrict: strict, numa } = flags;
  const isGiven = [mask, range, strict, numa].some((value) => value !== undefined);
  return isGiven ? { mask, range, strict, numa } : undefined;
}
