// The extras of a chat besides messages: tools, a JSON Schema for its answers, and other settings. Buttons below the
// text box show the active ones, open the panels, and remove them.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { ChangedSettings, Undo } from "./changed-settings.tsx";
import { Dialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { SchemaPanel } from "./schema-panel.tsx";
import { ToolsPanel } from "./tools-panel.tsx";

interface Props {
  settings: SessionSettings;
  onChange(change: SettingsChange): void;
}

export function ChatExtras({ settings, onChange }: Props): JSX.Element {
  const [open, setOpen] = useState<"tools" | "schema" | null>(null);
  const { tools = [], schema } = settings;
  const close = (): void => setOpen(null);
  return (
    <div class="extras">
      <button
        type="button"
        class={`chip ${tools.length > 0 ? "on" : ""}`}
        aria-keyshortcuts="T"
        title="Tools (T)"
        onClick={() => setOpen("tools")}
      >
        <Icon name="tool" /> Tools{tools.length > 0 && `: ${tools.length}`}
      </button>
      {tools.length > 0 && <Undo what="Tools" onClick={() => onChange({ tools: null })} />}
      <button
        type="button"
        class={`chip ${schema === undefined ? "" : "on"}`}
        aria-keyshortcuts="J"
        title="Answer as JSON (J)"
        aria-label={schema === undefined ? "JSON" : "JSON: answers follow a schema"}
        onClick={() => setOpen("schema")}
      >
        <Icon name="braces" /> JSON
      </button>
      {schema !== undefined && (
        <Undo what="JSON schema" onClick={() => onChange({ schema: null })} />
      )}
      <ChangedSettings
        mode="chat"
        settings={settings}
        without={["tools", "schema", "summary"]}
        onChange={onChange}
      />
      {open === "schema" && (
        <Dialog title="Answer as JSON" place="side" onClose={close}>
          <SchemaPanel
            schema={schema}
            hasTools={tools.length > 0}
            onChange={(now) => onChange({ schema: now ?? null })}
          />
        </Dialog>
      )}
      {open === "tools" && (
        <Dialog title="Tools of this chat" place="side" onClose={close}>
          <ToolsPanel
            tools={tools}
            onChange={(now) => onChange({ tools: now.length > 0 ? now : null })}
          />
        </Dialog>
      )}
    </div>
  );
}
