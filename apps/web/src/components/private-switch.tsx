// The switch of a private conversation: a switch while it does not exist yet, a mark from then on.

import type { JSX } from "preact";
import type { OpenSession } from "../api-types.ts";
import { draftKey, setDraft } from "../state/drafts.ts";
import { setNextPrivate, useNextPrivate } from "../state/private.ts";

const what = "Nothing of it is on a disk. It is gone when you delete it, or when the server ends.";

export function PrivateSwitch({ session }: { session: OpenSession | null }): JSX.Element | null {
  const isNext = useNextPrivate();
  if (session) {
    return session.private ? (
      <span class="chip on" title={what}>
        Private
      </span>
    ) : null;
  }
  return (
    <button
      type="button"
      class={`chip ${isNext ? "on" : ""}`}
      aria-pressed={isNext}
      title={what}
      onClick={() => {
        setNextPrivate(!isNext);
        // Text that is already typed is stored, or no longer stored.
        for (const mode of ["chat", "story"] as const) setDraft(draftKey(mode, null), {});
      }}
    >
      Private
    </button>
  );
}
