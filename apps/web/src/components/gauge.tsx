// The gauge of an answer: its speed, the time to the first token, how close the speed is to this machine's limit, and
// the resource that limits it. Shown during and after the answer; the chart is the speed over the answer.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { LimitsReport, Message } from "../api-types.ts";
import { digits, msText, othersText, resourceText } from "../state/format.ts";
import { type Live, type LiveAnswer, nothingSaid, type Sample } from "../state/live.ts";
import { limitAt, modelLimits, wantLimits } from "../state/model-limits.ts";
import { hrefOf } from "../state/route.ts";
import { Store, useStore } from "../state/store.ts";

interface Reading {
  tokens: number | null;
  tokensPerSecond: number | null;
  msToFirstToken: number | null;
  percentOfLimit: number | null;
  boundBy: string | null;
  limitIsQuick?: boolean;
  othersCores?: number;
  cores?: number;
}

const nothing = new Store<Live>({ ...nothingSaid, gauge: null, samples: [] });

interface Props {
  message: Message;
  live: LiveAnswer | undefined;
}

export function Gauge({ message, live }: Props): JSX.Element | null {
  const now = useStore(live?.store ?? nothing);
  const limits = useStore(modelLimits, (all) => all.get(message.model ?? ""));
  useEffect(() => {
    if (message.model !== null) void wantLimits(message.model);
  }, [message.model]);
  const streaming = message.state === "streaming";
  const said = streaming ? now.gauge : finalReading(message, now.gauge);
  if (!said || said.tokensPerSecond === null) {
    return streaming ? <p class="gauge waiting">Reading the prompt…</p> : null;
  }
  const reading = withLimit(said, limits, message);
  const { tokensPerSecond, percentOfLimit, boundBy, msToFirstToken, tokens } = reading;
  const cached = message.tokens?.cached ?? 0;
  const others = othersText(reading);
  return (
    <div class="gauge">
      <Spark samples={now.samples} limit={limitRate(reading)} />
      <span class="reading">
        <b>{digits(tokensPerSecond ?? 0)}</b> tokens/s
      </span>
      {msToFirstToken !== null && (
        <span class="reading" title="Time to the first token: waiting and computing the prompt">
          first token <b>{msText(msToFirstToken)}</b>
        </span>
      )}
      {tokens !== null && <span class="reading">{tokens} tokens</span>}
      {limits === "unmeasured" && percentOfLimit === null && (
        <a class="reading" href={hrefOf("machine")} title="Measure this machine to see its limit">
          limit not measured
        </a>
      )}
      {percentOfLimit !== null && (
        <span class="reading limit" title={limitTitle(reading)}>
          <Bar percent={percentOfLimit} />
          <b>{digits(percentOfLimit)}%</b> of the limit
          {boundBy && ` (${resourceText(boundBy)})`}
          {reading.limitIsQuick && ", measured quickly"}
        </span>
      )}
      {others !== undefined && (
        <span class="reading" title="Other programs had these cores while this was computed">
          {others}
        </span>
      )}
      {cached > 0 && (
        <span
          class="reading"
          title="Tokens of the conversation that did not have to be computed again"
        >
          {cached} cached
        </span>
      )}
    </div>
  );
}

/** The stored numbers of an answer; for a stopped one, the last live numbers. */
function finalReading({ timings, tokens }: Message, last: Reading | null): Reading | null {
  return timings && { ...timings, tokens: tokens?.generated ?? last?.tokens ?? null };
}

/** The server knows the limit of an answer when it has ended; before that, it comes from the report of its model. */
function withLimit(
  reading: Reading,
  limits: LimitsReport | "unmeasured" | undefined,
  { tokens }: Message,
): Reading {
  const { percentOfLimit, tokensPerSecond } = reading;
  const known = typeof limits === "object";
  if (percentOfLimit !== null || tokensPerSecond === null || !known) return reading;
  const { rate, resource } = limitAt(limits, (tokens?.prompt ?? 0) + (reading.tokens ?? 1));
  const limitIsQuick = limits.device.quick === true;
  return {
    ...reading,
    percentOfLimit: (tokensPerSecond * 100) / rate,
    boundBy: resource,
    limitIsQuick,
  };
}

function limitRate({ tokensPerSecond, percentOfLimit }: Reading): number | null {
  if (!(tokensPerSecond && percentOfLimit)) return null;
  return (tokensPerSecond * 100) / percentOfLimit;
}

function limitTitle(reading: Reading): string {
  const most = limitRate(reading);
  const allowed =
    most === null ? "" : `This machine allows at most ${digits(most)} tokens/s with this model`;
  return reading.boundBy ? `${allowed}, limited by ${resourceText(reading.boundBy)}.` : allowed;
}

function Bar({ percent }: { percent: number }): JSX.Element {
  return (
    <svg class="bar" viewBox="0 0 40 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="40" height="6" rx="3" />
      <rect
        class="fill"
        width={Math.max(2, Math.min(40, (percent * 40) / 100))}
        height="6"
        rx="3"
      />
    </svg>
  );
}

const width = 96;
const height = 22;

/** Speed over the answer; the dashed line is the machine's limit, if it fits on the chart. */
function Spark(props: { samples: readonly Sample[]; limit: number | null }): JSX.Element | null {
  const { samples, limit } = props;
  if (samples.length < 2) return null;
  const most = Math.max(...samples.map(({ rate }) => rate));
  const top = (limit !== null && limit < 3 * most ? Math.max(limit, most) : most) * 1.1;
  const start = samples[0]!.at;
  const length = samples.at(-1)!.at - start || 1;
  const points = samples.map(({ at, rate }): [number, number] => [
    ((at - start) / length) * width,
    height - (rate / top) * height,
  ]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const label = `Speed over the answer, up to ${digits(most)} tokens per second`;
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      {limit !== null && limit <= top && (
        <line
          class="spark-limit"
          x1="0"
          x2={width}
          y1={height * (1 - limit / top)}
          y2={height * (1 - limit / top)}
        />
      )}
      <polygon
        class="spark-area"
        points={`${points[0]![0]},${height} ${line} ${width},${height}`}
      />
      <polyline class="spark-line" points={line} />
    </svg>
  );
}
