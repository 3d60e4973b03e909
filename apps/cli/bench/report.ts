// The output of `lantern bench`: the speed of every test beside its limit, memory as computed and as held, and the times of
// all runs; for people and as JSON.

import { summarize } from "../../../src/base/measure.ts";
import type { MemoryHeld } from "../../../src/index.ts";
import type { MachineFacts, MachineLoad } from "../../../src/platform/node-cli.ts";
import { percentText } from "../machine-limits.ts";
import { profileJson, profileText } from "../profile.ts";
import { bytesText, countText } from "../text.ts";
import { rateText } from "./measure.ts";
import { type BenchOutputFlags, machineJson, machineText } from "./options.ts";
import { renderTable } from "./render.ts";
import { type BenchOutcome, type BenchPlan, type BenchResult, testName } from "./rounds.ts";

/** The memory of a model as `lantern limits` computes it. */
export interface ComputedMemory extends MemoryHeld {
  contextSize: number;
}

export interface BenchReport extends BenchOutcome {
  machine: MachineFacts;
  plan: BenchPlan;
  computed: ComputedMemory;
  before: MachineLoad;
  after: MachineLoad;
}

export function reportJson(bench: BenchReport): object {
  const { info, machine, plan, results, profiles, uses, computed, before, after } = bench;
  return {
    model: {
      name: info.name,
      architecture: info.architecture,
      parameters: info.parameters,
      type: info.weightType,
      bytes: info.weightBytes,
      kv_type: info.kvType,
    },
    machine: machineJson(machine),
    load: { before: before.loadAverage ?? null, after: after.loadAverage ?? null },
    repetitions: plan.repetitions,
    warmup: plan.warmup,
    results: results.map((result) => ({
      level: result.level,
      threads: result.threads,
      test: testName(result),
      depth: result.depth,
      tokens_per_second: summarize(result.samples),
      samples: result.samples,
      ...(plan.speculates && {
        draft_n: result.drafts?.drafted ?? 0,
        draft_n_accepted: result.drafts?.accepted ?? 0,
      }),
      others_cores: result.othersCores,
      limit: limitJson(result),
    })),
    memory: {
      context: computed.contextSize,
      computed: heldJson(computed),
      held: uses.map(({ level, threads, held }) => ({ level, threads, ...heldJson(held) })),
      resident_bytes: bench.residentBytes ?? null,
    },
    times: uses.map(({ level, threads, times }) => ({
      level,
      threads,
      load_ms: times.loadMs,
      sample_ms: times.sampleMs,
      prompt_ms: times.promptMs,
      predicted_ms: times.generatedMs,
      total_ms: times.totalMs,
    })),
    ...(profiles.length > 0 && {
      profiles: profiles.map(({ level, threads, report }) => ({
        level,
        threads,
        profile: profileJson(report),
      })),
    }),
  };
}

function heldJson({ weightBytes, kvBytes, workBytes }: MemoryHeld): object {
  return { weight_bytes: weightBytes, kv_bytes: kvBytes, scratch_bytes: workBytes };
}

/** The median compared with the limit of this machine. */
function limitJson({ limit, samples }: BenchResult): object | null {
  if (!limit) return null;
  const { resource, tokensPerSecond } = limit;
  const fraction = summarize(samples).median / tokensPerSecond;
  return { resource, tokens_per_second: tokensPerSecond, fraction };
}

/** "31 of 40": of the drafted tokens of all repetitions. */
function draftsText({ kind, drafts }: BenchResult): string {
  if (kind === "prompt") return "";
  return drafts ? `${drafts.accepted} of ${drafts.drafted}` : "0 of 0";
}

function limitCells({ limit, samples }: BenchResult): string[] {
  if (!limit) return [];
  const { resource, tokensPerSecond } = limit;
  const fraction = summarize(samples).median / tokensPerSecond;
  return [rateText(tokensPerSecond), percentText(fraction), resource];
}

export function reportText(report: BenchReport, { markdown = false }: BenchOutputFlags): string {
  const { info, machine, plan, results, profiles, before, after } = report;
  const rows = results.map((result) => {
    const { median, min, max } = summarize(result.samples);
    return [
      String(result.level),
      String(result.threads),
      testName(result),
      rateText(median),
      rateText(min),
      rateText(max),
      result.othersCores.toFixed(2),
      ...(plan.speculates ? [draftsText(result)] : []),
      ...limitCells(result),
    ];
  });
  const header = ["level", "threads", "test", "tokens/s", "min", "max", "others"];
  if (plan.speculates) header.push("right of drafted");
  if (results.some(({ limit }) => limit)) header.push("limit", "of limit", "limited by");
  const table = renderTable({ header, rows, right: [1, 3, 4, 5, 6, 7, 8, 9] }, markdown);
  const model = `${info.name}: ${info.architecture}, ${countText(info.parameters)} parameters, ${info.weightType}, ${bytesText(info.weightBytes)}, KV cache ${info.kvType}`;
  const where = profiles.map(
    ({ level, threads, report: profile }) =>
      `\nopt level ${level}, ${threads} thread${threads === 1 ? "" : "s"}\n\n${profileText(profile, markdown)}`,
  );
  const more = `\n${memoryText(report, markdown)}\n${timesText(report, markdown)}`;
  return `${model}\n${machineText(machine, before, after)}\n\n${table}${more}${where.join("")}`;
}

/** The memory that `lantern limits` computes beside the memory that each entrant's backend held, and the size of the process. */
function memoryText({ uses, computed, residentBytes }: BenchReport, markdown: boolean): string {
  const cells = ({ weightBytes, kvBytes, workBytes }: MemoryHeld) =>
    [weightBytes, kvBytes, workBytes, weightBytes + kvBytes + workBytes].map(bytesText);
  const rows = [
    ["computed", "", "", ...cells(computed)],
    ...uses.map(({ level, threads, held }) => [
      "held",
      String(level),
      String(threads),
      ...cells(held),
    ]),
  ];
  if (residentBytes !== undefined) {
    rows.push(["process in RAM", "", "", "", "", "", bytesText(residentBytes)]);
  }
  const cache = `KV cache (${computed.contextSize} tokens)`;
  const header = ["memory", "level", "threads", "weights", cache, "scratch", "total"];
  return renderTable({ header, rows, right: [1, 2, 3, 4, 5, 6] }, markdown);
}

/** The times of all measured runs of an entrant. Sampling is part of the generation's time. */
function timesText({ uses }: BenchReport, markdown: boolean): string {
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  const rows = uses.map(({ level, threads, times }) => [
    String(level),
    String(threads),
    ...[times.loadMs, times.sampleMs, times.promptMs, times.generatedMs, times.totalMs].map(ms),
  ]);
  const names = ["load time", "sample time", "prompt time", "generation time", "total time"];
  const header = ["level", "threads", ...names];
  return renderTable({ header, rows, right: [1, 2, 3, 4, 5, 6] }, markdown);
}
