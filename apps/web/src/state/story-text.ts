// Joins pieces of a story. People leave out spaces or type one too many; a model expects its text to end with a word,
// and starts its own with the space.

import { withoutEnd } from "../../../../src/base/without-end.ts";

/** The draft with the right spacing after the text before it. */
export function joinDraft(before: string, draft: string): string {
  const text = withoutEnd(draft, " \t");
  const needsSpace = /\S$/.test(before) && /^[\p{L}\p{N}"'\u201c\u2018(]/u.test(text);
  return needsSpace ? ` ${text}` : text;
}
