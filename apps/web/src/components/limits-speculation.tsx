// Speculative decoding on the Limits page: the draft, its acceptance and its length, and the gain for every length.

import type { JSX } from "preact";
import { namedShapes } from "../../../../src/limits/configs.ts";
import { parameterCounts } from "../../../../src/limits/shape.ts";
import { digits, msText, resourceText } from "../state/format.ts";
import { freeDraft, type LimitsChoice, type LimitsView } from "../state/limits-choice.ts";
import { Chart } from "./chart.tsx";
import { Stops, withStop } from "./stops.tsx";

const acceptanceStops = [0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1];
const draftStops = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32];
/** Time of a drafted token as a share of the model's. */
const shares: readonly (readonly [share: string, name: string])[] = [
  [freeDraft, "None: tokens copied from the text (n-grams)"],
  ["0.05", "A model that takes 5% of the time"],
  ["0.1", "A model that takes 10% of the time"],
  ["0.2", "A model that takes 20% of the time"],
];

interface Props {
  view: LimitsView;
  onChange(part: LimitsChoice): void;
}

export function LimitsSpeculation({ view, onChange }: Props): JSX.Element {
  const { draftTokens, acceptance, tokensPerRound, ...rest } = view.report.speculation;
  const { curve, bestDraftTokens, bestSpeedup } = rest;
  const asked = view.askedDraftTokens;
  return (
    <section class="card" aria-label="Speculative decoding">
      <h2>Speculative decoding</h2>
      <p class="hint">
        A small model drafts a few tokens, and the model checks them all in one batch: it reads its
        weights once, and keeps the tokens up to the first that it would not have chosen.
      </p>
      <div class="choices">
        <label class="field">
          <span class="field-label">Draft</span>
          <select
            value={view.draft}
            onChange={(event) => onChange({ draft: event.currentTarget.value })}
          >
            {shares.map(([share, name]) => (
              <option key={share} value={share}>
                {name}
              </option>
            ))}
            <optgroup label="Smaller models">
              {smallerModels(view).map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </optgroup>
          </select>
          <span class="hint">
            {msText(draftTokens === 0 ? 0 : rest.draftMs / draftTokens)} a token
          </span>
        </label>
        <Stops
          label="Acceptance"
          hint="The probability that a drafted token is accepted"
          stops={withStop(acceptanceStops, acceptance)}
          value={acceptance}
          onPick={(value) => onChange({ acceptance: value })}
        />
        <Stops
          label="Drafted at a time"
          hint={`${tokensPerRound.toFixed(2)} tokens are accepted per round, on average`}
          stops={withStop(draftStops, asked)}
          value={asked}
          format={(count) => (count === 0 ? `best: ${bestDraftTokens}` : String(count))}
          onPick={(count) => onChange({ draftTokens: count })}
        />
      </div>
      <p>
        <b>{rest.speedup.toFixed(2)} times as fast:</b> {msText(rest.msPerToken)} a token instead of{" "}
        {msText(rest.plainMs)}, with {rest.context.toLocaleString("en")} tokens in the cache. A
        round takes {msText(rest.draftMs)} for drafts and {msText(rest.checkMs)} for the check,
        limited by {resourceText(rest.resource)}.
      </p>
      <Chart
        title="Gain: speed against none, by the number of drafted tokens"
        xLabel="tokens drafted at a time"
        yLabel="times as fast"
        scale="linear"
        lines={[
          {
            name: "gain",
            look: "accent",
            points: curve.map((point) => [point.draftTokens, point.speedup]),
          },
        ]}
        marks={
          bestDraftTokens === 0
            ? []
            : [
                {
                  at: bestDraftTokens,
                  label: `best: ${bestDraftTokens} drafted, ${bestSpeedup.toFixed(2)} times as fast`,
                },
              ]
        }
        formatX={digits}
        formatY={(value) => `${digits(value)}×`}
      />
    </section>
  );
}

/** A draft that is no smaller than the model gains nothing. */
function smallerModels({ shape }: LimitsView): typeof namedShapes {
  const size = parameterCounts(shape).total;
  return namedShapes.filter((one) => parameterCounts(one.shape).total < size);
}
