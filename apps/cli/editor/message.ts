// The effect of Enter at the end of a typed text, line by line or in the editor: a backslash continues on the next line, and """
// begins a text that lasts until the next """, as in Ollama.

const quotes = '"""';

export interface Message {
  readonly text: string;
  /** The text was between quotes: its first character does not mark a command. */
  readonly isQuoted: boolean;
}

/** The text with which it continues; undefined: it is complete. `quoted`: whether """ has a meaning. */
export function goesOn(text: string, quoted: boolean): string | undefined {
  if (quoted && text.trimStart().startsWith(quotes)) {
    return quotedText(text) === undefined ? `${text}\n` : undefined;
  }
  return text.endsWith("\\") ? `${text.slice(0, -1)}\n` : undefined;
}

/** The message for a complete text. */
export function asMessage(text: string, quoted: boolean): Message {
  const inner = quoted && text.trimStart().startsWith(quotes) ? quotedText(text) : undefined;
  if (inner !== undefined) return { text: inner, isQuoted: true };
  return { text: quoted ? withoutLastBreaks(text) : text, isQuoted: false };
}

/** Pasted whole lines end with a line break that the user did not mean to send. */
function withoutLastBreaks(text: string): string {
  let end = text.length;
  while (text[end - 1] === "\n") end--;
  return text.slice(0, end);
}

function quotedText(text: string): string | undefined {
  const after = text.trim().slice(quotes.length);
  if (!after.endsWith(quotes)) return undefined;
  const inner = after.slice(0, -quotes.length);
  const from = inner.startsWith("\n") ? 1 : 0;
  return inner.slice(from, inner.endsWith("\n") ? Math.max(from, inner.length - 1) : undefined);
}
