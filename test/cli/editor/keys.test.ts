// Keys and pasted text from what terminals send.
// Held against: the bytes that terminals send.

import { describe, expect, test } from "vitest";
import { type InputEvent, KeyDecoder } from "../../../apps/cli/editor/keys.ts";
import { Random } from "../../support/random.ts";

/** Events as short texts: letters, <key>, [pasted]. */
function written(events: readonly InputEvent[]): string {
  return events
    .map((event) => {
      if (event.kind === "key") return `<${event.key}>`;
      if (event.kind === "paste") return `[${event.text}]`;
      return event.kind === "text" ? event.text : `<${event.kind}>`;
    })
    .join("")
    .replaceAll("][", "");
}

/** Each chunk is one read; a while passes after the last. */
function read(...chunks: string[]): string {
  const decoder = new KeyDecoder();
  const events = chunks.flatMap((chunk) => decoder.push(chunk));
  return written([...events, ...decoder.flush()]);
}

describe("keys", () => {
  test.each([
    ["a", "a"],
    ["\r", "<enter>"],
    ["\n", "<ctrl-j>"],
    ["\x7f", "<backspace>"],
    ["\t", "<tab>"],
    ["\x01", "<ctrl-a>"],
    ["\x1c", "<ctrl-\\>"],
    ["\x1b[A", "<up>"],
    ["\x1bOD", "<left>"],
    ["\x1b[1;5C", "<ctrl-right>"],
    ["\x1b[1;3D", "<alt-left>"],
    ["\x1b[3~", "<delete>"],
    ["\x1b[3;5~", "<ctrl-delete>"],
    ["\x1b[H", "<home>"],
    ["\x1b[4~", "<end>"],
    ["\x1bb", "<alt-b>"],
    ["\x1b\x7f", "<alt-backspace>"],
    ["\x1b", "<escape>"],
    // A new line: Alt+Enter, kitty, xterm.
    ["\x1b\r", "<alt-enter>"],
    ["\x1b[13;2u", "<shift-enter>"],
    ["\x1b[27;2;13~", "<shift-enter>"],
    ["\x1b[13;2:1u", "<shift-enter>"],
    ["\x1b[13;2:3u", ""], // let go
    // kitty sends these where other terminals send a control character
    ["\x1b[99;5u", "<ctrl-c>"],
    ["\x1b[98;3u", "<alt-b>"],
    ["\x1b[27u", "<escape>"],
    ["\x1b[57414u", "<enter>"],
    ["\x1b[57401u", "2"],
    ["\x1b[97;2u", "A"],
    ["\x1b[55:47;2u", "/"],
    ["\x1b[?1u", "<kitty>"],
    // answers to others' questions, and what is no key
    ["\x1b[?62;22c", ""],
    ["\x1b]11;rgb:0000/0000/0000\x1b\\", ""],
    ["\x1b[[A", ""],
    ["\x1b[=;<u", ""],
    ["\x1b[1114112u", ""],
    ["\x1b[97:1114112;2u", "A"],
  ])("%j is %s", (sent, expected) => {
    expect(read(sent)).toBe(expected);
  });

  test("a sequence may come in pieces", () => {
    for (const sent of ["\x1b[1;5C", "\x1b[13;2u", "\x1b[27;2;13~", "\x1bOA", "\x1b\r"]) {
      for (let at = 1; at < sent.length; at++) {
        expect(read(sent.slice(0, at), sent.slice(at))).toBe(read(sent));
      }
    }
  });

  test("Escape and then a letter is no Alt, if a while was between them", () => {
    const decoder = new KeyDecoder();
    const events = [decoder.push("\x1b"), decoder.flush(), decoder.push("b")].flat();
    expect(written(events)).toBe("<escape>b");
    expect(decoder.waitsFor).toBeUndefined();
  });
});

describe("pasted text", () => {
  const text = "\x1b[200~one\r\ntwo\rthree\n\x1b[31mred\x03\x1b[201~";

  test("is text, whatever is in it", () => {
    expect(read(text)).toBe("[one\ntwo\nthree\n\x1b[31mred\x03]");
    expect(read(`a${text}\r`)).toBe("a[one\ntwo\nthree\n\x1b[31mred\x03]<enter>");
  });

  test("may come in pieces", () => {
    for (let at = 1; at < text.length; at++) {
      expect(read(text.slice(0, at), text.slice(at))).toBe(read(text));
    }
  });

  test("whose end never comes ends with Ctrl-C", () => {
    expect(read("\x1b[200~one", "\x03", "\r")).toBe("[one]<ctrl-c><enter>");
  });
});

describe("lines that come at once without marks", () => {
  test("are text: nothing is sent", () => {
    expect(read("one\rtwo\rthree")).toBe("[one\ntwo\nthree]");
    expect(read("one\rtwo\r")).toBe("[one\ntwo\n]");
    expect(read("one\r", "two\r", "three\r")).toBe("[one\ntwo\nthree\n]");
    expect(read("one", "\r", "two")).toBe("[one\ntwo]");
    expect(read("one\r\rtwo\r")).toBe("[one\n\ntwo\n]");
  });

  test("but one line with Enter is sent when nothing follows, and single keys are never held", () => {
    expect(read("one\r")).toBe("[one]<enter>");
    const decoder = new KeyDecoder();
    expect(written(["o", "n", "\r", "t", "\r"].flatMap((key) => decoder.push(key)))).toBe(
      "on<enter>t<enter>",
    );
    expect(decoder.waitsFor).toBeUndefined();
    expect(written(decoder.push("\r\r"))).toBe("<enter><enter>");
  });

  test("and after a while Enter is Enter again", () => {
    const decoder = new KeyDecoder();
    const events = [decoder.push("one\rtwo"), decoder.flush(), decoder.push("\r")].flat();
    expect(written(events)).toBe("[one\ntwo]<enter>");
  });
});

test("nothing that a terminal sends is an error, and everything is read at last", () => {
  const random = new Random(7);
  const parts = [
    "\x1b",
    "[",
    "200~",
    "201~",
    ";",
    "5",
    "u",
    "O",
    "]",
    "\x07",
    "a",
    "\r",
    "日",
    "?",
    "P",
  ];
  for (let round = 0; round < 3000; round++) {
    const decoder = new KeyDecoder();
    const length = 1 + random.below(12);
    for (let at = 0; at < length; at++) {
      decoder.push(parts[random.below(parts.length)]!);
    }
    decoder.flush();
    expect(decoder.waitsFor).toBeUndefined();
  }
});
