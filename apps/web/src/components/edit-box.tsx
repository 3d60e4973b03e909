// A text box for editing, with save and cancel. Escape cancels, Ctrl+Enter (or Enter in one line) saves.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  text: string;
  label: string;
  action: string;
  onDone(text: string): void;
  onCancel(): void;
}

export function EditBox({ text, label, action, onDone, onCancel }: Props): JSX.Element {
  const [now, setNow] = useState(text);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, [text]);
  const done = (): void => {
    if (now.trim() !== "") onDone(now);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) done();
  };
  return (
    <div class="edit-box">
      <textarea
        ref={area}
        aria-label={label}
        value={now}
        onInput={(event) => setNow(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="row end">
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" class="primary" disabled={now.trim() === ""} onClick={done}>
          {action}
        </button>
      </div>
    </div>
  );
}
