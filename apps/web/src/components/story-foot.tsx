// The controls below a story: continue, alternatives, undo and redo, temperature and length of a continuation; and its
// speed.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Message, SessionSettings, SettingsChange } from "../api-types.ts";
import { digits, grouped } from "../state/format.ts";
import type { LiveAnswer } from "../state/live.ts";
import { ChangedSettings } from "./changed-settings.tsx";
import { ContextMeter } from "./context-meter.tsx";
import { Gauge } from "./gauge.tsx";
import { Icon } from "./icon.tsx";

interface Props {
  path: readonly Message[];
  live: ReadonlyMap<string, LiveAnswer>;
  /** The last answer was empty. */
  silent: boolean;
  contextSize: number | undefined;
  settings: SessionSettings;
  busy: boolean;
  canGoOn: boolean;
  canUndo: boolean;
  canRedo: boolean;
  onContinue(count: number): void;
  onStop(): void;
  onUndo(): void;
  onRedo(): void;
  onSettings(change: SettingsChange): void;
}

export function StoryFoot(props: Props): JSX.Element {
  const { path, live, settings, busy, canGoOn, canUndo, canRedo, onSettings } = props;
  const [count, setCount] = useState(3);
  const answer = path.findLast(({ role }) => role === "assistant");
  const outgrown = path.filter(({ tokens }) => (tokens?.dropped ?? 0) > 0);
  // Shown once; after that only the meter shows it.
  const isNew = outgrown.length === 1 && outgrown[0] === answer;
  return (
    <div class="foot story-foot">
      <div class="row wrap story-controls">
        {busy ? (
          <button type="button" class="primary" onClick={props.onStop} title="Escape">
            <Icon name="stop" /> Stop
          </button>
        ) : (
          <button
            type="button"
            class="primary"
            disabled={!canGoOn}
            onClick={() => props.onContinue(1)}
            aria-keyshortcuts="C"
            title="Continue (Ctrl+Enter)"
          >
            <Icon name="story" /> Continue
          </button>
        )}
        <span class="joined">
          <button
            type="button"
            disabled={busy || !canGoOn}
            aria-keyshortcuts="A"
            onClick={() => props.onContinue(count)}
          >
            <Icon name="fork" /> {count} alternatives
          </button>
          <select
            aria-label="How many alternatives"
            value={count}
            onChange={(event) => setCount(Number(event.currentTarget.value))}
          >
            {[2, 3, 4].map((number) => (
              <option key={number}>{number}</option>
            ))}
          </select>
        </span>
        <button
          type="button"
          class="quiet"
          disabled={!canUndo}
          onClick={props.onUndo}
          aria-label="Undo"
          aria-keyshortcuts="U"
          title="Undo (U)"
        >
          <Icon name="undo" />
        </button>
        <button
          type="button"
          class="quiet"
          disabled={!canRedo}
          onClick={props.onRedo}
          aria-label="Redo"
          aria-keyshortcuts="Shift+U"
          title="Redo (Shift+U)"
        >
          <Icon name="redo" />
        </button>
        <span class="sliders">
          <Slider
            label="Temperature"
            why="Low: the most likely tokens. High: more variety."
            min={0}
            max={2}
            step={0.05}
            value={settings.temperature ?? 0.8}
            onInput={(temperature) => onSettings({ temperature })}
          />
          <Slider
            label="Length"
            why="How many tokens the model writes at a time"
            min={10}
            max={400}
            step={10}
            value={settings.maxTokens ?? 80}
            onInput={(maxTokens) => onSettings({ maxTokens })}
          />
        </span>
        <ChangedSettings
          mode="story"
          settings={settings}
          without={["temperature", "maxTokens"]}
          onChange={onSettings}
        />
      </div>
      {props.silent && (
        <p class="hint said" role="status">
          The model ended the story here. Continue it yourself, or undo and try again.
        </p>
      )}
      {isNew && (
        <p class="hint said" role="status">
          The story is now longer than this model's context
          {props.contextSize !== undefined && ` (${grouped(props.contextSize)} tokens)`}. You can go
          on: the model reads the beginning and the latest part. Your text is kept in full.
        </p>
      )}
      <div class="row between wrap">
        {answer ? <Gauge message={answer} live={live.get(answer.id)} /> : <span />}
        {!isNew && (
          <ContextMeter
            path={path}
            contextSize={props.contextSize}
            slides="the beginning and the latest part"
            hint="Ctrl+Enter continues, Escape stops"
          />
        )}
      </div>
    </div>
  );
}

interface SliderProps {
  label: string;
  why: string;
  min: number;
  max: number;
  step: number;
  value: number;
  onInput(value: number): void;
}

function Slider({ label, why, min, max, step, value, onInput }: SliderProps): JSX.Element {
  return (
    <label class="slider" title={why}>
      <span>
        {label} <b>{digits(value)}</b>
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        onInput={(event) => onInput(Number(event.currentTarget.value))}
      />
    </label>
  );
}
