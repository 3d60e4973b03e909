// The sampling settings, each with one sentence on its effect. A setting that was never changed uses the server's
// default; "default" restores it.

import type { JSX } from "preact";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { digits } from "../state/format.ts";
import { PresetPicker } from "./preset-picker.tsx";

type NumberName = {
  [Name in keyof SessionSettings]-?: NonNullable<SessionSettings[Name]> extends number
    ? Name
    : never;
}[keyof SessionSettings];

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

const settings: readonly Setting[] = [
  {
    name: "temperature",
    label: "Temperature",
    why: "Low: the most likely tokens. High: more variety, and more mistakes. 0: always the same answer.",
    min: 0,
    max: 2,
    step: 0.05,
    usual: 0.8,
  },
  {
    name: "topP",
    label: "Top-p",
    why: "Keep the most likely tokens whose probabilities add up to this.",
    min: 0.05,
    max: 1,
    step: 0.05,
    usual: 0.95,
  },
  {
    name: "topK",
    label: "Top-k",
    why: "Keep this many of the most likely tokens; 0: all of them.",
    min: 0,
    max: 200,
    step: 1,
    usual: 40,
  },
  {
    name: "minP",
    label: "Min-p",
    why: "Drop tokens whose probability is below this fraction of the highest one.",
    min: 0,
    max: 0.5,
    step: 0.01,
    usual: 0.05,
  },
  {
    name: "repeatPenalty",
    label: "Repeat penalty",
    why: "Above 1, recent tokens become less likely; too much makes the text odd.",
    min: 1,
    max: 2,
    step: 0.05,
    usual: 1,
  },
  {
    name: "maxTokens",
    label: "Longest answer",
    why: "In tokens, which are pieces of words. The answer stops there.",
    min: 16,
    max: 4096,
    step: 16,
    usual: 4096,
  },
];

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
