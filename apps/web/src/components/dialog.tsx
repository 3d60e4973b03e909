// A modal dialog, from the browser's own <dialog>: it keeps the focus inside and closes with Escape.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "./icon.tsx";
import { Notices } from "./notices.tsx";

interface Props {
  title: string;
  /** "side": along the right edge, for settings. */
  place?: "middle" | "side";
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog({ title, place = "middle", onClose, children }: Props): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, by the browser's own doing
    <dialog
      ref={dialog}
      class={place}
      aria-label={title}
      onClose={onClose}
      onCancel={(event) => event.stopPropagation()}
      onClick={(event) => {
        if (event.target === dialog.current) onClose(); // a click outside
      }}
    >
      <div class="dialog-body">
        <header class="row between">
          <h2>{title}</h2>
          <button type="button" class="quiet" onClick={onClose} aria-label="Close">
            <Icon name="close" />
          </button>
        </header>
        <Notices />
        {children}
      </div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  text: string;
  action: string;
  onConfirm(): void;
  onClose(): void;
}

export function Confirm({ title, text, action, onConfirm, onClose }: ConfirmProps): JSX.Element {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <div class="row end">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          class="primary"
          onClick={() => {
            onConfirm();
            onClose();
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
