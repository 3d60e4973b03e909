// Where a person writes: Enter sends, Shift+Enter is a new line, the button stops an answer that is being written. Grows
// with its text.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icon.tsx";

interface Props {
  placeholder: string;
  busy: boolean;
  disabled: boolean;
  /** false: it was not taken, so it stays. */
  onSend(text: string): Promise<boolean>;
  onStop(): void;
}

export function Composer({ placeholder, busy, disabled, onSend, onStop }: Props): JSX.Element {
  const [text, setText] = useState("");
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) area.current?.focus(); // no keyboard pops up on a phone
  }, []);
  const send = async (): Promise<void> => {
    const wanted = text.trim();
    if (wanted === "" || busy || disabled) return;
    setText("");
    if (!(await onSend(wanted))) setText((now) => (now === "" ? wanted : now));
    area.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea
        ref={area}
        rows={1}
        aria-label="Message"
        placeholder={placeholder}
        value={text}
        disabled={disabled}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {busy ? (
        <button
          type="button"
          class="round"
          onClick={onStop}
          aria-label="Stop"
          title="Stop (Escape)"
        >
          <Icon name="stop" />
        </button>
      ) : (
        <button
          type="submit"
          class="round primary"
          disabled={disabled || text.trim() === ""}
          aria-label="Send"
          title="Send (Enter)"
        >
          <Icon name="send" />
        </button>
      )}
    </form>
  );
}
