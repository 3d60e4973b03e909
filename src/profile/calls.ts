// The tables of calls and copies of a report, from the records of the engine and the backends (base/call-table.ts).

import type { CallRow, CopyRow, ProfileReport } from "../api/api.ts";
import type { BackendCall } from "../backends/backend.ts";

export function callTables(calls: readonly BackendCall[]): Pick<ProfileReport, "calls" | "copies"> {
  const rows = calls.map(callRow).sort((a, b) => order(a) - order(b) || b.ms - a.ms);
  const copies = Map.groupBy(
    calls.filter(({ copy }) => copy !== undefined),
    ({ copy, when }) => `${when} ${copy}`,
  );
  return { calls: rows, copies: [...copies.values()].map(copyRow) };
}

function order({ when }: CallRow): number {
  return when === "load" ? 0 : 1;
}

function callRow(call: BackendCall): CallRow {
  const { by, name, when, count, ms, minMs, maxMs, varianceMs2, bytes, movesLater } = call;
  return {
    by,
    name,
    when,
    count,
    ms,
    averageMs: ms / count,
    minMs,
    maxMs,
    varianceMs2,
    bytes: bytes > 0 ? bytes : undefined,
    bytesPerSecond: movesLater ? undefined : rate(bytes, ms),
  };
}

/** Copies of one direction, by any call. */
function copyRow(calls: readonly BackendCall[]): CopyRow {
  const sum = (of: (call: BackendCall) => number): number =>
    calls.reduce((total, call) => total + of(call), 0);
  const { copy, when } = calls[0]!;
  const isTimed = calls.every(({ movesLater }) => !movesLater);
  const [bytes, ms] = [sum((call) => call.bytes), sum((call) => call.ms)];
  return {
    direction: copy!,
    when,
    count: sum((call) => call.count),
    bytes,
    ms: isTimed ? ms : undefined,
    bytesPerSecond: isTimed ? rate(bytes, ms) : undefined,
  };
}

function rate(bytes: number, ms: number): number | undefined {
  return bytes > 0 && ms > 0 ? bytes / (ms / 1000) : undefined;
}
