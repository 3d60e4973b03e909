// What a writer has at hand below a story: continue, alternatives, undo and redo, the temperature and how much the model
// writes at a time; and how fast it does.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Message, SessionSettings, SettingsChange } from "../api-types.ts";
import { digits } from "../state/format.ts";
import type { LiveAnswer } from "../state/live.ts";
import { ContextMeter } from "./context-meter.tsx";
import { Gauge } from "./gauge.tsx";
import { Icon } from "./icon.tsx";

interface Props {
  path: readonly Message[];
  live: ReadonlyMap<string, LiveAnswer>;
  contextSize: number | undefined;
  settings: SessionSettings;
  busy: boolean;
  canGoOn: boolean;
  canUndo: boolean;
  canRedo: boolean;
  onGoOn(count: number): void;
  onStop(): void;
  onUndo(): void;
  onRedo(): void;
  onSettings(change: SettingsChange): void;
}

export function StoryFoot(props: Props): JSX.Element {
  const { path, live, settings, busy, canGoOn, canUndo, canRedo, onSettings } = props;
  const [count, setCount] = useState(3);
  const answer = path.findLast(({ role }) => role === "assistant");
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
            onClick={() => props.onGoOn(1)}
            title="Ctrl+Enter"
          >
            <Icon name="story" /> Continue
          </button>
        )}
        <span class="joined">
          <button type="button" disabled={busy || !canGoOn} onClick={() => props.onGoOn(count)}>
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
          title="Undo"
        >
          <Icon name="undo" />
        </button>
        <button
          type="button"
          class="quiet"
          disabled={!canRedo}
          onClick={props.onRedo}
          aria-label="Redo"
          title="Redo"
        >
          <Icon name="redo" />
        </button>
        <span class="sliders">
          <Slider
            label="Temperature"
            why="Low: the likeliest words. High: more surprise."
            min={0}
            max={2}
            step={0.05}
            value={settings.temperature ?? 0.8}
            onInput={(temperature) => onSettings({ temperature })}
          />
          <Slider
            label="Length"
            why="Tokens that the model writes at a time"
            min={10}
            max={400}
            step={10}
            value={settings.maxTokens ?? 80}
            onInput={(maxTokens) => onSettings({ maxTokens })}
          />
        </span>
      </div>
      <div class="row between wrap">
        {answer && saidNothing(answer) && (
          <p class="hint">The model ended here: it had nothing to add.</p>
        )}
        {answer ? <Gauge message={answer} live={live.get(answer.id)} /> : <span />}
        <ContextMeter
          path={path}
          contextSize={props.contextSize}
          hint="Ctrl+Enter continues, Escape stops"
        />
      </div>
    </div>
  );
}

function saidNothing({ state, stopReason, content }: Message): boolean {
  return state === "complete" && stopReason === "end" && content === "";
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
