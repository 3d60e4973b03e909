// The profile of a model: the time of its answers, phase by phase, op by op. Recorded if the server was started with
// --profile, as `npm start` does.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { RequestError } from "../api.ts";
import type { ProfileReport } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { digits, msText, rateText } from "../state/format.ts";
import { CallTables } from "./call-tables.tsx";
import { ScrollX } from "./scroll-x.tsx";

type Phase = ProfileReport["phases"][number];

export function ProfileView({ model }: { model: string }): JSX.Element {
  const [report, setReport] = useState<ProfileReport | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const fail = (error: unknown): void =>
      setProblem(
        error instanceof RequestError && error.reason === "not_profiled" ? "off" : "failed",
      );
    void client.profile(model).then(setReport, fail);
  }, [model]);
  if (problem === "off") {
    return (
      <p>
        <b>{model}</b> was opened without a profile. <code>lantern serve --profile</code> records
        one; it costs a few percent of the speed of very small models, and less than 1% of others.
      </p>
    );
  }
  if (problem) return <p>The profile of {model} could not be loaded.</p>;
  if (!report) return <p aria-busy="true">…</p>;
  const phases = report.phases.filter(({ batches }) => batches > 0);
  return (
    <div class="stack">
      <p>
        <b>{model}</b>: loaded in {msText(report.load.ms)}.{" "}
        {phases.length > 0 ? report.bottleneck : "It has not generated anything yet."}
      </p>
      {phases.map((phase) => (
        <PhaseTable key={phase.phase} phase={phase} />
      ))}
      <CallTables report={report} />
    </div>
  );
}

const shownOps = 8;

function PhaseTable({ phase }: { phase: Phase }): JSX.Element {
  const name = phase.phase === "prompt" ? "Reading prompts" : "Writing answers";
  const ops = phase.ops.slice(0, shownOps);
  const rows = [
    ...ops.map(({ name: op, ms, share, bytesPerSecond, limit }) => ({
      name: op,
      ms,
      share,
      speed: bytesPerSecond > 0 ? rateText(bytesPerSecond, "B/s") : "",
      limit: limit ? `${digits(limit.fraction * 100)}%` : "",
    })),
    {
      name: "threads waiting",
      ms: phase.waitingMs,
      share: phase.waitingMs / phase.ms,
      speed: "",
      limit: "",
    },
    {
      name: "between batches",
      ms: phase.betweenMs,
      share: phase.betweenMs / phase.ms,
      speed: "",
      limit: "",
    },
  ];
  return (
    <div>
      <h3>
        {name}: {phase.tokens.toLocaleString("en")} tokens in {msText(phase.ms)}
      </h3>
      <p class="hint">
        {phase.summary}.{" "}
        {phase.heapBytesPerBatch === undefined
          ? ""
          : `A batch allocates no tensor memory and ${digits(phase.heapBytesPerBatch / 1000)} kB of the JavaScript heap.`}
      </p>
      <ScrollX label="Where the time went">
        <table>
          <thead>
            <tr>
              <th scope="col">what</th>
              <th scope="col" class="number">
                time
              </th>
              <th scope="col">share</th>
              <th scope="col" class="number">
                reading
              </th>
              <th scope="col" class="number">
                of limit
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">{row.name}</th>
                <td class="number">{msText(row.ms)}</td>
                <td>
                  <span class="share">
                    <svg
                      class="bar"
                      viewBox="0 0 100 6"
                      preserveAspectRatio="none"
                      aria-hidden="true"
                    >
                      <rect class="track" width="100" height="6" rx="3" />
                      <rect
                        class="fill"
                        width={Math.max(0, Math.min(100, row.share * 100))}
                        height="6"
                        rx="3"
                      />
                    </svg>
                    {digits(row.share * 100)}%
                  </span>
                </td>
                <td class="number">{row.speed}</td>
                <td class="number">{row.limit}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollX>
    </div>
  );
}
