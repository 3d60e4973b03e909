// The Machine page: the abilities of this machine, the memory of the loaded models, the tune file, and the profile of
// the last answers. The numbers come from the server; a measurement can be started here.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { LimitsReport, MachineMeasurement, MachineView } from "../api-types.ts";
import { Crossovers, HeatMap } from "../components/heat-map.tsx";
import { Icon } from "../components/icon.tsx";
import { MemoryMap } from "../components/memory-map.tsx";
import { ProfileView } from "../components/profile-view.tsx";
import { Progress } from "../components/progress.tsx";
import { Trouble } from "../components/trouble.tsx";
import { UsageView } from "../components/usage-view.tsx";
import { client } from "../state/connection.ts";
import { bytesText, digits, rateText, resourceText } from "../state/format.ts";
import { forgetLimits } from "../state/model-limits.ts";
import { attempt } from "../state/notices.ts";
import { hrefOf } from "../state/route.ts";
import { useFollowed } from "../state/use-followed.ts";

const pollMs = 400;

export function MachinePage(): JSX.Element {
  const followed = useFollowed(readMachine, { everyMs: pollMs, isMoving: isMeasuring });
  const { value: view, problem, look } = followed;
  const measuring = view !== null && isMeasuring(view);
  const measure = (): void =>
    void attempt(async () => {
      await client.measure();
      await look();
    });
  const head = (
    <header class="facts-head">
      <h1>This machine</h1>
      <p>How fast its hardware is, and where the models spend their time.</p>
      {problem !== null && <Trouble onAgain={followed.again}>{problem}</Trouble>}
    </header>
  );
  if (!view) {
    return (
      <div class="facts" aria-busy={problem === null}>
        {head}
      </div>
    );
  }
  return (
    <div class="facts">
      {head}
      <section class="card">
        <div class="row between wrap">
          <h2>Speed of the hardware</h2>
          <button
            type="button"
            class={view.machine ? "" : "primary"}
            disabled={measuring}
            onClick={measure}
          >
            <Icon name="bolt" />{" "}
            {measuring ? "Measuring…" : view.machine ? "Measure again" : "Measure (8 s)"}
          </button>
        </div>
        {measuring && <Progress share={view.measuring!.share} label="Measuring" />}
        {view.measuring?.error && <p class="ending">{view.measuring.error}</p>}
        {view.machine ? (
          <MachineTable machine={view.machine} />
        ) : (
          <p>
            It has not been measured yet. That takes eight seconds, best while nothing else runs;
            every answer then shows how close it came to the limit.
          </p>
        )}
      </section>
      <section class="card">
        <h2>Memory of the loaded models</h2>
        <UsageView />
        {view.models.length === 0 && (
          <p>
            No model is loaded. <a href={hrefOf("models")}>Load one</a>.
          </p>
        )}
        {view.models.map((model) => (
          <div key={model.id} class="stack">
            <MemoryMap model={model} />
            {view.machine && <ModelLimits id={model.id} />}
          </div>
        ))}
      </section>
      <section class="card">
        <h2>Tuned kernels</h2>
        {view.tune && view.tune.groups.length > 0 ? (
          <>
            <p>
              The fastest kernel for each matrix and number of tokens, as measured here. Numbers are
              speedups over the default: {digits(view.tune.gain.median)}× in the median,{" "}
              {digits(view.tune.gain.most)}× at most.
            </p>
            <HeatMap tune={view.tune} />
            <Crossovers tune={view.tune} />
          </>
        ) : (
          <p>
            <code>lantern tune -m MODEL</code> measures every kernel that can compute a model's
            matmuls, and keeps the fastest.
            {view.tuneNote && <span class="hint"> So far: {view.tuneNote}.</span>}
          </p>
        )}
      </section>
      <section class="card">
        <h2>Where the time went</h2>
        {view.models.map(({ id }) => (
          <ProfileView key={id} model={id} />
        ))}
        {view.models.length === 0 && <p>No model is loaded.</p>}
      </section>
    </div>
  );
}

async function readMachine(): Promise<MachineView> {
  const view = await client.machine();
  if (view.machine) forgetLimits();
  return view;
}

function isMeasuring({ measuring }: MachineView): boolean {
  return measuring !== null && measuring.error === null;
}

function MachineTable({ machine }: { machine: MachineMeasurement }): JSX.Element {
  type Row = [string, string, readonly { threads: number; perSecond: number }[], string];
  const tiles: Row[] = machine.int8TileOps
    ? [["Arithmetic, int8, AMX tiles", "matmuls of prompts", machine.int8TileOps, "OPS"]]
    : [];
  const rows: Row[] = [
    ["Memory bandwidth", "reading weights that fit in no cache", machine.readBytes, "B/s"],
    ...(machine.cachedReads ?? []).map(
      (set): Row => [
        `From caches, ${digits(set.setBytes / 2 ** 20)} MiB`,
        "reading a model of this size over and over",
        set.readBytes,
        "B/s",
      ],
    ),
    ["Arithmetic, f32", "multiplies and adds", machine.f32Ops, "FLOPS"],
    ["Arithmetic, int8", "multiplies and adds", machine.int8Ops, "OPS"],
    ...tiles,
  ];
  const threads = machine.readBytes.map((point) => point.threads);
  return (
    <>
      <p class="hint">
        {machine.cpu}, {machine.cores} core{machine.cores === 1 ? "" : "s"}
        {machine.memoryBytes === undefined ? "" : `, ${bytesText(machine.memoryBytes)}`}; measured{" "}
        {machine.measuredAt.slice(0, 10)}; {machine.lowering}
      </p>
      <div class="scroll-x">
        <table>
          <thead>
            <tr>
              <th scope="col">Limit</th>
              {threads.map((count) => (
                <th key={count} scope="col" class="number">
                  {count} thread{count === 1 ? "" : "s"}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, why, points, unit]) => (
              <tr key={name}>
                <th scope="row" title={why}>
                  {name}
                </th>
                {points.map(({ threads: count, perSecond }) => (
                  <td key={count} class="number">
                    {rateText(perSecond, unit)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** This machine's limits of a loaded model. */
function ModelLimits({ id }: { id: string }): JSX.Element | null {
  const [report, setReport] = useState<LimitsReport | null>(null);
  useEffect(() => void client.limits(id).then(setReport, () => setReport(null)), [id]);
  if (!report) return null;
  const { decode, prefill } = report;
  const [first] = decode.rows;
  const turns = prefill.turns.points[0];
  return (
    <p>
      On this machine it generates at most <b>{digits(first!.tokensPerSecond)} tokens/s</b> at the
      start of a text, limited by {resourceText(first!.resource)}.{" "}
      {turns && turns.tokens >= 2
        ? `Prompts of more than ${Math.round(turns.tokens)} tokens are limited by ${resourceText(turns.after)}.`
        : `Prompts of every length are limited by ${resourceText(turns?.after ?? prefill.turns.starts)}.`}{" "}
      <a href={hrefOf("limits")}>All limits</a>
    </p>
  );
}
