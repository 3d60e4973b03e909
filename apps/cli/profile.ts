// Profiles on the command line: the flag --profile, the tables of a report, and the trace file. Definitions:
// docs/use/profile.md.

import { Option } from "commander";
import type { Model, PhaseProfile, ProfileReport, ProfileRow } from "../../src/index.ts";
import { renderTable } from "./bench/render.ts";
import type { CliContext } from "./command.ts";
import { percentText } from "./machine-limits.ts";
import { bytesText, plural } from "./text.ts";

export interface ProfileFlags {
  /** true: only print it; a path: also write the trace there. */
  profile?: true | string;
}

export function profileOption(): Option {
  return new Option(
    "--profile [file]",
    "show where the time went; with a file, also write a trace for ui.perfetto.dev or chrome://tracing",
  );
}

/** The report of all runs of this model; undefined if it was not requested. Writes the trace, if requested. */
export async function takeProfile(
  model: Model,
  { profile: asked }: ProfileFlags,
  { terminal }: CliContext,
): Promise<ProfileReport | undefined> {
  if (!asked) return undefined;
  const { trace, ...report } = await model.profile({ trace: typeof asked === "string" });
  if (typeof asked === "string") {
    await terminal.writeText(asked, JSON.stringify(trace));
    terminal.err(`The trace is in ${asked}: open it in ui.perfetto.dev or chrome://tracing.\n`);
  }
  return report;
}

/** The report in JSON form: other names, the same numbers. */
export function profileJson(report: ProfileReport): unknown {
  return snakeCase(report);
}

function snakeCase(value: unknown): unknown {
  if (value === undefined) return null;
  if (Array.isArray(value)) return value.map(snakeCase);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [
    key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    snakeCase(inner),
  ]);
  return Object.fromEntries(entries) as unknown;
}

export function profileText(report: ProfileReport, markdown = false): string {
  const { load, phases, device } = report;
  const parts = [
    ["starting threads", load.startMs],
    ["opening the file", load.openMs],
    ["preparing kernels and memory", load.prepareMs],
    ["reading weights", load.readMs],
    ["packing them", load.packMs],
  ] as const;
  const loadText = parts.map(([name, ms]) => `${name} ${msText(ms)}`).join(", ");
  const whose = phases.some(({ worker }) => worker !== undefined) ? "the GPU" : "this machine";
  const against = device ? `\nLimits: ${whose}, ${device}.` : "";
  const sections = [
    ...phases.map((phase) => phaseText(phase, markdown)),
    callsText(report, markdown),
    copiesText(report, markdown),
  ].filter((section) => section !== "");
  const notes = (report.notes ?? []).map((note) => `\nNote: ${note}.`).join("");
  return `${sections.join("\n")}${sidesText(report)}\nload, ${msText(load.ms)}: ${loadText}.${against}${notes}\n`;
}

/** Each of two backends against its own limit. */
function sidesText({ sides = [] }: ProfileReport): string {
  const lines = sides.map(({ name, device, phases }) => {
    const each = phases.map(({ phase, computeMs, limit }) => {
      const part = limit
        ? `${percentText(limit.fraction)} of its ${limit.resource} limit`
        : "its limit is not known";
      return `${phase} ${msText(computeMs)}, ${part}`;
    });
    const against = device ? ` (${device})` : "";
    return `${name} computed: ${each.join("; ")}${against}\n`;
  });
  return lines.length > 0 ? `\n${lines.join("")}` : "";
}

/** The table of device profilers: times of single calls in microseconds. */
function callsText({ calls }: ProfileReport, markdown: boolean): string {
  if (calls.length === 0) return "";
  const header = ["calls", "", "", "count", "ms", "avg us", "min us", "max us", "variance us2"];
  const us = (ms: number): string => (ms * 1e3).toFixed(1);
  const rows = calls.map((call) => [
    call.by,
    call.name,
    call.when,
    String(call.count),
    msNumber(call.ms),
    ...[call.averageMs, call.minMs, call.maxMs].map(us),
    (call.varianceMs2 * 1e6).toFixed(1),
    call.bytes === undefined ? "" : bytesText(call.bytes),
    giga(call.bytesPerSecond ?? 0),
  ]);
  const right = [3, 4, 5, 6, 7, 8, 9, 10];
  return renderTable({ header: [...header, "bytes", "GB/s"], rows, right }, markdown);
}

function copiesText({ copies }: ProfileReport, markdown: boolean): string {
  if (copies.length === 0) return "";
  const header = ["copies", "", "count", "bytes", "ms", "GB/s"];
  const rows = copies.map(({ direction, when, count, bytes, ms, bytesPerSecond }) => [
    direction,
    when,
    String(count),
    bytesText(bytes),
    ms === undefined ? "" : msNumber(ms),
    giga(bytesPerSecond ?? 0),
  ]);
  return renderTable({ header, rows, right: [2, 3, 4, 5] }, markdown);
}

const betweenRows: readonly (readonly [keyof PhaseProfile["between"], string])[] = [
  ["samplingMs", "sampling"],
  ["requestMs", "the request"],
  ["textMs", "detokenizing"],
  ["messagesMs", "messages"],
  ["logitsMs", "reading logits"],
  ["bookkeepingMs", "bookkeeping"],
];

function phaseText(phase: PhaseProfile, markdown: boolean): string {
  const { ms, tokens, batches, ops, layers, summary, batchMs } = phase;
  const right = [1, 2, 3, 4, 5];
  const header = ["", "calls", "ms", "share", "GB/s", "GOPS", "of its limit"];
  const plain = (name: string, value: number): string[] => [
    name,
    "",
    msNumber(value),
    percentText(value / ms),
  ];
  const unrecorded = ops.length === 0 ? [plain("computing", batchMs)] : [];
  const rows = [
    ...ops.map(rowCells),
    ...unrecorded,
    ...(ops.length > 0 ? [plain("waiting", phase.waitingMs)] : []),
    ...betweenRows
      .filter(([key]) => phase.between[key] > 0)
      .map(([key, name]) => plain(`between batches: ${name}`, phase.between[key])),
    plain("all", ms),
  ].map((row) => [...row, "", "", ""].slice(0, header.length));
  const counts = `${plural(tokens, "token")} in ${plural(batches, "batch", "batches")}, ${msNumber(ms)} ms`;
  const blocks = [
    `${phase.phase}, ${counts}: ${summary}.\n`,
    renderTable({ header, rows, right }, markdown),
    threadsText(phase),
    allocationText(phase),
    layers.length > 1 ? renderTable({ header, rows: layers.map(rowCells), right }, markdown) : "",
  ];
  return blocks.filter((block) => block !== "").join("\n");
}

function threadsText({ threads, aloneMs, worker }: PhaseProfile): string {
  const [only] = threads;
  if (!only) return "";
  if (worker !== undefined) {
    return `${worker}: ${msText(only.busyMs)} busy, ${msText(only.waitingMs)} waiting\n`;
  }
  const each = threads.map(
    ({ busyMs, waitingMs }, i) =>
      `thread ${i}: ${msText(busyMs)} busy, ${msText(waitingMs)} waiting\n`,
  );
  return `${each.join("")}one thread working while the others wait: ${msText(aloneMs)}\n`;
}

function allocationText({ heapBytesPerBatch }: PhaseProfile): string {
  const heap =
    heapBytesPerBatch === undefined
      ? "the JavaScript heap is not known (a single batch, or a browser)"
      : `${(heapBytesPerBatch / 1000).toFixed(1)} kB of the JavaScript heap per batch`;
  return `allocation: ${heap}; no tensor memory, which is allocated at load\n`;
}

function rowCells({ name, calls, ms, share, bytesPerSecond, opsPerSecond, limit }: ProfileRow) {
  return [
    name,
    String(calls),
    msNumber(ms),
    percentText(share),
    giga(bytesPerSecond),
    giga(opsPerSecond),
    limit ? `${percentText(limit.fraction)} ${limit.resource}` : "",
  ];
}

/** Empty if there is no rate; small numbers would only distract. */
function giga(perSecond: number): string {
  const value = perSecond / 1e9;
  return value < 0.05 ? "" : value.toFixed(value >= 100 ? 0 : 1);
}

function msNumber(ms: number): string {
  return ms.toFixed(1);
}

function msText(ms: number): string {
  return `${msNumber(ms)} ms`;
}
