// Comparing texts with tags in them.

export function commonPrefix(a: string, b: string): string {
  let count = 0;
  while (count < a.length && a[count] === b[count]) count++;
  return a.slice(0, count);
}

export function commonSuffix(a: string, b: string): string {
  let count = 0;
  while (count < a.length && count < b.length && a.at(-1 - count) === b.at(-1 - count)) count++;
  return a.slice(a.length - count);
}

/** Without the end of a tag that it begins in: `>\n<invoke` becomes `\n<invoke`. */
export function fromTag(text: string): string {
  const at = text.search(/[\s<[]/);
  return at < 0 ? text : text.slice(at);
}

/** Without the start of a tag that it ends in. */
export function toTag(text: string): string {
  const open = Math.max(text.lastIndexOf("<"), text.lastIndexOf("["));
  const close = Math.max(text.lastIndexOf(">"), text.lastIndexOf("]"));
  return open > close ? text.slice(0, open) : text;
}

/** The text between two positions; undefined if they are not in this order. */
export function between(text: string, from: number, to: number): string | undefined {
  return from < 0 || to < from ? undefined : text.slice(from, to);
}

/** The end of the JSON value that begins at `from`; -1 if none does. */
export function jsonEnd(text: string, from: number): number {
  const closers: string[] = [];
  let isQuoted = false;
  for (let at = from; at < text.length; at++) {
    const char = text[at]!;
    if (isQuoted) {
      if (char === "\\") at++;
      else if (char === '"') isQuoted = false;
    } else if (char === '"') isQuoted = true;
    else if (char === "{" || char === "[") closers.push(char === "{" ? "}" : "]");
    else if (char === "}" || char === "]") {
      if (closers.pop() !== char) return -1;
      if (closers.length === 0) return isJson(text.slice(from, at + 1)) ? at + 1 : -1;
    }
  }
  return -1;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
