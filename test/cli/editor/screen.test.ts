// Text on a terminal: wrapped between words, by the widths of its characters, and laid out anew when the terminal is resized.
// Held against: screens written here.

import { describe, expect, test } from "vitest";
import { Editor } from "../../../apps/cli/editor/editor.ts";
import { Screen } from "../../../apps/cli/editor/screen.ts";
import { EditorView } from "../../../apps/cli/editor/view.ts";
import { cellsOf } from "../../../apps/cli/editor/widths.ts";
import { wrapLine } from "../../../apps/cli/editor/wrap.ts";
import { Random } from "../../support/random.ts";
import { TerminalEmulator } from "../../support/terminal-emulator.ts";

const rowsOf = (line: string, width: number) => wrapLine(line, width).map(({ shown }) => shown);

describe("widths", () => {
  test.each([
    ["abc", 3],
    ["日本語", 6],
    ["ｆｕｌｌ", 8],
    ["한국어", 6],
    ["e\u0301", 1],
    ["\u1112\u1161\u11ab", 2], // a Korean syllable in parts
    ["🙂", 2],
    ["👍🏽", 2],
    ["👨‍👩‍👧", 2],
    ["🇩🇪", 2],
    ["❤️", 2],
    ["❤", 1],
    ["→…€", 3],
    ["a\u200bb", 2],
    ["\x1b", 1], // shown as a picture
    ["\x1b[2mdim\x1b[22m", 3],
  ])("%j takes %i", (text, cells) => {
    expect(cellsOf(text)).toBe(cells);
  });
});

describe("rows", () => {
  test.each([
    ["one two three", 8, ["one two ", "three"]],
    ["one two three", 7, ["one two", "three"]], // the space hangs
    ["one  two", 4, ["one ", "two"]],
    ["abcdefghij", 4, ["abcd", "efgh", "ij"]],
    ["ab cdefghij", 4, ["ab ", "cdef", "ghij"]],
    ["", 4, [""]],
    ["日本語です", 5, ["日本", "語で", "す"]],
    ["日本。語", 4, ["日", "本。", "語"]],
    ["a 日本", 3, ["a ", "日", "本"]],
    ["日", 1, ["日"]],
    ["👨‍👩‍👧👨‍👩‍👧", 3, ["👨‍👩‍👧", "👨‍👩‍👧"]],
    ["a\tb", 20, ["a       b"]],
    ["a\tb", 6, ["a", "b"]],
    ["(x) y", 4, ["(x) ", "y"]],
  ])("%j in %i", (line, width, rows) => {
    expect(rowsOf(line, width)).toEqual(rows);
  });

  test("have all of the line, fit, and break words only where they must", () => {
    const random = new Random(3);
    const words = [
      "a",
      "word",
      "longer-word",
      "日本語",
      "👍🏽",
      "e\u0301e\u0301",
      "  ",
      "\t",
      "x".repeat(30),
    ];
    for (let round = 0; round < 300; round++) {
      const line = Array.from(
        { length: random.below(20) },
        () => words[random.below(words.length)],
      ).join(" ");
      const width = 2 + random.below(30);
      const rows = wrapLine(line, width);
      expect(rows.map(({ start, end }) => line.slice(start, end)).join("")).toBe(line);
      for (const { width: cells, shown } of rows) {
        expect(cells).toBeLessThanOrEqual(width);
        expect(cellsOf(shown)).toBeLessThanOrEqual(width);
      }
      for (const [at, row] of rows.slice(1).entries()) {
        const before = line.slice(0, row.start);
        const isInWord = /[a-z-]$/.test(before) && /^[a-z-]/.test(line.slice(row.start));
        const word = /[a-z-]*$/.exec(before)![0] + /^[a-z-]*/.exec(line.slice(row.start))![0];
        if (isInWord) expect(word.length, `${rows[at]!.shown}|${row.shown}`).toBeGreaterThan(width);
      }
    }
  });
});

/** A screen on an emulated terminal, below what a shell has left there. */
function emulated(columns: number, rows: number, before = "") {
  const terminal = new TerminalEmulator(columns, rows);
  terminal.write(before);
  const screen = new Screen({
    get columns() {
      return terminal.columns;
    },
    get rows() {
      return terminal.rows;
    },
    draw: (text) => terminal.write(text),
    reflows: true,
  });
  const view = new EditorView({ prompt: "> ", next: ". " });
  const editor = new Editor({});
  return {
    terminal,
    screen,
    editor,
    edit: () => screen.edit((columns, height) => view.layOut(editor, columns, height)),
    resize: (columns: number, rows: number) => {
      terminal.resize(columns, rows);
      screen.repaint();
    },
  };
}

/** The text in pieces as a model sends it. */
function pieces(text: string, random: Random): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; ) {
    const size = 1 + random.below(6);
    found.push(text.slice(at, at + size));
    at += size;
  }
  return found;
}

const story =
  "Once upon a time there was a little 日本語のテキスト girl, who (as far as anybody knew) lived in averyveryverylongword.\n\n\tLong ago\n- one item of a list that is longer than a row\n";

describe("a screen", () => {
  test("a word that does not fit moves to the next row as a whole, while it comes", () => {
    const { terminal, screen } = emulated(12, 5);
    for (const piece of ["one ", "tw", "o thr"]) screen.write(piece);
    expect(terminal.text).toBe("one two thr");
    screen.write("ee four");
    expect(terminal.text).toBe("one two\nthree four");
    screen.write("teen");
    expect(terminal.text).toBe("one two\nthree\nfourteen");
  });

  test("text in any pieces is that text in one", () => {
    const random = new Random(5);
    for (let round = 0; round < 50; round++) {
      const [columns, rows] = [4 + random.below(60), 3 + random.below(20)];
      const whole = emulated(columns, rows);
      whole.screen.write(story);
      const streamed = emulated(columns, rows);
      for (const piece of pieces(story, random)) streamed.screen.write(piece);
      expect(streamed.terminal.all).toBe(whole.terminal.all);
      const expected = story.split("\n").flatMap((line) => rowsOf(line, columns - 1));
      expect(streamed.terminal.all).toBe(
        expected
          .map((row) => row.trimEnd())
          .join("\n")
          .trimEnd(),
      );
    }
  });

  test("after any resizing, text and edited rows are as if they had been written at that size", () => {
    const random = new Random(11);
    for (let round = 0; round < 120; round++) {
      const size = (): [number, number] => [6 + random.below(70), 4 + random.below(20)];
      const resized = emulated(...size());
      const isEdited = random.below(2) === 1;
      const typed = "what do you think of that, 日本?\nA second line that is long".slice(
        0,
        random.below(60),
      );
      for (const piece of pieces(story, random)) resized.screen.write(piece);
      if (!isEdited) resized.screen.write("and so it goes on with");
      resized.editor.insert(typed);
      if (isEdited) resized.edit();
      for (let times = 1 + random.below(4); times > 0; times--) resized.resize(...size());
      const { columns, rows } = resized.terminal;
      const fresh = emulated(columns, rows);
      fresh.screen.write(story);
      if (!isEdited) fresh.screen.write("and so it goes on with");
      fresh.editor.insert(typed);
      if (isEdited) fresh.edit();
      const lastOf = (text: string) =>
        text
          .split("\n")
          .slice(-Math.min(4, rows - 1))
          .join("\n");
      expect(lastOf(resized.terminal.text)).toBe(lastOf(fresh.terminal.text));
      if (!isEdited) resized.screen.write(" and on\nend");
      if (!isEdited) fresh.screen.write(" and on\nend");
      expect(lastOf(resized.terminal.text)).toBe(lastOf(fresh.terminal.text));
      expect(resized.terminal.cursor.column).toBe(fresh.terminal.cursor.column);
    }
  });

  test("what a shell has written above stays", () => {
    const { terminal, screen, editor, edit, resize } = emulated(
      40,
      12,
      "$ ls\r\nfile\r\n$ chat\r\n",
    );
    screen.write("Hello. This is a model that answers.\n");
    editor.insert("a question that goes over more than one row");
    edit();
    resize(20, 12);
    resize(60, 12);
    expect(terminal.text).toBe(
      "$ ls\nfile\n$ chat\nHello. This is a model that answers.\n> a question that goes over more than one row",
    );
    expect(terminal.cursor).toEqual({ row: 4, column: 45 });
  });

  test("a note comes above what is being edited", () => {
    const { terminal, screen, editor, edit } = emulated(30, 8);
    screen.write("Hello.\n");
    editor.insert("one\ntwo");
    edit();
    screen.write("\x1b[2mA note.\x1b[22m\n");
    expect(terminal.text).toBe("Hello.\nA note.\n> one\n. two");
    screen.write("\r50 %\x1b[K"); // progress is for when nobody types
    expect(terminal.text).toBe("Hello.\nA note.\n> one\n. two");
    screen.clear();
    expect(terminal.text).toBe("> one\n. two");
  });

  test("progress overwrites itself, and leaves nothing", () => {
    const { terminal, screen } = emulated(30, 8);
    screen.write("Hello.\n");
    for (const part of ["\r1 %\x1b[K", "\r99 %\x1b[K"]) screen.write(part);
    expect(terminal.text).toBe("Hello.\n99 %");
    screen.write("\r\x1b[K");
    screen.write("Done.\n");
    expect(terminal.text).toBe("Hello.\nDone.");
  });
});
