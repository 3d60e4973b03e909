// The end of a tune file: its last line says that the file is whole and has a hash of all lines above, so that a file
// which was cut off, edited or damaged is recognised. It is no protection against attackers: they can make a hash, too.

import { fnv } from "../base/fnv.ts";

const END = /^end ([0-9a-f]{8})$/;

/** The text with its end mark. `body` ends with a line break. */
export function sealed(body: string): string {
  return `${body}end ${fnv(body)}\n`;
}

/** The defect of a text that sealed() should have made; undefined: none. */
export function brokenSeal(text: string): { got: string; expected: string } | undefined {
  const at = text.lastIndexOf("\n", text.length - 2) + 1;
  const [, hash] = (text.endsWith("\n") && END.exec(text.slice(at, -1))) || [];
  if (hash === undefined) {
    return { got: "no end mark: the file was cut off", expected: '"end HASH" as the last line' };
  }
  const here = fnv(text.slice(0, at));
  if (here === hash) return undefined;
  return {
    got: `checksum ${here}: the file was changed after it was written`,
    expected: `checksum ${hash}`,
  };
}
