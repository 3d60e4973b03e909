// How pieces of a story meet. A person leaves spaces out or types one too many; a model expects its text to end with a
// word, and begins its own with the space.

/** The draft as it joins the text before it. */
export function joinDraft(before: string, draft: string): string {
  const text = draft.replace(/[ \t]+$/, "");
  const needsSpace = /\S$/.test(before) && /^[\p{L}\p{N}"'“‘(]/u.test(text);
  return needsSpace ? ` ${text}` : text;
}
