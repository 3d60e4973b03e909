// A LimitsReport: the most important numbers, two charts, and the effect of other bit widths.

import type { JSX } from "preact";
import { decodeLimit } from "../../../../src/limits/decode.ts";
import { prefillCountOf, prefillLimit } from "../../../../src/limits/prefill.ts";
import type { LimitsReport } from "../../../../src/limits/report.ts";
import { bytesText, countText, digits, msText, resourceText } from "../state/format.ts";
import { Chart, type Line } from "./chart.tsx";
import { ScrollX } from "./scroll-x.tsx";

const samples = 60;
/** The prompt length that benchmarks usually use. */
const usualPrompt = 512;

export function LimitsResults({ report }: { report: LimitsReport }): JSX.Element {
  return (
    <>
      <Numbers report={report} />
      <section class="card">
        <PromptChart report={report} />
      </section>
      <section class="card">
        <SpeedChart report={report} />
      </section>
      <section class="card">
        <h2>What other choices would change</h2>
        <Effects report={report} />
      </section>
    </>
  );
}

function Numbers({ report }: { report: LimitsReport }): JSX.Element {
  const { memory, prefill, decode, context } = report;
  const last = prefill.rows.at(-1)!;
  const usual = prefill.rows.findLast(({ tokens }) => tokens <= usualPrompt)!;
  const [first] = decode.rows;
  const end = decode.rows.at(-1)!;
  const needed = memory.storedBytes + memory.stateBytes;
  const fits = memory.bytes === undefined || needed <= memory.bytes;
  const facts: [string, string, string][] = [
    [
      "Generation",
      `${digits(first!.tokensPerSecond)} tokens/s`,
      `at most; ${digits(end.tokensPerSecond)} when the text has ${tokensText(context)}. Limited by ${resourceText(first!.resource)}`,
    ],
    [
      "Prompt",
      `${digits(usual.tokensPerSecond)} tokens/s`,
      `at most, for a prompt of ${tokensText(usual.tokens)}. Limited by ${resourceText(usual.resource)}`,
    ],
    [
      "First token",
      msText(last.firstTokenMs),
      `at least, after a prompt of ${tokensText(last.tokens)}. Limited by ${resourceText(last.resource)}`,
    ],
    [
      "Memory",
      bytesText(needed),
      fits
        ? `weights ${bytesText(memory.storedBytes)}, the rest KV cache for ${tokensText(context)}`
        : `does not fit: the device has ${bytesText(memory.bytes!)}`,
    ],
    [
      "Turning points",
      turningText(report),
      "prompt lengths from which something else is the limit",
    ],
    [
      "Context that fits",
      memory.tokensThatFitWithEmbedding === undefined
        ? memory.bytes === undefined
          ? "–"
          : "none"
        : memory.tokensThatFitWithEmbedding === Infinity
          ? "any"
          : `${countText(memory.tokensThatFitWithEmbedding)} tokens`,
      memory.bytes === undefined
        ? "its memory size is not known"
        : `for all users together, in ${bytesText(memory.bytes)} of memory`,
    ],
  ];
  return (
    <dl class="numbers">
      {facts.map(([name, value, note]) => (
        <div key={name} class={name === "Memory" && !fits ? "card wrong" : "card"}>
          <dt>{name}</dt>
          <dd>
            <b>{value}</b>
            <span class="hint">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function turningText({ prefill }: LimitsReport): string {
  const { points } = prefill.turns;
  if (points.length === 0) return "none";
  return points.map(({ tokens }) => Math.round(tokens).toLocaleString("en")).join(" and ");
}

function PromptChart({ report }: { report: LimitsReport }): JSX.Element {
  const { cost, device, context, prefill, counting } = report;
  const count = prefillCountOf[counting];
  const lengths = spread(1, context);
  const line = (
    name: string,
    look: Line["look"],
    part: "bandwidthSeconds" | "arithmeticSeconds",
  ): Line => ({
    name,
    look,
    points: lengths.map((tokens) => [
      tokens,
      prefillLimit(cost, device, tokens, count)[part] * 1000,
    ]),
  });
  return (
    <Chart
      title="Prompt: the longer of the two is the shortest possible time to the first token"
      xLabel="tokens of the prompt"
      yLabel="milliseconds"
      scale="log"
      lines={[
        line("reading memory", "read", "bandwidthSeconds"),
        line("computing", "compute", "arithmeticSeconds"),
      ]}
      marks={prefill.turns.points.map(({ tokens, after }) => ({
        at: tokens,
        label: `from ${tokensText(Math.round(tokens))}: limited by ${resourceText(after)}`,
      }))}
      formatX={shortCount}
      formatY={shortCount}
    />
  );
}

function SpeedChart({ report }: { report: LimitsReport }): JSX.Element {
  const { cost, device, context } = report;
  const points = spread(1, context).map((token): [number, number] => [
    token,
    1 / decodeLimit(cost, device, token).seconds,
  ]);
  return (
    <Chart
      title="Generation: the most tokens per second, as the text grows"
      xLabel="tokens of the text"
      yLabel="tokens/s"
      scale="linear"
      lines={[{ name: "tokens per second", look: "accent", points }]}
      formatX={shortCount}
      formatY={digits}
    />
  );
}

function Effects({ report }: { report: LimitsReport }): JSX.Element {
  const [asItIs] = report.effects;
  return (
    <ScrollX label="What smaller types change">
      <table>
        <thead>
          <tr>
            {[
              "change",
              "weights",
              "KV per token",
              "turning points",
              "tokens/s at the end",
              "compared",
            ].map((name, at) => (
              <th key={`${name}${at}`} scope="col" class={at === 0 ? "" : "number"}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {report.effects.map((effect) => (
            <tr key={effect.what}>
              <th scope="row">{effect.what}</th>
              <td class="number">{bytesText(effect.weightBytes)}</td>
              <td class="number">{bytesText(effect.kvBytesPerToken)}</td>
              <td class="number">
                {effect.turningPoints
                  .map((tokens) => Math.round(tokens).toLocaleString("en"))
                  .join(", ") || "none"}
              </td>
              <td class="number">{digits(effect.tokensPerSecond)}</td>
              <td class="number">
                {effect === asItIs
                  ? ""
                  : `${digits(effect.tokensPerSecond / asItIs!.tokensPerSecond)}×`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollX>
  );
}

function tokensText(count: number): string {
  return `${count.toLocaleString("en")} token${count === 1 ? "" : "s"}`;
}

/** Lengths that are evenly spaced on a logarithmic axis. */
function spread(from: number, to: number): number[] {
  return Array.from({ length: samples + 1 }, (_, at) => from * (to / from) ** (at / samples));
}

function shortCount(value: number): string {
  if (value >= 1e6) return `${digits(value / 1e6)}M`;
  if (value >= 1000) return `${digits(value / 1000)}k`;
  return digits(value);
}
