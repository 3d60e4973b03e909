// The line above a conversation: its title, its model, and actions on the whole conversation.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { OpenSession } from "../api-types.ts";
import { CarryDialog } from "./carry-dialog.tsx";
import { Icon } from "./icon.tsx";
import { ModelPicker } from "./model-picker.tsx";
import { PrivateSwitch } from "./private-switch.tsx";

interface Props {
  session: OpenSession | null;
  /** Shown while there is no session. */
  fallback: string;
  model: string | null;
  busy: boolean;
  onModel(model: string): void;
  onSettings(): void;
}

export function PageHead({
  session,
  fallback,
  model,
  busy,
  onModel,
  onSettings,
}: Props): JSX.Element {
  const [carrying, setCarrying] = useState(false);
  return (
    <header class="page-head" data-writing={busy ? "" : undefined}>
      <h1 title={session?.title} dir="auto">
        {session?.title || fallback}
      </h1>
      <PrivateSwitch session={session} />
      <ModelPicker model={model} disabled={busy} onPick={onModel} />
      <button
        type="button"
        class="quiet"
        onClick={onSettings}
        aria-label="Settings"
        aria-keyshortcuts="S"
        title="Settings (S)"
      >
        <Icon name="sliders" />
      </button>
      <button
        type="button"
        class="quiet"
        onClick={() => setCarrying(true)}
        aria-label="Export and import"
        title="Export and import"
      >
        <Icon name="download" />
      </button>
      {carrying && <CarryDialog session={session} onClose={() => setCarrying(false)} />}
    </header>
  );
}
