// The gauge of an answer: how fast it is written, how long the first token took, how close that is to what this machine
// allows, and what binds. While it is written and after; the chart is the speed over the answer.

import type { JSX } from "preact";
import type { Message } from "../api-types.ts";
import { digits, msText, resourceText } from "../state/format.ts";
import type { LiveAnswer, Sample } from "../state/live.ts";
import { hrefOf } from "../state/route.ts";
import { Store, useStore } from "../state/store.ts";

interface Reading {
  tokens: number | null;
  tokensPerSecond: number | null;
  msToFirstToken: number | null;
  percentOfLimit: number | null;
  boundBy: string | null;
}

const nothing = new Store({ text: "", gauge: null, samples: [] as readonly Sample[] });

export function Gauge(props: {
  message: Message;
  live: LiveAnswer | undefined;
}): JSX.Element | null {
  const { message, live } = props;
  const now = useStore(live?.store ?? nothing);
  const reading = message.state === "streaming" ? now.gauge : finalReading(message);
  if (!reading || reading.tokensPerSecond === null) {
    return message.state === "streaming" ? <p class="gauge waiting">Reading the prompt…</p> : null;
  }
  const { tokensPerSecond, percentOfLimit, boundBy, msToFirstToken, tokens } = reading;
  const cached = message.tokens?.cached ?? 0;
  return (
    <div class="gauge">
      <Spark samples={now.samples} limit={limitRate(reading)} />
      <span class="reading">
        <b>{digits(tokensPerSecond)}</b> tokens/s
      </span>
      {msToFirstToken !== null && (
        <span class="reading" title="Time to the first token: waiting and reading the prompt">
          first token <b>{msText(msToFirstToken)}</b>
        </span>
      )}
      {percentOfLimit === null ? (
        <a class="reading" href={hrefOf("machine")} title="Measure this machine to see its limit">
          limit not measured
        </a>
      ) : (
        <span class="reading limit" title={limitTitle(reading)}>
          <Bar percent={percentOfLimit} />
          <b>{digits(percentOfLimit)}%</b> of the limit
          {boundBy && <span class="binds"> · {resourceText(boundBy)} binds</span>}
        </span>
      )}
      {tokens !== null && <span class="reading">{tokens} tokens</span>}
      {cached > 0 && (
        <span class="reading" title="Tokens of the conversation that did not have to be read again">
          {cached} from the cache
        </span>
      )}
    </div>
  );
}

function finalReading({ timings, tokens }: Message): Reading | null {
  return timings && { ...timings, tokens: tokens?.generated ?? null };
}

function limitRate({ tokensPerSecond, percentOfLimit }: Reading): number | null {
  if (!(tokensPerSecond && percentOfLimit)) return null;
  return (tokensPerSecond * 100) / percentOfLimit;
}

function limitTitle(reading: Reading): string {
  const most = limitRate(reading);
  const allowed =
    most === null ? "" : `This machine allows ${digits(most)} tokens/s for this model`;
  return reading.boundBy ? `${allowed}; ${resourceText(reading.boundBy)} is what binds.` : allowed;
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

/** Speed over the answer; the dashed line is the machine's limit, where it is near enough to be on the chart. */
function Spark(props: { samples: readonly Sample[]; limit: number | null }): JSX.Element | null {
  const { samples, limit } = props;
  if (samples.length < 2) return null;
  const most = Math.max(...samples.map(({ rate }) => rate));
  const top = (limit !== null && limit < 3 * most ? Math.max(limit, most) : most) * 1.1;
  const end = samples.at(-1)!.at || 1;
  const points = samples.map(({ at, rate }): [number, number] => [
    (at / end) * width,
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
