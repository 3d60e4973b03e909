// The summary of the chat before this one: the model reads it first, and it can be changed.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { EditBox } from "./edit-box.tsx";

interface Props {
  text: string;
  /** null: it is removed. */
  onChange(text: string | null): void;
}

export function SummaryCard({ text, onChange }: Props): JSX.Element {
  const [editing, setEditing] = useState(false);
  return (
    <section class="card notice-card" aria-label="Summary of the earlier chat">
      <h2>Summary of the earlier chat</h2>
      {editing ? (
        <EditBox
          text={text}
          label="Edit the summary"
          action="Save"
          onCancel={() => setEditing(false)}
          onDone={(now) => {
            setEditing(false);
            onChange(now);
          }}
        />
      ) : (
        <>
          <p dir="auto">{text}</p>
          <div class="row wrap">
            <button type="button" onClick={() => setEditing(true)}>
              Edit
            </button>
            <button type="button" onClick={() => onChange(null)}>
              Remove
            </button>
          </div>
        </>
      )}
      <p class="hint">The model wrote it, and reads it before the first message.</p>
    </section>
  );
}
