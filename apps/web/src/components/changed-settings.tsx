// The settings of a conversation that are not the usual ones, each with an x that undoes it: nothing applies unseen.

import type { JSX } from "preact";
import { generationTable } from "../../../../src/options/generation.ts";
import { type SamplingNumber, samplingNumbers } from "../../../../src/options/sampling.ts";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { digits } from "../state/format.ts";
import { changedSettings } from "../state/use-settings.ts";
import { Icon } from "./icon.tsx";

type Name = keyof SessionSettings;

const samplingLabels = Object.fromEntries(
  Object.entries(samplingNumbers).map(([name, { label }]) => [name, label]),
) as Record<SamplingNumber, string>;

const labels: Readonly<Record<Name, string>> = {
  systemPrompt: "System prompt",
  ...samplingLabels,
  maxTokens: generationTable.maxTokens.label,
  stop: generationTable.stop.label,
  thinking: "Reasoning",
  tools: "Tools",
  schema: "JSON schema",
  window: "Only the latest messages are read",
  summary: "Summary",
};

interface Props {
  mode: "chat" | "story";
  settings: SessionSettings;
  /** Shown elsewhere. */
  without: readonly Name[];
  onChange(change: SettingsChange): void;
}

export function ChangedSettings({ mode, settings, without, onChange }: Props): JSX.Element {
  const shown = changedSettings(mode, settings).filter(({ name }) => !without.includes(name));
  return (
    <>
      {shown.map(({ name, value, undo }) => (
        <span class="chip removable" key={name}>
          {labels[name]}
          {valueText(value)}
          <Undo what={labels[name]} onClick={() => onChange(undo)} />
        </span>
      ))}
    </>
  );
}

export function Undo({ what, onClick }: { what: string; onClick(): void }): JSX.Element {
  return (
    <button
      type="button"
      class="quiet"
      aria-label={`Remove: ${what}`}
      title={`Remove: ${what}`}
      onClick={onClick}
    >
      <Icon name="close" />
    </button>
  );
}

function valueText(value: SessionSettings[Name]): string {
  if (value === undefined) return ": default";
  if (typeof value === "number") return `: ${digits(value)}`;
  if (value === true) return "";
  return typeof value === "boolean" ? `: ${value ? "on" : "off"}` : "";
}
