// Export and import of conversations: one of them, or all.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ExportFormat } from "../api.ts";
import type { OpenSession } from "../api-types.ts";
import { exportAll, type Imported, importText } from "../state/archive.ts";
import { client } from "../state/connection.ts";
import { attempt, notify } from "../state/notices.ts";
import { loadPresets } from "../state/presets.ts";
import { go } from "../state/route.ts";
import { saveFile } from "../state/save-file.ts";
import { refreshSessions } from "../state/sessions.ts";
import { Dialog } from "./dialog.tsx";

interface Props {
  /** The open conversation. */
  session: OpenSession | null;
  onClose(): void;
}

export function CarryDialog({ session, onClose }: Props): JSX.Element {
  const [progress, setProgress] = useState<string | null>(null);
  const save = (format: ExportFormat, ending: string): void =>
    void attempt(async () => {
      const blob = await client.exportSession(session!.id, format);
      saveFile(blob, `${fileName(session!.title)}.${ending}`);
      onClose();
    });
  const saveAll = (): void =>
    void attempt(async () => {
      setProgress("Collecting…");
      const blob = await exportAll((done, all) => setProgress(`${done} of ${all}…`));
      saveFile(blob, `lantern-${new Date().toISOString().slice(0, 10)}.json`);
      onClose();
    }).then(() => setProgress(null));
  const bring = (files: readonly File[]): void =>
    void attempt(async () => {
      setProgress("Importing…");
      const results: Imported[] = [];
      for (const file of files) results.push(await importText(await file.text()));
      await Promise.all([refreshSessions(), loadPresets()]);
      for (const problem of results.flatMap(({ refused }) => refused)) notify(problem, "error");
      notify(outcome(results));
      onClose();
      const last = results.findLast((result) => result.last !== null)?.last;
      if (last) go(last.mode, last.id);
    }).then(() => setProgress(null));
  return (
    <Dialog title="Export and import" onClose={onClose}>
      <div class="stack">
        <div class="field">
          <span class="field-label">This conversation</span>
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
        </div>
        <div class="field">
          <span class="field-label">Everything</span>
          <div class="row wrap">
            <button type="button" disabled={progress !== null} onClick={saveAll}>
              Save all chats, stories and presets
            </button>
            {progress !== null && (
              <span class="hint" role="status">
                {progress}
              </span>
            )}
          </div>
        </div>
        <label class="field">
          <span class="field-label">Import conversations</span>
          <input
            type="file"
            multiple
            accept=".json,application/json"
            disabled={progress !== null}
            onChange={(event) => bring([...(event.currentTarget.files ?? [])])}
          />
          <span class="hint">JSON files that Lantern saved: one conversation, or all of them.</span>
        </label>
      </div>
    </Dialog>
  );
}

function outcome(results: readonly Imported[]): string {
  const added = results.reduce((sum, one) => sum + one.added, 0);
  const known = results.reduce((sum, one) => sum + one.known, 0);
  const what = `Imported ${added} conversation${added === 1 ? "" : "s"}`;
  return known === 0
    ? `${what}.`
    : `${what}; ${known} ${known === 1 ? "was" : "were"} here already.`;
}

function fileName(title: string): string {
  return (
    title
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .trim()
      .slice(0, 60) || "conversation"
  );
}
