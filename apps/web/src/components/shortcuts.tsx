// Keyboard shortcuts for buttons. A button or box declares its key (aria-keyshortcuts), and the key presses the one on
// the current page, so that actions are defined once. Keys are single letters, so they work only outside text boxes,
// and can be switched off.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { lastOpen } from "../state/places.ts";
import { prefer, preferences } from "../state/preferences.ts";
import { go, pages } from "../state/route.ts";
import { useStore } from "../state/store.ts";
import { Dialog } from "./dialog.tsx";

interface Shortcut {
  keys: readonly string[];
  what: string;
}

/** Keys of text boxes and of the browser, which always work. */
const always: readonly Shortcut[] = [
  { keys: ["Enter"], what: "Send the message" },
  { keys: ["Shift+Enter"], what: "New line in a message" },
  { keys: ["Ctrl+Enter"], what: "Continue the story; keep an edited text" },
  { keys: ["Escape"], what: "Stop the answer; leave a text box; close a dialog" },
];

const letters: readonly Shortcut[] = [
  { keys: ["?"], what: "This list" },
  { keys: ["/"], what: "Search the conversations" },
  { keys: ["N"], what: "New chat, or new story" },
  { keys: ["M"], what: "Go to the text box" },
  { keys: ["C"], what: "Continue the story, or an answer that was cut off" },
  { keys: ["R"], what: "Answer again" },
  { keys: ["E"], what: "Edit your last message" },
  { keys: ["A"], what: "Story: alternatives" },
  { keys: ["U"], what: "Story: undo" },
  { keys: ["Shift+U"], what: "Story: redo" },
  { keys: ["S"], what: "Settings of this chat or story" },
  { keys: ["T"], what: "Chat: tools" },
  { keys: ["J"], what: "Chat: answer as JSON" },
  { keys: ["1", "…", String(pages.length)], what: "Go to a page, in the order of the menu" },
];

/** Listens for the keys; `onList` shows them. */
export function useShortcuts(onList: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const box = isTextBox(event.target);
      if (event.key === "Escape" && box) leave(event.target as HTMLElement);
      const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
      if (box || hasModifier || event.isComposing || !preferences.value.shortcuts) return;
      if (document.querySelector("dialog[open]")) return;
      if (!press(event, onList)) return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [onList]);
}

/** true: the key was handled. */
function press({ key, shiftKey }: KeyboardEvent, onList: () => void): boolean {
  if (key === "?") {
    onList();
    return true;
  }
  const page = pages[Number(key) - 1];
  if (/^\d$/.test(key) && page) {
    go(page, page === "chat" || page === "story" ? lastOpen.value[page] : null);
    return true;
  }
  const isLetter = /^\p{L}$/u.test(key);
  const name = isLetter ? `${shiftKey ? "Shift+" : ""}${key.toUpperCase()}` : key;
  const found = [
    ...document.querySelectorAll<HTMLElement>(`[aria-keyshortcuts="${CSS.escape(name)}"]`),
  ].findLast((element) => element.checkVisibility() && !element.matches(":disabled"));
  if (!found) return false;
  if (isTextBox(found)) found.focus();
  else found.click();
  return true;
}

function isTextBox(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && target.matches("textarea, select, input:not([type=range])")
  );
}

function leave(target: HTMLElement): void {
  // Escape first stops an answer, and closes dialogs.
  if (!target.closest("dialog") && !document.querySelector("[data-writing]")) target.blur();
}

export function ShortcutList({ onClose }: { onClose(): void }): JSX.Element {
  const isOn = useStore(preferences, (now) => now.shortcuts);
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <Keys shortcuts={always} />
      <h3>Outside text boxes</h3>
      <Keys shortcuts={letters} />
      <label class="check">
        <input
          type="checkbox"
          checked={isOn}
          onChange={(event) => prefer({ shortcuts: event.currentTarget.checked })}
        />
        Use the keys outside text boxes
      </label>
    </Dialog>
  );
}

function Keys({ shortcuts }: { shortcuts: readonly Shortcut[] }): JSX.Element {
  return (
    <dl class="shortcuts">
      {shortcuts.map(({ keys, what }) => (
        <div key={what}>
          <dt>{keys.map((key) => (key === "…" ? " to " : <kbd key={key}>{key}</kbd>))}</dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}
