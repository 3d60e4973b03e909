// One batch on the Batches page: its progress, its speed, its errors, and its files.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { BatchView } from "../api-types.ts";
import { isOver, limitShare, shareOf, speedOf, stateText } from "../state/batches.ts";
import { agoText, digits, grouped, msText } from "../state/format.ts";
import { modelLimits, wantLimits } from "../state/model-limits.ts";
import { models } from "../state/models.ts";
import { useStore } from "../state/store.ts";
import { Progress } from "./progress.tsx";

interface Props {
  batch: BatchView;
  /** The name of the input file. */
  name: string;
  now: number;
  onCancel(): void;
  /** Saves a file of the batch under this name. */
  onSave(file: string, name: string): void;
}

/** Errors that are shown at once. */
const shownErrors = 10;

export function BatchCard({ batch, name, now, onCancel, onSave }: Props): JSX.Element {
  const { output_file_id: output, error_file_id: errors, request_counts: counts } = batch;
  const stem = name.replace(/\.jsonl$/, "");
  const isRunning = batch.status === "validating" || batch.status === "in_progress";
  return (
    <section class="card batch" aria-label={name}>
      <div class="row between">
        <h2 dir="auto">{name}</h2>
        <span class="hint">{agoText(batch.created_at * 1000, now)}</span>
      </div>
      <p role="status">
        {stateText(batch)}
        {counts.total > 0 && `: ${countsText(batch)}`}
      </p>
      {!isOver(batch) && <Progress share={shareOf(batch)} label={`Progress of ${name}`} />}
      <Speed batch={batch} now={now} />
      {batch.errors && <Errors errors={batch.errors.data} />}
      <div class="row">
        {isRunning && (
          <button type="button" onClick={onCancel} aria-label={`Cancel ${name}`}>
            Cancel
          </button>
        )}
        {output !== null && (
          <button
            type="button"
            class="primary"
            aria-label={`Save the answers of ${name}`}
            onClick={() => onSave(output, `${stem}-answers.jsonl`)}
          >
            Save the answers
          </button>
        )}
        {errors !== null && (
          <button
            type="button"
            aria-label={`Save the errors of ${name}`}
            onClick={() => onSave(errors, `${stem}-errors.jsonl`)}
          >
            Save the errors
          </button>
        )}
      </div>
    </section>
  );
}

function countsText({ request_counts: { total, completed, failed } }: BatchView): string {
  const wrong = failed > 0 ? `, ${grouped(failed)} without an answer` : "";
  return `${grouped(completed)} of ${grouped(total)} answered${wrong}`;
}

function Speed({ batch, now }: { batch: BatchView; now: number }): JSX.Element | null {
  const served = useStore(models, (all) => all.served);
  const model = served.find(({ id }) => id === batch.model)?.id ?? served[0]?.id;
  const report = useStore(modelLimits, (all) => (model === undefined ? undefined : all.get(model)));
  useEffect(() => {
    if (model !== undefined) void wantLimits(model);
  }, [model]);
  const speed = speedOf(batch, now);
  if (!speed) return null;
  const share =
    report && report !== "unmeasured" ? limitShare(batch, speed.rate, report) : undefined;
  const {
    input_tokens: input,
    output_tokens: written,
    input_tokens_details: details,
  } = batch.usage;
  return (
    <dl class="numbers">
      <div class="card">
        <dt>Speed</dt>
        <dd>
          <b>{digits(speed.rate)} tokens/s</b>
          <span class="hint">{limitText(share)}</span>
        </dd>
      </div>
      <div class="card">
        <dt>Tokens</dt>
        <dd>
          <b>{grouped(written)}</b>
          <span class="hint">
            of {grouped(input)} in prompts, {grouped(details.cached_tokens)} were known
          </span>
        </dd>
      </div>
      {speed.leftMs !== null && (
        <div class="card">
          <dt>Time left, about</dt>
          <dd>
            <b>{msText(speed.leftMs)}</b>
          </dd>
        </div>
      )}
    </dl>
  );
}

/** undefined: the machine's limits are not known. */
function limitText(share: number | null | undefined): string {
  if (share === undefined) return "the machine has not been measured";
  return share === null ? "" : `${(100 * share).toFixed(0)}% of the limit`;
}

function Errors({ errors }: { errors: readonly { message: string }[] }): JSX.Element {
  return (
    <div class="ending" role="alert">
      <ul class="plain">
        {errors.slice(0, shownErrors).map(({ message }) => (
          <li key={message}>{message}</li>
        ))}
        {errors.length > shownErrors && <li>and {errors.length - shownErrors} more</li>}
      </ul>
    </div>
  );
}
