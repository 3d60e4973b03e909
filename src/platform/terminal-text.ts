// What may reach a terminal. Names in model files, titles, error messages of servers and whatever a model generates can hold
// escape sequences: they set the title, move the cursor over what was printed, ask the terminal for answers that are then
// typed into the shell. On a terminal they are made visible; through a pipe, text stays as it is.

/** The sequences that Lantern's own colours are made of (src/cli/text.ts). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
const ours = /\x1b\[(?:[12]|22|3[129])m/y;
/** How a line that is written over itself begins and ends (progress). */
const lineStart = "\r";
const lineEnd = "\x1b[K";

/** C0 but for tab and newline, DEL, C1, and what turns the direction of writing around. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const unsafe = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;

/** Text of others: nothing in it does anything. */
export function plainText(text: string): string {
  return text.replaceAll("\r\n", "\n").replaceAll(unsafe, visible);
}

/** Everything that is written to a terminal: our own colours and progress lines work, nothing else does. */
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

/** ESC is shown as ␛, and so on; what has no picture as a replacement character. */
function visible(char: string): string {
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}
