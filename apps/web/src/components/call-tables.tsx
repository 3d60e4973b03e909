// The tables of calls and copies in a profile: calls of the GPU's API, waits of threads, reads of files, and copies between
// host and device.

import type { JSX } from "preact";
import type { ProfileReport } from "../api-types.ts";
import { bytesText, msText, rateText } from "../state/format.ts";
import { NumberTable } from "./number-table.tsx";

/** The longest ones; the command line has all. */
const shownCalls = 12;

export function CallTables({ report }: { report: ProfileReport }): JSX.Element | null {
  const { calls, copies, notes } = report;
  if (calls.length === 0) return null;
  const longest = [...calls].sort((a, b) => b.ms - a.ms).slice(0, shownCalls);
  return (
    <div>
      <h3>Calls</h3>
      <p class="hint">
        Below the ops: calls of the GPU's API, threads that wake up or wait for each other, reads of
        the file. Times of several threads add up.
        {(notes ?? []).map((note) => ` Note: ${note}.`)}
      </p>
      <NumberTable
        label="Calls"
        head={["call", "count", "total", "average", "least", "most", "std. deviation", "rate"]}
        rows={longest.map((call) => [
          `${call.by}: ${call.name}${call.when === "load" ? " (loading)" : ""}`,
          call.count.toLocaleString("en"),
          msText(call.ms),
          ...[call.averageMs, call.minMs, call.maxMs, Math.sqrt(call.varianceMs2)].map(msText),
          speedText(call.bytesPerSecond),
        ])}
      />
      {copies.length > 0 && (
        <NumberTable
          label="Copies"
          head={["copies", "count", "bytes", "time", "rate"]}
          rows={copies.map((copy) => [
            `${copy.direction}${copy.when === "load" ? " (loading)" : ""}`,
            copy.count.toLocaleString("en"),
            bytesText(copy.bytes),
            copy.ms === undefined ? "" : msText(copy.ms),
            speedText(copy.bytesPerSecond),
          ])}
        />
      )}
    </div>
  );
}

function speedText(bytesPerSecond: number | null | undefined): string {
  return bytesPerSecond ? rateText(bytesPerSecond, "B/s") : "";
}
