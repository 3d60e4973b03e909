// Makes text safe for a terminal. Names in model files, titles, server errors and generated text can contain escape
// sequences, which set the title, move the cursor over printed text, or make the terminal type answers into the shell.
// On a terminal they are made visible; in a pipe, text is left as it is.

/** The escape sequences of Lantern's own colours (apps/cli/text.ts). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
const ours = /\x1b\[(?:[12]|22|3[129])m/y;
/** The start and the end of a line that overwrites itself (progress). */
const lineStart = "\r";
const lineEnd = "\x1b[K";

/** C0 except tab and newline, DEL, C1, and characters that change the writing direction. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const unsafe = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;

/** Neutralizes foreign text: every control character becomes visible. */
export function plainText(text: string): string {
  return text.replaceAll("\r\n", "\n").replaceAll(unsafe, visible);
}

/** Neutralizes everything that is written to a terminal, except our own colours and progress lines. */
export function terminalText(text: string): string {
  if (!unsafe.test(text)) return text;
  unsafe.lastIndex = 0;
  const isLine = text.startsWith(lineStart) && text.endsWith(lineEnd);
  const inner = isLine ? text.slice(lineStart.length, -lineEnd.length) : text;
  const parts: string[] = [];
  let done = 0;
  for (let at = inner.indexOf("\x1b"); at >= 0; at = inner.indexOf("\x1b", at + 1)) {
    ours.lastIndex = at;
    const own = ours.exec(inner)?.[0];
    if (own === undefined) continue;
    parts.push(plainText(inner.slice(done, at)), own);
    done = at + own.length;
  }
  parts.push(plainText(inner.slice(done)));
  return isLine ? lineStart + parts.join("") + lineEnd : parts.join("");
}

/** Shows ESC as ␛, and so on; a character without a picture becomes a replacement character. */
function visible(char: string): string {
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}
