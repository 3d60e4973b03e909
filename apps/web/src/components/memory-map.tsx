// The memory of a loaded model: one bar, in parts, and the same as a list.

import type { JSX } from "preact";
import type { MachineModel } from "../api-types.ts";
import { bytesText, countText, digits } from "../state/format.ts";

interface Part {
  name: string;
  bytes: number;
  note: string;
}

/** The same part has the same colour for every model. */
const hues: Readonly<Record<string, number>> = {
  embedding: 0,
  "feed forward": 1,
  attention: 2,
  output: 3,
  norms: 4,
  "KV cache": 5,
  activations: 6,
};

function hueOf(name: string): string {
  return `hue-${hues[name] ?? 7}`;
}

export function MemoryMap({ model }: { model: MachineModel }): JSX.Element {
  const { info, memory } = model;
  const { weights, kvBytes, activationBytes } = memory;
  const parts: Part[] = [
    ...weights.map(({ part, bytes }) => ({ name: part, bytes, note: "weights" })),
    {
      name: "KV cache",
      bytes: kvBytes,
      note: `${bytesText(info.kvBytesPerToken)} for each token; grows to at most ${bytesText(info.stateBytes)}`,
    },
    ...(activationBytes === null
      ? []
      : [{ name: "activations", bytes: activationBytes, note: "activations" }]),
  ];
  const total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  let x = 0;
  return (
    <div class="memory">
      <p class="row between wrap">
        <b>{model.id}</b>
        <span class="hint">
          {countText(info.parameters)} parameters, {info.weightType}, {info.layers} layers,{" "}
          {info.backend.name} on {info.backend.threads} thread
          {info.backend.threads === 1 ? "" : "s"}
        </span>
      </p>
      <svg
        class="memory-bar"
        viewBox="0 0 1000 28"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Memory of ${model.id}: ${bytesText(total)}`}
      >
        {parts.map(({ name, bytes }) => {
          const width = (bytes / total) * 1000;
          const from = x;
          x += width;
          return (
            <rect
              key={name}
              class={hueOf(name)}
              x={from}
              width={Math.max(0, width - 1)}
              height="28"
            />
          );
        })}
      </svg>
      <ul class="memory-legend">
        {parts.map(({ name, bytes, note }) => (
          <li key={name}>
            <span class={`swatch ${hueOf(name)}`} />
            <span>
              {name} <b>{bytesText(bytes)}</b>
            </span>
            <span class="hint">
              {digits((bytes / total) * 100)}% · {note}
            </span>
          </li>
        ))}
      </ul>
      <p class="hint">{bytesText(total)} in all</p>
      <Notes notes={info.backend.notes} />
    </div>
  );
}

/** The backend's notes. */
function Notes({ notes }: { notes: readonly string[] }): JSX.Element | null {
  const parts = partsOf(notes);
  if (parts.length === 0) return null;
  return (
    <details>
      <summary>Which kernels are used, and why</summary>
      <ul class="plain">
        {parts.map(([head, ...lines]) => (
          <li key={head}>
            {head}
            {lines.length > 0 && (
              <ul class="plain hint">
                {lines.map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Indented lines belong to the one above them. */
function partsOf(notes: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (const note of notes) {
    if (note.startsWith(" ") && parts.length > 0) parts.at(-1)!.push(note.trim());
    else parts.push([note]);
  }
  return parts;
}
