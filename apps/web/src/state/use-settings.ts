// The settings of the open conversation or, if there is none, those of the next one, which are part of its draft: every
// conversation begins with the usual settings. Dragging a slider changes the display immediately and is saved when it
// stops.

import { useEffect, useRef, useState } from "preact/hooks";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import { client } from "./connection.ts";
import type { Conversation } from "./conversation.ts";
import { draftKey, draftOf, setDraft, useDraft } from "./drafts.ts";
import { attempt } from "./notices.ts";
import { useStore } from "./store.ts";

const restMs = 300;

/** The settings of a new conversation. */
const usual: Readonly<Record<"chat" | "story", SessionSettings>> = {
  chat: { temperature: 0.7 },
  story: { temperature: 0.9, maxTokens: 80 },
};

export function useSettings(
  conversation: Conversation,
  mode: "chat" | "story",
): [SessionSettings, (change: SettingsChange) => void] {
  const session = useStore(conversation.store, (now) => now.session);
  const next = draftKey(mode, null);
  const { settings: chosen } = useDraft(next);
  const [pending, setPending] = useState<SettingsChange>({});
  const unsaved = useRef<{ session: string; settings: SettingsChange }>(undefined);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const id = session?.id;
  // Another conversation has its own settings.
  useEffect(() => setPending({}), [id]);
  const save = async (): Promise<void> => {
    clearTimeout(timer.current);
    const last = unsaved.current;
    unsaved.current = undefined;
    if (!last) return;
    const { session: of, settings } = last;
    if (conversation.store.value.session?.id === of) await conversation.change({ settings });
    else await client.changeSession(of, { settings }); // another one was opened meanwhile
  };
  conversation.saveFirst = save;
  const change = (wanted: SettingsChange): void => {
    if (!session) {
      const settings = applied(draftOf(next).settings ?? usual[mode], wanted);
      const isUsual = changedSettings(mode, settings).length === 0;
      setDraft(next, { settings: isUsual ? null : settings });
      return;
    }
    setPending((before) => ({ ...before, ...wanted }));
    if (unsaved.current?.session !== session.id) void attempt(save);
    unsaved.current = {
      session: session.id,
      settings: { ...unsaved.current?.settings, ...wanted },
    };
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void attempt(save), restMs);
  };
  return [applied(session?.settings ?? chosen ?? usual[mode], pending), change];
}

function applied(settings: SessionSettings, change: SettingsChange): SessionSettings {
  const entries = Object.entries({ ...settings, ...change }).filter(([, value]) => value !== null);
  return Object.fromEntries(entries) as SessionSettings;
}

/** A setting that is not the usual one. */
export interface ChangedSetting {
  name: keyof SessionSettings;
  value: SessionSettings[keyof SessionSettings];
  /** Undoes it. */
  undo: SettingsChange;
}

export function changedSettings(
  mode: "chat" | "story",
  settings: SessionSettings,
): ChangedSetting[] {
  const names = Object.keys({ ...usual[mode], ...settings }) as (keyof SessionSettings)[];
  return names
    .filter((name) => JSON.stringify(settings[name]) !== JSON.stringify(usual[mode][name]))
    .map((name) => ({
      name,
      value: settings[name],
      undo: { [name]: usual[mode][name] ?? null },
    }));
}
