// A message that was looked for: the conversation is brought to the version that it is in, and the message is shown for a
// while. The address then is the conversation's again.

import { useEffect, useState } from "preact/hooks";
import type { Conversation } from "../state/conversation.ts";
import { attempt } from "../state/notices.ts";
import { go } from "../state/route.ts";
import { useStore } from "../state/store.ts";
import { pathTo } from "../state/tree.ts";

const shownMs = 4000;

/** The message to show; null: none. `message`: as the address has it. */
export function useFound(
  conversation: Conversation,
  mode: "chat" | "story",
  id: string | null,
  message: string | undefined,
): string | null {
  const [found, setFound] = useState<string | null>(null);
  const isOpen = useStore(
    conversation.store,
    ({ session }) => session !== null && session.id === id,
  );
  useEffect(() => {
    if (!isOpen || id === null || message === undefined) return;
    const show = async (): Promise<void> => {
      const { session, tree } = conversation.store.value;
      const isThere = pathTo(tree, session!.leaf).some((one) => one.id === message);
      if (!isThere && tree.has(message)) await conversation.change({ branch: message });
      setFound(message);
      go(mode, id, true);
    };
    void attempt(show);
  }, [conversation, mode, id, message, isOpen]);
  useEffect(() => {
    if (found === null) return;
    const timer = setTimeout(() => setFound(null), shownMs);
    return () => clearTimeout(timer);
  }, [found]);
  return found;
}
