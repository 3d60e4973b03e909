// lantern doctor: one page with the features of this machine, the missing parts, and the commands to type. It measures nothing and
// loads no model; a missing part is a line of it and not an error.

import { messageOf } from "../../../src/base/errors.ts";
import { listModels } from "../../../src/catalog/list.ts";
import {
  gpuInfo,
  machineCodeInfo,
  rememberedMachine,
  rememberedTune,
  UsageError,
} from "../../../src/index.ts";
import type { DownloadPlatform } from "../../../src/platform/download.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { dateText } from "../gpu-text.ts";
import { bytesText, tableText } from "../text.ts";

/** A line of the page, and its value for scripts. */
interface Finding {
  readonly key: string;
  readonly label: string;
  readonly text: string;
  readonly value: unknown;
  /** The missing part, and the command to type. */
  readonly advice?: string | undefined;
}

export const doctorCommand: CommandBody = {
  examples: ["lantern doctor", "lantern doctor --json"],
  define(command, context) {
    command
      .option("--json", jsonHelp)
      .action((flags: { json?: boolean }) => doctor(flags, context));
  },
};

async function doctor({ json }: { json?: boolean }, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  const findings = [
    ...machine(context),
    ...(await processor()),
    await gpu(),
    await measured(),
    await tuned(),
    await folder(downloads),
    await models(downloads),
  ];
  const advice = findings.flatMap((finding) => finding.advice ?? []);
  if (json) {
    const values = Object.fromEntries(findings.map(({ key, value }) => [key, value]));
    terminal.out(`${JSON.stringify({ ...values, advice })}\n`);
    return;
  }
  terminal.out(
    tableText(
      findings.map(({ label, text }) => [label, text]),
      [],
    ),
  );
  const next = advice.length === 0 ? ["nothing is missing"] : advice;
  terminal.out(`\n${next.map((line) => `- ${line}\n`).join("")}`);
}

function machine({ terminal }: CliContext): Finding[] {
  const { system, cpu, cores, memoryBytes, freeBytes } = terminal.machine();
  const memory = `${bytesText(freeBytes)} of ${bytesText(memoryBytes)} free`;
  return [
    { key: "system", label: "system", text: system, value: system },
    {
      key: "processor",
      label: "processor",
      text: `${cpu}, ${cores} core${cores === 1 ? "" : "s"}`,
      value: { name: cpu, cores },
    },
    {
      key: "memory",
      label: "memory",
      text: memory,
      value: { bytes: memoryBytes, free_bytes: freeBytes },
    },
  ];
}

async function processor(): Promise<Finding[]> {
  const code = await machineCodeInfo();
  const { features, isas } = code;
  const target = "target" in code ? code.target : null;
  const refused = "refused" in code ? code.refused : null;
  return [
    {
      key: "features",
      label: "processor features",
      text: features.length > 0 ? features.join(", ") : "not known",
      value: features,
    },
    {
      key: "isas",
      label: "instruction sets",
      text: `${isas.join(", ")} (--isa chooses another than the first)`,
      value: isas,
    },
    {
      key: "machine_code",
      label: "kernels",
      text: target === null ? `WebAssembly: ${refused}` : `machine code for ${target}`,
      value: { target, refused },
      advice:
        target === null
          ? `no machine code, so kernels are WebAssembly: ${refused}. Machine code needs Linux, Node 26 and one of the instruction sets of docs/inside/native.md`
          : undefined,
    },
  ];
}

async function gpu(): Promise<Finding> {
  const found = await gpuInfo();
  if (typeof found === "string") {
    const advice = `no GPU is used: ${found}`;
    return { key: "gpu", label: "GPU", text: `none: ${found}`, value: { refused: found }, advice };
  }
  const { name, isSoftware } = found;
  const text = isSoftware ? `${name}: software, which computes on the processor` : name;
  return { key: "gpu", label: "GPU", text, value: { name, software: isSoftware } };
}

async function measured(): Promise<Finding> {
  const notes: string[] = [];
  const found = await rememberedMachine({ onNote: (note) => notes.push(note) });
  const at = found?.measuredAt ?? null;
  const why = notes.length > 0 ? ` (${notes.join("; ")})` : "";
  return {
    key: "measured_at",
    label: "measured",
    text: at === null ? `not yet${why}` : dateText(at),
    value: at,
    advice:
      at === null
        ? 'speeds have no limit beside them: "lantern machine" measures this machine in 8 seconds'
        : undefined,
  };
}

async function tuned(): Promise<Finding> {
  const advice =
    'kernels are the defaults: "lantern tune -m MODEL" finds the fastest, "lantern serve" does it by itself';
  const none = (text: string): Finding => ({
    ...{ key: "tuned", label: "tuned", text, value: { groups: 0 } },
    advice,
  });
  try {
    const { groups } = await rememberedTune();
    const text = `${groups.length} kinds of matmuls`;
    return { key: "tuned", label: "tuned", text, value: { groups: groups.length } };
  } catch (error) {
    return none(error instanceof UsageError ? "not yet" : `not used: ${messageOf(error)}`);
  }
}

/** Whether models and measurements can be stored. */
async function folder(platform: DownloadPlatform): Promise<Finding> {
  const { cacheFolder } = platform;
  const free = await platform.freeBytes(cacheFolder).catch(() => undefined);
  const problem = await unwritable(platform);
  const room = free === undefined ? "" : `, ${bytesText(free)} free`;
  return {
    key: "cache",
    label: "cache folder",
    text: `${cacheFolder}${room}${problem === undefined ? "" : `: cannot be written: ${problem}`}`,
    value: { path: cacheFolder, free_bytes: free ?? null, writable: problem === undefined },
    advice:
      problem === undefined
        ? undefined
        : `nothing can be downloaded or remembered: ${problem}. Set LANTERN_CACHE to a folder that you may write`,
  };
}

/** Why a file cannot be written into the cache folder; undefined: a test file was written and removed. */
async function unwritable(platform: DownloadPlatform): Promise<string | undefined> {
  const { cacheFolder, processId } = platform;
  const probe = platform.join(cacheFolder, `.doctor-${processId}`);
  try {
    await platform.makeFolder(cacheFolder);
    await platform.writeText(probe, "");
    await platform.remove(probe);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

async function models(platform: DownloadPlatform): Promise<Finding> {
  const found = await listModels(platform);
  const here = found.filter(({ path }) => path !== undefined);
  const bytes = here.reduce((sum, model) => sum + model.bytes, 0);
  return {
    key: "models",
    label: "models",
    text: here.length === 0 ? "none" : `${here.length}, ${bytesText(bytes)}`,
    value: { count: here.length, bytes },
    advice:
      here.length === 0
        ? 'no model is here: "lantern pull stories15m" downloads a small one, "lantern models" lists others'
        : undefined,
  };
}
