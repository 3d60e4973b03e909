// The settings of the open conversation or, if there is none, those of the next one. Dragging a slider changes the
// display immediately and is saved when it stops.

import { useEffect, useRef, useState } from "preact/hooks";
import type { SessionSettings, SettingsChange } from "../api-types.ts";
import type { Conversation } from "./conversation.ts";
import { attempt } from "./notices.ts";
import { prefer, preferences } from "./preferences.ts";
import { isNextPrivate } from "./private.ts";
import { useStore } from "./store.ts";

const restMs = 300;

export function useSettings(
  conversation: Conversation,
  mode: "chat" | "story",
): [SessionSettings, (change: SettingsChange) => void, () => Promise<void>] {
  const session = useStore(conversation.store, (now) => now.session);
  const preferred = useStore(preferences, (now) => now[mode]);
  const [pending, setPending] = useState<SettingsChange>({});
  const unsaved = useRef<SettingsChange>({});
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const id = session?.id;
  // Another conversation has its own settings.
  useEffect(() => setPending({}), [id]);
  const save = async (): Promise<void> => {
    clearTimeout(timer.current);
    const change = unsaved.current;
    unsaved.current = {};
    if (Object.keys(change).length > 0 && conversation.store.value.session) {
      await conversation.change({ settings: change });
    }
  };
  const change = (wanted: SettingsChange): void => {
    // This browser remembers nothing of a private one: its settings may hold a system prompt.
    const isPrivate = session ? session.private : isNextPrivate();
    if (!isPrivate) prefer({ [mode]: applied(preferences.value[mode], wanted) });
    if (session || isPrivate) setPending((before) => ({ ...before, ...wanted }));
    if (!session) return;
    unsaved.current = { ...unsaved.current, ...wanted };
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void attempt(save), restMs);
  };
  return [applied(session?.settings ?? preferred, pending), change, save];
}

function applied(settings: SessionSettings, change: SettingsChange): SessionSettings {
  const entries = Object.entries({ ...settings, ...change }).filter(([, value]) => value !== null);
  return Object.fromEntries(entries) as SessionSettings;
}
