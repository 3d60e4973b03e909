// The previous version of a rewritten piece of a story, with everything after it, shown below the text. The writer can
// go back to it, or append the later pieces to the new one.

import type { JSX } from "preact";
import type { Message } from "../api-types.ts";
import { children, newestBelow, pathTo, siblings, type Tree } from "../state/tree.ts";

interface Other {
  /** The sibling of the last piece. */
  version: Message;
  /** The pieces after it. */
  rest: readonly Message[];
}

/** The newest other version of a story's last piece that was continued; undefined: there is none. */
export function otherVersion(tree: Tree, last: Message | undefined): Other | undefined {
  if (!last || children(tree, last.id).length > 0) return undefined;
  const version = siblings(tree, last).findLast(
    ({ id }) => id !== last.id && children(tree, id).length > 0,
  );
  if (!version) return undefined;
  const whole = pathTo(tree, newestBelow(tree, version.id));
  const rest = whole.slice(whole.findIndex(({ id }) => id === version.id) + 1);
  return { version, rest };
}

interface Props extends Other {
  onShow(): void;
  onAppend(): void;
}

const shownLetters = 280;

export function OtherVersion({ version, rest, onShow, onAppend }: Props): JSX.Element {
  const text = [version, ...rest].map(({ content }) => content).join("");
  const shown = text.length > shownLetters ? `${text.slice(0, shownLetters).trimEnd()}…` : text;
  return (
    <aside class="other-version" aria-label="The other version">
      <p class="hint">
        The other version is kept. It goes on for {rest.length} more{" "}
        {rest.length === 1 ? "piece" : "pieces"}:
      </p>
      <blockquote dir="auto">{shown.trim()}</blockquote>
      <div class="row wrap">
        <button type="button" onClick={onShow}>
          Go to that version
        </button>
        <button type="button" onClick={onAppend}>
          Move what came after it here
        </button>
      </div>
    </aside>
  );
}
