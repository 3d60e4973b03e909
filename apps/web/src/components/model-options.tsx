// The options for loading a model: context, KV cache, threads, layers on the GPU, with the memory before and after. The
// server chooses defaults for empty fields.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { sentence } from "../api.ts";
import type { KvType, LoadOptions, LoadPlan } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { bytesText, grouped } from "../state/format.ts";
import { loadModel } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { Dialog } from "./dialog.tsx";

const kvTypeTexts: Readonly<Record<KvType, string>> = {
  f16: "16 bits",
  bf16: "16 bits, larger range",
  q8_0: "8 bits (half the memory)",
  q5_1: "6 bits",
  q5_0: "5.5 bits (a third of the memory)",
  q4_1: "5 bits",
  q4_0: "4.5 bits (less than a third of the memory)",
  iq4_nl: "4.5 bits, uneven steps",
  f32: "32 bits (twice the memory)",
};

const keyTexts: Readonly<Record<KvType | "", string>> = {
  "": "as the server was started",
  ...kvTypeTexts,
};

const valueTexts: Readonly<Record<KvType | "", string>> = { "": "as the keys", ...kvTypeTexts };

const weightsTexts: Readonly<Record<Weights, string>> = {
  "": "as the server was started",
  f16: "F32 and BF16 as F16",
};

const gpuTexts = {
  layers: "some layers, or none",
  prompt: "prompts",
  generation: "answers, word by word",
  auto: "whichever it is faster at",
} as const;

type GpuChoice = keyof typeof gpuTexts;

/** "": the server's choice. */
type Weights = NonNullable<LoadOptions["weights"]> | "";

interface Props {
  name: string;
  /** Its last load options. */
  before: LoadOptions | undefined;
  /** Memory of the model if it is loaded now, which is freed first. */
  loadedBytes: number;
  onClose(): void;
}

export function ModelOptions({ name, before = {}, loadedBytes, onClose }: Props): JSX.Element {
  const [context, setContext] = useState(textOf(before.contextSize));
  const [threads, setThreads] = useState(textOf(before.threads));
  const [gpu, setGpu] = useState<GpuChoice>(before.gpuFor ?? "layers");
  const [layers, setLayers] = useState(textOf(before.gpuLayers));
  const { kvType: kvBefore } = before;
  const kvTypes = typeof kvBefore === "string" ? { k: kvBefore } : kvBefore;
  const [keyType, setKeyType] = useState<KvType | "">(kvTypes?.k ?? "");
  const [valueType, setValueType] = useState<KvType | "">(
    typeof kvBefore === "object" ? (kvBefore?.v ?? "") : "",
  );
  const [weights, setWeights] = useState<Weights>(before.weights ?? "");
  const contextSize = wholeNumber(context, 32);
  const kvType = kvTypeOf(keyType, valueType);
  const [plan, problem] = usePlan(name, contextSize, kvType, weights);
  const load = (): void => {
    const threadCount = wholeNumber(threads, 1);
    const gpuLayers = layers === "all" || layers === "auto" ? layers : wholeNumber(layers, 0);
    const options: LoadOptions = {
      kvType,
      weights: weights === "" ? null : weights,
      contextSize: contextSize ?? null,
      threads: threadCount ?? null,
      gpuFor: gpu === "layers" ? null : gpu,
      gpuLayers: gpu === "layers" ? (gpuLayers ?? null) : null,
    };
    void attempt(() => loadModel(name, options));
    onClose();
  };
  return (
    <Dialog title={`Load ${name}`} onClose={onClose}>
      <form
        class="settings"
        onSubmit={(event) => {
          event.preventDefault();
          load();
        }}
      >
        <Field
          label="Context, in tokens"
          hint={`How much text the model can read at once, answer included. ${plan ? `Trained for ${grouped(plan.trainedContext)}.` : ""} Empty: as many as memory has room for.`}
          value={context}
          onInput={setContext}
        />
        <Choice
          label="KV cache"
          hint="Bits per value of what the model keeps of the text."
          texts={keyTexts}
          value={keyType}
          onChange={(value) => setKeyType(value)}
        />
        {keyType !== "" && (
          <Choice
            label="Values in it"
            hint="Keys are compared, values are added up: values often bear fewer bits."
            texts={valueTexts}
            value={valueType}
            onChange={(value) => setValueType(value)}
          />
        )}
        <Choice
          label="Weights"
          hint="F16 takes half of F32’s memory. Matrices that it cannot hold keep their type."
          texts={weightsTexts}
          value={weights}
          onChange={(value) => setWeights(value)}
        />
        <Field
          label="Threads"
          hint="CPU cores that compute. Empty: all of them."
          value={threads}
          onInput={setThreads}
        />
        <Choice
          label="The GPU computes"
          hint="Prompts or answers alone need the memory of all layers on both sides."
          texts={gpuTexts}
          value={gpu}
          onChange={(value) => setGpu(value)}
        />
        {gpu === "layers" && (
          <Field
            label="Layers on the GPU"
            hint={`A number${plan ? ` up to ${plan.layers + 1}` : ""}, “all”, or “auto” for as many as fit. Empty: as the server was started.`}
            value={layers}
            onInput={setLayers}
          />
        )}
        <Memory plan={plan} problem={problem} loadedBytes={loadedBytes} />
        <div class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {loadedBytes > 0 ? "Load again" : "Load"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface FieldProps {
  label: string;
  hint: string;
  value: string;
  onInput(value: string): void;
}

function Field({ label, hint, value, onInput }: FieldProps): JSX.Element {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      <input
        value={value}
        inputMode="text"
        autoComplete="off"
        onInput={(event) => onInput(event.currentTarget.value.trim())}
      />
      <span class="hint">{hint}</span>
    </label>
  );
}

interface ChoiceProps<K extends string> {
  label: string;
  hint: string;
  texts: Readonly<Record<K, string>>;
  value: K;
  onChange(value: K): void;
}

function Choice<K extends string>(props: ChoiceProps<K>): JSX.Element {
  const { label, hint, texts, value, onChange } = props;
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as K)}>
        {Object.entries<string>(texts).map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
      <span class="hint">{hint}</span>
    </label>
  );
}

function textOf(value: number | string | null | undefined): string {
  return value === undefined || value === null ? "" : String(value);
}

/** null: the server's choice. */
function kvTypeOf(
  keys: KvType | "",
  values: KvType | "",
): NonNullable<LoadOptions["kvType"]> | null {
  if (keys === "") return null;
  return values === "" || values === keys ? keys : { k: keys, v: values };
}

/** undefined: empty, or not such a number. */
function wholeNumber(text: string, least: number): number | undefined {
  const value = Number(text.replaceAll(",", ""));
  return text !== "" && Number.isInteger(value) && value >= least ? value : undefined;
}

const waitMs = 250;

/** The memory that loading would take; requested again a moment after the last change. */
function usePlan(
  name: string,
  contextSize: number | undefined,
  kvType: LoadOptions["kvType"],
  weights: Weights,
): [LoadPlan | null, string | null] {
  const [plan, setPlan] = useState<LoadPlan | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    let isWanted = true;
    const ask = async (): Promise<void> => {
      try {
        const options = {
          kvType: kvType ?? null,
          weights: weights === "" ? null : weights,
          contextSize: contextSize ?? null,
        };
        const answer = await client.plan(name, options);
        if (!isWanted) return;
        setPlan(answer);
        setProblem(null);
      } catch (error) {
        if (isWanted) setProblem(sentence(error));
      }
    };
    const timer = setTimeout(() => void ask(), plan ? waitMs : 0);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [name, contextSize, JSON.stringify(kvType), weights]);
  return [plan, problem];
}

interface MemoryProps {
  plan: LoadPlan | null;
  problem: string | null;
  loadedBytes: number;
}

function Memory({ plan, problem, loadedBytes }: MemoryProps): JSX.Element | null {
  if (problem !== null) return <p class="ending">{problem}</p>;
  if (!plan) return null;
  const before = plan.freeMemoryBytes + loadedBytes;
  const after = before - plan.totalBytes;
  const rows: [string, string][] = [
    [loadedBytes > 0 ? "Free memory without it" : "Free memory now", bytesText(before)],
    ["Weights", bytesText(plan.weightBytes)],
    [`KV cache, one conversation of ${grouped(plan.contextSize)} tokens`, bytesText(plan.kvBytes)],
    ["Buffers", bytesText(plan.workBytes)],
    ["Free memory afterwards", after > 0 ? bytesText(after) : "none"],
  ];
  return (
    <div class="plan">
      <table>
        <tbody>
          {rows.map(([what, bytes]) => (
            <tr key={what}>
              <th scope="row">{what}</th>
              <td class="number">{bytes}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {after <= 0 && (
        <p class="ending">
          It does not fit in this machine’s memory: {bytesText(-after)} more are needed. Use a
          smaller context, 8 bits for the KV cache, or a smaller model.
        </p>
      )}
    </div>
  );
}
