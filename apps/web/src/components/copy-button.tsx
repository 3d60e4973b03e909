// Copies a text and confirms it for a moment. Without access to the clipboard (a page without HTTPS on another
// machine), it falls back to a selection.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "./icon.tsx";

const shownMs = 1500;

export function CopyButton({ text, label }: { text: string; label: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text).catch(() => copyBySelection(text));
    setCopied(true);
    setTimeout(() => setCopied(false), shownMs);
  };
  return (
    <button type="button" class="quiet" onClick={() => void copy()} title={label}>
      <Icon name={copied ? "check" : "copy"} />
      <span class={copied ? "" : "visually-hidden"}>{copied ? "Copied" : label}</span>
    </button>
  );
}

function copyBySelection(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
