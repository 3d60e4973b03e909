// lantern inspect: the contents of a model file, without loading it.

import { inspect, type ModelInspection } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { locateModel } from "../load-model.ts";
import { bytesText, countText, type Palette, tableText } from "../text.ts";

interface InspectFlags {
  json?: boolean;
}

const longestValue = 72;

export const inspectCommand: CommandBody = {
  examples: ["lantern inspect model.gguf", "lantern inspect stories15m --json"],
  define(command, context) {
    command
      .argument("<model>", 'a file, a folder, a URL, or a name from "lantern models"')
      .option("--json", jsonHelp)
      .action((name: string, flags: InspectFlags) => inspectModel(name, flags, context));
  },
};

async function inspectModel(name: string, flags: InspectFlags, context: CliContext): Promise<void> {
  const facts = await inspect(await locateModel(name, context));
  const text = flags.json
    ? `${JSON.stringify(facts, bigintsAsNumbers)}\n`
    : inspectionText(facts, context.color().out);
  context.terminal.out(text);
}

/** JSON has no bigint; a bigint that no double can represent stays exact as a string. */
function bigintsAsNumbers(_key: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

function inspectionText(facts: ModelInspection, color: Palette): string {
  const title = (text: string): string => `\n${color.bold(text)}\n`;
  const summary = tableText([
    ["name", facts.name],
    ["format", facts.format],
    ["architecture", facts.architecture ?? "unknown"],
    ["parameters", countOf(facts.parameters)],
    ...(facts.activeParameters === undefined
      ? []
      : [["  active", `${countOf(facts.activeParameters)}: those that a token uses`]]),
    ...(facts.adapter === undefined ? [] : adapterRows(facts.adapter)),
    ...(facts.pooling === undefined ? [] : [["pooling", facts.pooling]]),
    ["file size", `${bytesText(facts.totalBytes)} (${facts.totalBytes} bytes)`],
  ]);
  const metadata = facts.metadata.map(({ key, preview }) => [
    key,
    preview.type,
    previewText(preview),
  ]);
  const tensors = facts.tensors.map(({ name, dtype, shape, bytes }) => [
    name,
    dtype,
    `[${shape.join(", ")}]`,
    bytesText(bytes),
  ]);
  const types = facts.types.map(({ dtype, tensors: count, bytes }) => [
    dtype,
    String(count),
    bytesText(bytes),
  ]);
  return [
    summary,
    title(`metadata (${metadata.length})`),
    tableText(metadata),
    title(`tensors (${tensors.length})`),
    tableText([["name", "type", "shape", "size"], ...tensors], [3]),
    title("types"),
    tableText([["type", "tensors", "size"], ...types], [1, 2]),
    ...(facts.adapter ? [] : [title("memory needed"), memoryText(facts)]),
  ].join("");
}

function countOf(count: number): string {
  return `${countText(count)} (${count})`;
}

type Adapter = NonNullable<ModelInspection["adapter"]>;

function adapterRows({ kind, matrices, rank, alpha, invocationTokens }: Adapter): string[][] {
  return [
    ["adapter", `${kind}, ${matrices} matrices, rank ${rank}, alpha ${alpha}`],
    ...(invocationTokens ? [["  activated by", cut(invocationTokens.join(", "))]] : []),
  ];
}

function memoryText({ memory, architecture }: ModelInspection): string {
  if (!memory)
    return `unknown: Lantern does not support the architecture ${architecture ?? "(none)"}\n`;
  const context = `for a context of ${memory.contextSize} tokens`;
  const rows = [
    ["weights", bytesText(memory.weightBytes), ""],
    [
      "KV cache",
      bytesText(memory.kvBytes),
      `${context}, ${bytesText(memory.kvBytesPerToken)} per token`,
    ],
    ["activations", bytesText(memory.activationBytes), ""],
    ["together", bytesText(memory.totalBytes), ""],
  ];
  return tableText(rows, [1]);
}

type Preview = ModelInspection["metadata"][number]["preview"];

function previewText({ type, value, length }: Preview): string {
  if (Array.isArray(value)) {
    const shown = value.map((item) =>
      typeof item === "string" ? JSON.stringify(item) : String(item),
    );
    const more = (length ?? value.length) > value.length ? ", ..." : "";
    return `${length ?? value.length}: ${cut(`[${shown.join(", ")}${more}]`)}`;
  }
  // 0.00001 as a float32 is 0.000009999999747378752, which is not the number that was written into the file.
  if (type === "f32") return String(Number(Number(value).toPrecision(7)));
  return cut(typeof value === "string" ? JSON.stringify(value) : String(value));
}

function cut(text: string): string {
  return text.length > longestValue ? `${text.slice(0, longestValue - 3)}...` : text;
}
