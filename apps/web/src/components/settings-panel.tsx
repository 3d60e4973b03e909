// The sampling settings, each with one sentence on its effect. A setting that was never changed uses the server's
// default; "default" restores it.

import type { JSX } from "preact";
import { generationTable } from "../../../../src/options/generation.ts";
import type { NumberRow } from "../../../../src/options/row.ts";
import { type SamplingNumber, samplingNumbers } from "../../../../src/options/sampling.ts";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { digits } from "../state/format.ts";
import { PresetPicker } from "./preset-picker.tsx";

type NumberName = SamplingNumber | "maxTokens";

interface Setting {
  name: NumberName;
  label: string;
  why: string;
  min: number;
  max: number;
  step: number;
  /** The engine's default. */
  usual: number;
}

const rows: Readonly<Record<NumberName, NumberRow>> = {
  ...samplingNumbers,
  maxTokens: generationTable.maxTokens,
};

const settings: readonly Setting[] = Object.entries(rows).flatMap(([name, row]) => {
  const { label, slider, default: usual } = row;
  if (slider === undefined) return [];
  return [{ name: name as NumberName, label, ...slider, usual: usual ?? slider.max }];
});

export function sliderOf(name: NumberName): Setting {
  return settings.find((setting) => setting.name === name)!;
}

interface Props {
  settings: SessionSettings;
  /** A chat has a system prompt; a story has none. */
  withSystem: boolean;
  onChange(change: SettingsChange): void;
}

export function SettingsPanel({ settings: now, withSystem, onChange }: Props): JSX.Element {
  return (
    <div class="settings">
      <PresetPicker settings={now} onChange={onChange} />
      {withSystem && (
        <label class="field">
          <span class="field-label">System prompt</span>
          <textarea
            rows={4}
            placeholder="You are a helpful assistant."
            value={now.systemPrompt ?? ""}
            dir="auto"
            // On every input: Escape closes the dialog without a "change" event.
            onInput={(event) => onChange({ systemPrompt: event.currentTarget.value || null })}
          />
          <span class="hint">Sent to the model before the first message.</span>
        </label>
      )}
      {withSystem && (
        <label class="field">
          <span class="field-label">Reasoning</span>
          <select
            value={now.thinking === undefined ? "" : now.thinking ? "yes" : "no"}
            onChange={({ currentTarget: { value } }) =>
              onChange({ thinking: value === "" ? null : value === "yes" })
            }
          >
            <option value="">As the model is used to</option>
            <option value="yes">Think first</option>
            <option value="no">Answer at once</option>
          </select>
          <span class="hint">For models that can do both.</span>
        </label>
      )}
      {settings.map((setting) => (
        <SettingSlider
          key={setting.name}
          setting={setting}
          value={now[setting.name]}
          onChange={onChange}
        />
      ))}
      <label class="field">
        <span class="field-label">Seed</span>
        <input
          type="number"
          min="0"
          placeholder="random"
          value={now.seed ?? ""}
          onInput={(event) => {
            const { value } = event.currentTarget;
            onChange({ seed: value === "" ? null : Math.max(0, Math.floor(Number(value))) });
          }}
        />
        <span class="hint">The same seed gives the same answer to the same text.</span>
      </label>
    </div>
  );
}

interface SliderProps {
  setting: Setting;
  value: number | undefined;
  onChange(change: SettingsChange): void;
}

export function SettingSlider({ setting, value, onChange }: SliderProps): JSX.Element {
  const { name, label, why, min, max, step, usual } = setting;
  const id = `setting-${name}`;
  return (
    <div class="field">
      <div class="row between">
        <label class="field-label" for={id}>
          {label}
        </label>
        {value === undefined ? (
          <span class="value">{name === "maxTokens" ? "no limit" : digits(usual)}</span>
        ) : (
          <span class="value">
            <b>{digits(value)}</b>{" "}
            <button type="button" class="link" onClick={() => onChange({ [name]: null })}>
              default
            </button>
          </span>
        )}
      </div>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value ?? usual}
        aria-describedby={`${id}-why`}
        onInput={(event) => onChange({ [name]: Number(event.currentTarget.value) })}
      />
      <span class="hint" id={`${id}-why`}>
        {why}
      </span>
    </div>
  );
}
