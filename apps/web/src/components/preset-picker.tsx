// Presets: choose, save, delete.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { attempt, notify } from "../state/notices.ts";
import {
  changeTo,
  deletePreset,
  loadPresets,
  presetOf,
  presets,
  savePreset,
} from "../state/presets.ts";
import { useStore } from "../state/store.ts";

interface Props {
  settings: SessionSettings;
  onChange(change: SettingsChange): void;
}

export function PresetPicker({ settings, onChange }: Props): JSX.Element {
  const all = useStore(presets);
  const [name, setName] = useState<string | null>(null);
  // A server without sessions has none.
  useEffect(() => void loadPresets().catch(() => {}), []);
  const chosen = presetOf(all, settings);
  const pick = (wanted: string): void => {
    const preset = all.find((one) => one.name === wanted);
    if (preset) onChange(changeTo(preset, settings));
  };
  const save = (): void => {
    const wanted = name?.trim() ?? "";
    if (wanted === "") return;
    void attempt(async () => {
      await savePreset(wanted, settings);
      setName(null);
      notify(`Saved as “${wanted}”.`);
    });
  };
  return (
    <div class="field presets">
      <label class="field-label" for="preset">
        Preset
      </label>
      <select
        id="preset"
        value={chosen?.name ?? ""}
        disabled={all.length === 0}
        onChange={(event) => pick(event.currentTarget.value)}
      >
        <option value="">{all.length === 0 ? "None saved yet" : "Custom settings"}</option>
        {all.map((preset) => (
          <option key={preset.name}>{preset.name}</option>
        ))}
      </select>
      {name === null ? (
        <div class="row wrap">
          <button type="button" onClick={() => setName(chosen?.name ?? "")}>
            Save these settings…
          </button>
          {chosen && (
            <button type="button" onClick={() => void attempt(() => deletePreset(chosen.name))}>
              Delete “{chosen.name}”
            </button>
          )}
        </div>
      ) : (
        <form
          class="row wrap"
          onSubmit={(event) => {
            event.preventDefault();
            save();
          }}
        >
          <input
            class="grow"
            aria-label="Name of the preset"
            placeholder="Name"
            maxLength={100}
            value={name}
            // It replaces the button that was pressed.
            autofocus
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button type="submit" class="primary" disabled={name.trim() === ""}>
            {all.some((preset) => preset.name === name.trim()) ? "Replace" : "Save"}
          </button>
          <button type="button" onClick={() => setName(null)}>
            Cancel
          </button>
        </form>
      )}
      <span class="hint">
        A preset holds the settings below, including the system prompt, for any chat or story.
      </span>
    </div>
  );
}
