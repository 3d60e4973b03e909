// Notices of failures and results, as lines above the page: they push it down and cover nothing. A dialog is in front
// of the page, so it shows them, too.

import type { JSX } from "preact";
import { dismiss, notices } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { Icon } from "./icon.tsx";

export function Notices(): JSX.Element {
  const shown = useStore(notices);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map(({ id, text, kind }) => (
        <p key={id} class={`notice ${kind}`}>
          <span>{text}</span>
          <button type="button" class="quiet" aria-label="Close" onClick={() => dismiss(id)}>
            <Icon name="close" />
          </button>
        </p>
      ))}
    </div>
  );
}
