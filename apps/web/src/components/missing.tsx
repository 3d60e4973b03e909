// Shown instead of a conversation: that it does not exist (any more), or why it cannot be read, and the possible
// actions.

import type { JSX } from "preact";
import type { Conversation } from "../state/conversation.ts";
import { attempt } from "../state/notices.ts";
import { hrefOf } from "../state/route.ts";
import { Trouble } from "./trouble.tsx";

export function Missing({ mode }: { mode: "chat" | "story" }): JSX.Element {
  const what = mode === "chat" ? "conversation" : "story";
  return (
    <section class="empty">
      <p role="status">There is no such {what} here. It may have been deleted.</p>
      <a class="button" href={hrefOf(mode)}>
        Begin a new {mode}
      </a>
    </section>
  );
}

/** Shown beside the content that was read before. */
export function Unread({
  conversation,
  problem,
}: {
  conversation: Conversation;
  problem: string | null;
}): JSX.Element | null {
  if (problem === null) return null;
  const again = (): void => void attempt(() => conversation.tryAgain());
  return <Trouble onAgain={again}>This conversation cannot be read now: {problem}</Trouble>;
}
