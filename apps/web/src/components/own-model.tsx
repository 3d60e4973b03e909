// The fields of a model of one's own: a config.json to paste or choose, and the sizes, which can be changed one by one.

import type { JSX } from "preact";
import type { LimitsModel } from "../../../../src/limits/limits-model.ts";
import type { ModelShape } from "../../../../src/limits/shape.ts";
import { longestConfig, type OwnChoice } from "../state/own-model.ts";

interface Props {
  own: OwnChoice;
  /** undefined: the input makes no model. */
  model: LimitsModel | undefined;
  problem: string | undefined;
  onChange(own: OwnChoice): void;
}

const sizes: readonly [key: keyof ModelShape & SizeKey, label: string][] = [
  ["layers", "Layers"],
  ["embed", "Hidden size"],
  ["heads", "Heads"],
  ["kvHeads", "KV heads"],
  ["headDim", "Size of a head"],
  ["feedForward", "Feed-forward size"],
  ["vocabSize", "Vocabulary"],
];
type SizeKey = "layers" | "embed" | "heads" | "kvHeads" | "headDim" | "feedForward" | "vocabSize";

const flags: readonly [key: "tied" | "qkvBias" | "headNorms", label: string][] = [
  ["tied", "The output matrix is the embedding table"],
  ["qkvBias", "Biases of queries, keys and values"],
  ["headNorms", "Norms of queries and keys"],
];

export function OwnModel({ own, model, problem, onChange }: Props): JSX.Element {
  const shape = "shape" in own ? own.shape : model?.shape;
  const choose = async (file: File | undefined): Promise<void> => {
    if (file && file.size <= longestConfig) onChange({ config: await file.text() });
  };
  return (
    <section class="card own-model" aria-label="A configuration of your own">
      <h2>A configuration of your own</h2>
      <label class="field">
        <span class="field-label">config.json of a Hugging Face folder</span>
        <textarea
          rows={4}
          maxLength={longestConfig}
          spellcheck={false}
          placeholder={'{ "model_type": "llama", "hidden_size": 4096, … }'}
          value={"config" in own ? own.config : ""}
          onInput={(event) => onChange({ config: event.currentTarget.value })}
        />
      </label>
      <label class="field">
        <span class="field-label">or its file</span>
        <input
          type="file"
          accept=".json"
          onChange={(event) => void choose(event.currentTarget.files?.[0])}
        />
      </label>
      {problem !== undefined && <p role="alert">{problem}</p>}
      {model?.parameters && (
        <p>
          It has experts or layers that differ, and is counted from the graph of its architecture. A
          change below makes it a plain transformer of these sizes.
        </p>
      )}
      {shape && (
        <div class="choices">
          {sizes.map(([key, label]) => (
            <label key={key} class="field">
              <span class="field-label">{label}</span>
              <input
                type="number"
                min={1}
                step={1}
                value={shape[key]}
                onChange={(event) =>
                  onChange({ shape: { ...shape, [key]: event.currentTarget.valueAsNumber || 0 } })
                }
              />
            </label>
          ))}
          {flags.map(([key, label]) => (
            <label key={key} class="row">
              <input
                type="checkbox"
                checked={shape[key]}
                onChange={(event) =>
                  onChange({ shape: { ...shape, [key]: event.currentTarget.checked } })
                }
              />
              {label}
            </label>
          ))}
        </div>
      )}
    </section>
  );
}
