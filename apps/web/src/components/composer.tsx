// The input box: Enter sends, Shift+Enter is a new line, the button stops a running answer. Text files are attached
// with a button, by dropping or by pasting. The text is a draft until it is sent, and can be edited while an answer is
// written.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Attachment, readAttachment, withAttachments } from "../state/attachments.ts";
import { draftOf, setDraft, useDraft } from "../state/drafts.ts";
import { notify } from "../state/notices.ts";
import { Icon } from "./icon.tsx";

/** Files may be dropped anywhere on the page: outside the box, the browser would navigate to them. */
function useDrop(show: (isOver: boolean) => void, take: (files: FileList) => Promise<void>): void {
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const onDrag = (event: DragEvent): void => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      show(event.type === "dragover");
      if (event.type === "drop") void latest.current(event.dataTransfer.files);
    };
    const names = ["dragover", "dragleave", "drop"] as const;
    for (const name of names) addEventListener(name, onDrag);
    return () => {
      for (const name of names) removeEventListener(name, onDrag);
    };
  }, [show]);
}

interface Props {
  /** The key of the draft. */
  draft: string;
  placeholder: string;
  busy: boolean;
  disabled: boolean;
  /** false: it was not accepted, so the draft stays. */
  onSend(text: string): Promise<boolean>;
  onStop(): void;
}

export function Composer(props: Props): JSX.Element {
  const { draft: key, placeholder, busy, disabled, onSend, onStop } = props;
  const { text, files } = useDraft(key);
  const [dropping, setDropping] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const latest = useRef(key);
  latest.current = key;
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) area.current?.focus(); // not on a phone, where the keyboard would pop up
  }, []);
  const isEmpty = text.trim() === "" && files.length === 0;
  const send = async (): Promise<void> => {
    if (isEmpty || busy || disabled) return;
    setDraft(key, { text: "", files: [] });
    if (!(await onSend(withAttachments(text.trim(), files)))) {
      // It may have been edited meanwhile.
      const now = draftOf(key);
      setDraft(key, {
        text: now.text === "" ? text : `${text}\n${now.text}`,
        files: [...files, ...now.files],
      });
    }
    area.current?.focus();
  };
  const attach = async (chosen: FileList | readonly File[] | null | undefined): Promise<void> => {
    const read = await Promise.all([...(chosen ?? [])].map(readAttachment));
    for (const problem of read.filter((one) => typeof one === "string")) notify(problem, "error");
    const added = read.filter((one): one is Attachment => typeof one !== "string");
    const now = latest.current;
    if (added.length > 0) setDraft(now, { files: [...draftOf(now).files, ...added] });
    area.current?.focus();
  };
  useDrop(setDropping, attach);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form
      class={`composer ${dropping ? "dropping" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {files.length > 0 && (
        <ul class="attachments" aria-label="Attached files">
          {files.map(({ name }, at) => (
            <li key={`${at} ${name}`}>
              <Icon name="file" /> <span class="file-name">{name}</span>
              <button
                type="button"
                class="quiet"
                aria-label={`Remove ${name}`}
                title="Remove"
                onClick={() => setDraft(key, { files: files.filter((_, other) => other !== at) })}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        aria-label="Text files"
        onChange={(event) => {
          const input = event.currentTarget;
          void attach([...(input.files ?? [])]);
          input.value = ""; // so that the same file can be chosen again
        }}
      />
      <button
        type="button"
        class="round quiet"
        disabled={disabled}
        aria-label="Attach text files"
        title="Attach text files"
        onClick={() => picker.current?.click()}
      >
        <Icon name="clip" />
      </button>
      <textarea
        ref={area}
        rows={1}
        dir="auto"
        aria-label="Message"
        aria-keyshortcuts="M"
        placeholder={placeholder}
        value={text}
        disabled={disabled}
        onInput={(event) => setDraft(key, { text: event.currentTarget.value })}
        onKeyDown={onKeyDown}
        onPaste={(event) => {
          const pasted = event.clipboardData?.files;
          if (!pasted || pasted.length === 0) return;
          event.preventDefault();
          void attach(pasted);
        }}
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
          disabled={disabled || isEmpty}
          aria-label="Send"
          title="Send (Enter)"
        >
          <Icon name="send" />
        </button>
      )}
    </form>
  );
}
