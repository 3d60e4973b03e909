// From recorded times to a report. Every ms of a phase is counted once: for an op, as waiting of a thread, or as time
// between batches. The three add up to the phase's time.
//
// Times of ops are averages over the threads: two threads that are busy with an op for 1 ms each make 1 ms of the
// phase. An op's rate and its fraction of the limit count only the time in which it was computed, without waiting.

import type { PhaseProfile, ProfileReport, ProfileRow, SideReport } from "../api/api.ts";
import type { Device, Work } from "../api/rates.ts";
import type {
  BackendProfile,
  BatchPhase,
  PhaseTimes,
  ProfiledPart,
  RecordedBatches,
} from "../backends/backend.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import { nodeCost } from "../graph/cost.ts";
import type { GraphNode } from "../graph/graph.ts";
import { limitOf } from "../limits/roofline.ts";
import { bottleneckOf } from "./bottleneck.ts";
import { callTables } from "./calls.ts";
import type { LapKind, Laps } from "./laps.ts";

export interface ProfileInput {
  readonly threads: number;
  readonly kvType: KvDType;
  readonly laps: Laps;
  /** undefined: the backend records nothing, so a batch is not broken down. */
  readonly recorded: BackendProfile | undefined;
  /** The devices whose limits apply, one for each side; undefined: not known, and no limits are reported. */
  readonly devices: readonly Device[] | undefined;
}

export function profileReport(input: ProfileInput): ProfileReport {
  const { laps, recorded, threads, devices = [] } = input;
  const sides = sideReports(input);
  const totalMs = laps.sectionMs("load");
  const packMs = recorded?.packMs ?? 0;
  const phases = (["prompt", "generation"] as const)
    .filter((phase) => laps.sectionMs(phase) > 0)
    .map((phase) => phaseProfile(phase, input));
  const longest = phases.toSorted((a, b) => b.ms - a.ms)[0];
  return {
    threads,
    load: {
      ms: totalMs,
      startMs: laps.ms("load", "start"),
      openMs: laps.ms("load", "open"),
      prepareMs: laps.ms("load", "prepare"),
      packMs,
      readMs: laps.ms("load", "weights") - packMs,
    },
    phases,
    ...callTables([
      ...laps.calls.records().map((call) => ({ ...call, by: "engine" })),
      ...(recorded?.calls ?? []),
    ]),
    // Time that two devices share belongs to neither.
    device: devices.length === 1 ? devices[0]!.source : undefined,
    ...(sides && { sides }),
    bottleneck: longest?.summary ?? "nothing was run yet",
    ...(recorded?.notes && { notes: [...recorded.notes] }),
  };
}

/** Time that was computed in all phases, averaged over the threads; undefined: nothing was recorded. */
export function busyMs(recorded: BackendProfile | undefined): number | undefined {
  return (
    recorded &&
    sum(Object.values(recorded.phases), (times) =>
      average(threadTimes(times).map((thread) => thread.busyMs)),
    )
  );
}

/** The report's names for laps between batches. "batch" is the time that the backend takes beyond its ops. */
const betweenKinds: readonly (readonly [LapKind, keyof PhaseProfile["between"]])[] = [
  ["request", "requestMs"],
  ["bookkeeping", "bookkeepingMs"],
  ["logits", "logitsMs"],
  ["sampling", "samplingMs"],
  ["text", "textMs"],
  ["messages", "messagesMs"],
];

function phaseProfile(phase: BatchPhase, input: ProfileInput): PhaseProfile {
  const { laps, recorded } = input;
  const times = recorded?.phases[phase];
  const parts = measuredSides(phase, input).flat();
  const ms = laps.sectionMs(phase);
  const batchMs = times?.batchMs ?? laps.ms(phase, "batch");
  const threads = threadTimes(times);
  const between = betweenBatches(phase, laps, batchMs);
  const rows = (keyOf: (part: MeasuredPart) => string) => rowsBy(parts, keyOf, ms);
  const profile = {
    phase,
    ms,
    batches: sum(times?.sizes ?? [], (size) => size.batches),
    tokens: sum(times?.sizes ?? [], (size) => size.batches * size.tokens),
    batchMs,
    computeMs: sum(parts, (part) => part.ms),
    waitingMs: average(threads.map((thread) => thread.waitingMs)),
    aloneMs: sum(parts, (part) => (part.isAlone ? part.leaderMs : 0)),
    between,
    betweenMs: sum(Object.values(between), (value) => value),
    threads,
    ...(recorded?.worker !== undefined && { worker: recorded.worker }),
    heapBytesPerBatch: laps.heapBytesPerBatch(phase),
    ops: rows((part) => part.op).sort((a, b) => b.ms - a.ms),
    layers: rows((part) => layerOf(part.name)),
    nodes: rows((part) => `${withoutLayer(part.name)} (${part.op})`).sort((a, b) => b.ms - a.ms),
  };
  return { ...profile, summary: bottleneckOf(profile) };
}

function betweenBatches(phase: BatchPhase, laps: Laps, batchMs: number): PhaseProfile["between"] {
  const between: PhaseProfile["between"] = {
    requestMs: 0,
    bookkeepingMs: 0,
    logitsMs: 0,
    samplingMs: 0,
    textMs: 0,
    messagesMs: 0,
  };
  for (const [kind, key] of betweenKinds) between[key] = laps.ms(phase, kind);
  // Handing over the batch and collecting the recordings are not computing.
  between.bookkeepingMs += laps.ms(phase, "batch") - batchMs;
  return between;
}

function threadTimes(times: PhaseTimes | undefined): PhaseProfile["threads"] {
  return (times?.busyMs ?? []).map((parts) => {
    const busyMs = parts.reduce((total, ms) => total + ms, 0);
    return { busyMs, waitingMs: times!.batchMs - busyMs };
  });
}

/** A part with its times and its work in one phase. */
interface MeasuredPart extends ProfiledPart, Work {
  readonly calls: number;
  readonly ms: number;
  /** The leader's own time, not an average. */
  readonly leaderMs: number;
  /** The least time that the hardware allows: for each resource, and for the work as a whole; 0: not known. */
  readonly bandwidthMs: number;
  readonly arithmeticMs: number;
  readonly limitMs: number;
}

/** The parts of each side that computes. */
function measuredSides(phase: BatchPhase, input: ProfileInput): MeasuredPart[][] {
  const { recorded, devices, kvType } = input;
  if (!recorded) return [];
  const sides = recorded.sides?.map(({ profile }) => profile) ?? [recorded];
  // With two sides, the work of one thread of one side does not count as alone.
  const isOnly = sides.length === 1;
  return sides.map(({ parts, phases }, side) => {
    const device = devices?.length === sides.length ? devices[side] : undefined;
    const measured = measureParts(parts, phases[phase], kvType, device);
    return isOnly ? measured : measured.map((part) => ({ ...part, isAlone: false }));
  });
}

/** Undefined if one backend computes everything. */
function sideReports(input: ProfileInput): SideReport[] | undefined {
  const { recorded, devices, laps } = input;
  const phases = (["prompt", "generation"] as const).filter((one) => laps.sectionMs(one) > 0);
  return recorded?.sides?.map(({ name }, side) => ({
    name,
    device: devices?.length === recorded.sides!.length ? devices[side]!.source : undefined,
    phases: phases.map((phase) => {
      const { ms, limit } = rowOf(name, measuredSides(phase, input)[side]!, 0);
      return { phase, computeMs: ms, limit };
    }),
  }));
}

function measureParts(
  parts: readonly ProfiledPart[],
  times: PhaseTimes,
  kvType: KvDType,
  device: Device | undefined,
): MeasuredPart[] {
  return parts.map((part, index) => {
    const total = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
    const limits = { bandwidthMs: 0, arithmeticMs: 0, limitMs: 0 };
    let calls = 0;
    for (const size of times.sizes) {
      if (!hasRows(part, size)) continue; // no logits requested: not computed
      calls += size.batches;
      const work = workOf(part.nodes, size, kvType);
      total.bytes += work.bytes * size.batches;
      total.floatOps += work.floatOps * size.batches;
      total.halfOps += work.halfOps * size.batches;
      total.int8Ops += work.int8Ops * size.batches;
      if (!device) continue;
      const limit = limitOf(work, device);
      limits.bandwidthMs += limit.bandwidthSeconds * 1000 * size.batches;
      limits.arithmeticMs += limit.arithmeticSeconds * 1000 * size.batches;
      limits.limitMs += limit.seconds * 1000 * size.batches;
    }
    return {
      ...part,
      ...total,
      ...limits,
      calls,
      ms: average(times.busyMs.map((busy) => busy[index]!)),
      leaderMs: times.busyMs[0]?.[index] ?? 0,
    };
  });
}

function hasRows({ rows }: ProfiledPart, size: RecordedBatches): boolean {
  return (rows === "tokens" ? size.tokens : size.outputs) > 0;
}

/** The bytes and operations of one batch of this size. Values between ops stay in caches and are not counted. */
function workOf(nodes: readonly GraphNode[], size: RecordedBatches, kv: KvDType): Work {
  const work = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
  for (const node of nodes) {
    const cost = nodeCost(node, { ...size, kv });
    work.bytes += cost.weightBytes + cost.kvBytes;
    work.floatOps += cost.floatOps;
    work.halfOps += cost.halfOps;
    work.int8Ops += cost.int8Ops;
  }
  return work;
}

function rowsBy(
  parts: readonly MeasuredPart[],
  keyOf: (part: MeasuredPart) => string,
  phaseMs: number,
): ProfileRow[] {
  return [...Map.groupBy(parts, keyOf)].map(([name, group]) => rowOf(name, group, phaseMs));
}

function rowOf(name: string, parts: readonly MeasuredPart[], phaseMs: number): ProfileRow {
  const ms = sum(parts, (part) => part.ms);
  const perSecond = (amount: number) => (ms > 0 ? amount / (ms / 1000) : 0);
  const limitMs = sum(parts, (part) => part.limitMs);
  const bandwidthMs = sum(parts, (part) => part.bandwidthMs);
  const arithmeticMs = sum(parts, (part) => part.arithmeticMs);
  return {
    name,
    calls: sum(parts, (part) => part.calls),
    ms,
    share: phaseMs > 0 ? ms / phaseMs : 0,
    bytesPerSecond: perSecond(sum(parts, (part) => part.bytes)),
    opsPerSecond: perSecond(sum(parts, (part) => part.floatOps + part.halfOps + part.int8Ops)),
    limit:
      limitMs > 0 && ms > 0
        ? {
            resource: bandwidthMs >= arithmeticMs ? "bandwidth" : "arithmetic",
            fraction: limitMs / ms,
          }
        : undefined,
  };
}

/** "blk.3" of "blk.3.attn_q"; "outside layers" for a node of no layer. */
function layerOf(name: string): string {
  return /^blk\.\d+/.exec(name)?.[0] ?? "outside layers";
}

function withoutLayer(name: string): string {
  return name.replace(/^blk\.\d+\./, "");
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}

function average(values: readonly number[]): number {
  return values.length === 0 ? 0 : sum(values, (value) => value) / values.length;
}
