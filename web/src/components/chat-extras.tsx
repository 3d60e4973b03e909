// What a chat can have besides messages: tools. A button below the text box shows how many there are and opens their
// panel.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { Dialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { ToolsPanel } from "./tools-panel.tsx";

interface Props {
  settings: SessionSettings;
  onChange(change: SettingsChange): void;
}

export function ChatExtras({ settings, onChange }: Props): JSX.Element {
  const [open, setOpen] = useState<"tools" | null>(null);
  const { tools = [] } = settings;
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
