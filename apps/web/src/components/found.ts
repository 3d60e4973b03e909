// Shows a message from a search: switches the conversation to the branch with it, and highlights it for a while. The
// URL then becomes the conversation's again.

import { useEffect, useState } from "preact/hooks";
import type { Conversation } from "../state/conversation.ts";
import { attempt } from "../state/notices.ts";
import { go } from "../state/route.ts";
import { useStore } from "../state/store.ts";
import { pathTo } from "../state/tree.ts";

const shownMs = 4000;

/** The message to highlight; null: none. `message`: from the URL. */
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
