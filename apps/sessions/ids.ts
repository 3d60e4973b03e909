// Helpers of the store: new ids, the title from a first message, and the cursor of a page.

import { SessionError } from "./session.ts";

/** Letters of the first message that become the title of an untitled session. */
const titleLength = 60;

export function newId(kind: "ses" | "msg" | "run" | "call"): string {
  return `${kind}_${crypto.randomUUID().replaceAll("-", "")}`;
}

/** The first line, cut between words if possible. */
export function titleFrom(text: string): string {
  const line = text
    .trim()
    .split(/[\r\n]/, 1)[0]!
    .trimEnd();
  const letters = [...line];
  if (letters.length <= titleLength) return line;
  const cut = letters.slice(0, titleLength - 1).join("");
  const space = cut.lastIndexOf(" ");
  return `${(space > titleLength / 2 ? cut.slice(0, space) : cut).trimEnd()}…`;
}

/** "changedAt.number" of the last session on the previous page. */
export function parseCursor(cursor: string | undefined): [number, number] {
  if (cursor === undefined) return [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
  const parts = cursor.split(".").map(Number);
  if (parts.length !== 2 || !parts.every(Number.isSafeInteger)) {
    throw new SessionError(
      "invalid",
      `cursor: got "${cursor.slice(0, 100)}", expected the "next" of an earlier page`,
      "cursor",
    );
  }
  return [parts[0]!, parts[1]!];
}
