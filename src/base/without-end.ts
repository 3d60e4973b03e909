// A text without the given characters at its end. Not replace(/x+$/, ""): that looks at every x of the text, and from each at all that
// follow, so that a text of a megabyte takes minutes.

/** Without these letters at its end, as many as there are. */
export function withoutEnd(text: string, letters: string): string {
  let end = text.length;
  while (end > 0 && letters.includes(text[end - 1]!)) end--;
  return text.slice(0, end);
}
