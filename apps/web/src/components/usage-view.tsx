// Memory and load in the last minutes: the current use by the machine and the models, and a chart of both over time.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { UsageSample } from "../api-types.ts";
import { client, follow } from "../state/connection.ts";
import { bytesText, digits } from "../state/format.ts";
import { Chart, type Line } from "./chart.tsx";

const pollMs = 5000;

export function UsageView(): JSX.Element | null {
  const [samples, setSamples] = useState<readonly UsageSample[]>([]);
  useEffect(() => {
    // A missing sample needs no message: the next one comes in a few seconds.
    const polling = follow(async () => setSamples((await client.usage()).samples), pollMs);
    polling.now();
    return () => polling.stop();
  }, []);
  const last = samples.at(-1);
  if (!last) return null;
  return (
    <div class="stack">
      <MachineNow sample={last} />
      {last.models.map(({ id, weightBytes, kvBytes, scratchBytes, device, busy }) => (
        <p key={id}>
          <b>{id}</b>: {bytesText(weightBytes + kvBytes + scratchBytes)}{" "}
          {device === null ? "of the machine's memory" : `, on ${device}`}: weights{" "}
          {bytesText(weightBytes)}, KV cache {bytesText(kvBytes)}, scratch {bytesText(scratchBytes)}
          {busy === null ? "" : `; computing ${digits(busy * 100)}% of the time`}.
          {device === null ? "" : " WebGPU does not say how much memory a GPU has."}
        </p>
      ))}
      {samples.length > 1 && <History samples={samples} />}
    </div>
  );
}

function MachineNow({ sample: { machine } }: { sample: UsageSample }): JSX.Element | null {
  if (!machine) return null;
  const { memoryBytes, availableBytes, residentBytes, cores, ownCpu, cpu } = machine;
  const percent = (share: number | null): string =>
    share === null ? "?" : `${digits(share * 100)}%`;
  return (
    <p class="hint">
      {bytesText(memoryBytes - availableBytes)} of {bytesText(memoryBytes)} of memory are in use,{" "}
      {bytesText(residentBytes)} by Lantern; {percent(cpu)} of {cores} core{cores === 1 ? "" : "s"},{" "}
      {percent(ownCpu)} by Lantern.
    </p>
  );
}

/** Memory of the models and load of the processor, each as a share of the machine's. */
function History({ samples }: { samples: readonly UsageSample[] }): JSX.Element {
  const end = samples.at(-1)!.time;
  const minutes = (time: number): number => (time - end) / 60_000;
  const points = (of: (sample: UsageSample) => number | null): Line["points"] =>
    samples.flatMap((sample) => {
      const value = of(sample);
      return value === null ? [] : [[minutes(sample.time), value * 100] as const];
    });
  const memory = ({ machine }: UsageSample): number | null =>
    machine && (machine.memoryBytes - machine.availableBytes) / machine.memoryBytes;
  const busy = ({ models }: UsageSample): number | null =>
    models.reduce<number | null>((most, model) => Math.max(most ?? 0, model.busy ?? 0), null);
  const isProfiled = samples.some(({ models }) => models.some((model) => model.busy !== null));
  const lines: Line[] = [
    { name: "memory", look: "read", points: points(memory) },
    { name: "processor", look: "compute", points: points(({ machine }) => machine?.cpu ?? null) },
    ...(isProfiled
      ? [{ name: "busiest model", look: "third", points: points(busy) } as const]
      : []),
  ];
  return (
    <Chart
      title="The last minutes"
      xLabel="minutes ago"
      yLabel="in use"
      scale="linear"
      lines={lines}
      reach={{ x: -1, y: 100 }}
      formatX={(value) => digits(-value)}
      formatY={(value) => `${digits(value)}%`}
    />
  );
}
