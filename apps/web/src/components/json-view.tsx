// An answer that is JSON as a whole: with line ends, highlighted, and with a button that copies it.

import type { JSX } from "preact";
import { Markdown } from "./markdown.tsx";

/** The JSON of a text with line ends; undefined: it is no object and no list. */
export function jsonOf(text: string): string | undefined {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed)) return undefined;
  try {
    return JSON.stringify(JSON.parse(trimmed), null, 2);
  } catch {
    return undefined;
  }
}

/** JSON has no fence in it that would end this one: letters of a string are on one line. */
export function JsonView({ text, growing }: { text: string; growing: boolean }): JSX.Element {
  const closing = growing ? "" : "\n````````";
  return <Markdown text={`\`\`\`\`\`\`\`\`json\n${text}${closing}`} growing={growing} />;
}
