// The line above a conversation: its title, its model, and what can be done with it as a whole.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ExportFormat } from "../api.ts";
import type { OpenSession } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { attempt, notify } from "../state/notices.ts";
import { go } from "../state/route.ts";
import { refreshSessions } from "../state/sessions.ts";
import { Dialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { ModelPicker } from "./model-picker.tsx";

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
    <header class="page-head">
      <h1 title={session?.title}>{session ? session.title || "Untitled" : fallback}</h1>
      <ModelPicker model={model} disabled={busy} onPick={onModel} />
      <button
        type="button"
        class="quiet"
        onClick={onSettings}
        aria-label="Settings"
        title="Settings"
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

/** Taking a conversation elsewhere, or bringing one here. */
function CarryDialog({
  session,
  onClose,
}: {
  session: OpenSession | null;
  onClose(): void;
}): JSX.Element {
  const save = (format: ExportFormat, ending: string): void =>
    void attempt(async () => {
      const blob = await client.exportSession(session!.id, format);
      saveAs(blob, `${fileName(session!.title)}.${ending}`);
      onClose();
    });
  const bring = (file: File | undefined): void =>
    void attempt(async () => {
      if (!file) return;
      const made = await client.importSession(await file.text());
      await refreshSessions();
      notify("Imported.");
      onClose();
      go(made.mode, made.id);
    });
  return (
    <Dialog title="Export and import" onClose={onClose}>
      <div class="stack">
        {session ? (
          <div class="row wrap">
            <button type="button" onClick={() => save("markdown", "md")}>
              Save as Markdown
            </button>
            <button type="button" onClick={() => save("json", "json")}>
              Save as JSON, with all versions
            </button>
          </div>
        ) : (
          <p class="hint">There is nothing to export yet.</p>
        )}
        <label class="field">
          <span class="field-label">Bring a conversation here</span>
          <input
            type="file"
            accept=".json,application/json"
            onChange={(event) => bring(event.currentTarget.files?.[0])}
          />
          <span class="hint">A JSON file that Lantern saved.</span>
        </label>
      </div>
    </Dialog>
  );
}

function fileName(title: string): string {
  return (
    title
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .trim()
      .slice(0, 60) || "conversation"
  );
}

function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
