// The Quantize page: the effect of a smaller type on a model: size, the speed that this machine allows, how well it
// still predicts a text, and the error of each tensor. The server makes the report in memory; the command line writes
// files.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { QuantizeJob, QuantizeView } from "../api-types.ts";
import { Progress } from "../components/progress.tsx";
import { QuantizeResults } from "../components/quantize-results.tsx";
import { Trouble } from "../components/trouble.tsx";
import { client } from "../state/connection.ts";
import { models, refreshModels } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { useFollowed } from "../state/use-followed.ts";

const pollMs = 400;
const usualType = "Q4_K_M";

export function QuantizePage(): JSX.Element {
  const followed = useFollowed<QuantizeView>(client.quantize, {
    everyMs: pollMs,
    isMoving: ({ job }) => job !== null && isRunning(job),
  });
  const { value: view, problem, take } = followed;
  const { models: all, served } = useStore(models);
  useEffect(() => void attempt(refreshModels), []);
  const here = all.filter(({ state }) => state === "installed" || state === "cached");
  const names = [...new Set([...served.map(({ id }) => id), ...here.map(({ name }) => name)])];
  const [choice, setChoice] = useState({ model: "", type: "", text: "" });
  const job = view?.job ?? null;
  const model = choice.model || job?.model || names[0] || "";
  const type = choice.type || job?.type || usualType;
  const running = job !== null && isRunning(job);
  const start = (): void =>
    void attempt(async () => {
      const text = choice.text.trim() === "" ? undefined : choice.text;
      take(await client.startQuantize(model, type, text));
    });
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Quantize</h1>
        <p>
          Fewer bits per weight make a model smaller and faster, and a little worse. This shows how
          much of each, before you decide; no file is written.
        </p>
      </header>
      <section class="card controls">
        <Choice
          label="Model"
          value={model}
          options={names}
          hint="Best in F32, F16 or BF16: a file that is quantized already loses quality twice"
          onPick={(picked) => setChoice({ ...choice, model: picked })}
        />
        <Choice
          label="Type"
          value={type}
          options={view?.types ?? [usualType]}
          hint="Q4_K_M is the usual choice, Q8_0 loses hardly anything"
          onPick={(picked) => setChoice({ ...choice, type: picked })}
        />
        <label class="field wide">
          <span class="field-label">Text (optional)</span>
          <textarea
            rows={3}
            placeholder="A few pages of the kind of text that the model will be used for"
            value={choice.text}
            onInput={(event) => setChoice({ ...choice, text: event.currentTarget.value })}
          />
          <span class="hint">
            With one, the perplexity is measured before and after. It must fill two windows of 128
            tokens; at most 20 windows are used.
          </span>
        </label>
        <div class="row wide">
          <button type="button" class="primary" disabled={running || model === ""} onClick={start}>
            Show the cost
          </button>
          {running && (
            <button
              type="button"
              onClick={() => void attempt(async () => take(await client.cancelQuantize()))}
            >
              Stop
            </button>
          )}
        </div>
      </section>
      {problem !== null && <Trouble onAgain={followed.again}>{problem}</Trouble>}
      {job && <Outcome job={job} />}
    </div>
  );
}

function Outcome({ job }: { job: QuantizeJob }): JSX.Element {
  if (job.report) return <QuantizeResults model={job.model} report={job.report} />;
  return (
    <section class="card">
      <h2>
        {job.model} as {job.type}
      </h2>
      {job.error === null ? (
        <>
          <p class="phase">{job.phase}</p>
          <Progress share={job.share} label={job.phase} />
        </>
      ) : (
        <p class="ending" role="alert">
          {job.error}
        </p>
      )}
    </section>
  );
}

function Choice({
  label,
  value,
  options,
  hint,
  onPick,
}: {
  label: string;
  value: string;
  options: readonly string[];
  hint: string;
  onPick(value: string): void;
}): JSX.Element {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      <select value={value} onChange={(event) => onPick(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
      <span class="hint">{hint}</span>
    </label>
  );
}

function isRunning({ error, report }: QuantizeJob): boolean {
  return error === null && report === null;
}
