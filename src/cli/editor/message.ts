// What Enter means at the end of a typed text, line by line or in the editor: a backslash continues on the next line, and """ begins
// a text that goes on until the next """, as in Ollama.

const quotes = '"""';

export interface Message {
  readonly text: string;
  /** It was between quotes: its first character is no sign of a command. */
  readonly isQuoted: boolean;
}

/** The text with which it goes on; undefined: it is whole. `quoted`: whether """ means anything. */
export function goesOn(text: string, quoted: boolean): string | undefined {
  if (quoted && text.trimStart().startsWith(quotes)) {
    return quotedText(text) === undefined ? `${text}\n` : undefined;
  }
  return text.endsWith("\\") ? `${text.slice(0, -1)}\n` : undefined;
}

/** What is sent for a text that is whole. */
export function asMessage(text: string, quoted: boolean): Message {
  const inner = quoted && text.trimStart().startsWith(quotes) ? quotedText(text) : undefined;
  if (inner !== undefined) return { text: inner, isQuoted: true };
  return { text: quoted ? withoutLastBreaks(text) : text, isQuoted: false };
}

/** Whole lines that were pasted end with a break that nobody meant to send. */
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
