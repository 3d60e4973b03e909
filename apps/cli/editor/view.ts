// Lays out the text that is being typed: rows with a prompt before them, and where the cursor is. A text that is higher than the
// terminal is shown around its cursor.

import type { Editor } from "./editor.ts";
import { cellsOf } from "./widths.ts";
import { columnOf, indexAt, type Row, wrapLine } from "./wrap.ts";

export interface Marks {
  /** Precedes the first line. */
  readonly prompt: string;
  /** Precedes every other line. */
  readonly next: string;
}

/** Rows to draw, each with its width. */
export interface Region {
  readonly rows: readonly { readonly text: string; readonly width: number }[];
  readonly cursor: { readonly row: number; readonly column: number };
}

interface LineRow extends Row {
  readonly line: string;
  /** The line's offset in the text. */
  readonly offset: number;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

export class EditorView {
  readonly #marks: Marks;
  readonly #indent: number;
  /** The rows of each line: most lines stay as they are when a key is pressed. */
  #rows = new Map<string, Row[]>();
  #width = 80;
  /** The first row that is shown. */
  #top = 0;

  constructor(marks: Marks) {
    this.#marks = marks;
    this.#indent = Math.max(cellsOf(marks.prompt), cellsOf(marks.next));
  }

  layOut(editor: Editor, columns: number, height: number): Region {
    this.#widen(columns);
    const rows = this.#layOut(editor.text);
    const at = rowOf(rows, editor.cursor);
    const row = rows[at]!;
    const column = this.#indent + columnOf(row.line, row, editor.cursor - row.offset);
    const extra = editor.searched === undefined ? [] : [`search: ${editor.searched}`];
    const most = Math.max(1, height - extra.length);
    this.#top = Math.max(0, Math.min(this.#top, rows.length - most, at));
    this.#top = Math.max(this.#top, at - most + 1);
    const shown = rows.slice(this.#top, this.#top + most).map((one) => ({
      text: this.#markOf(one) + one.shown,
      width: this.#indent + one.width,
    }));
    for (const text of extra) {
      const [first] = wrapLine(text, columns - 1);
      shown.push({ text: first!.shown, width: first!.width });
    }
    const cursor = { row: at - this.#top, column: Math.min(column, Math.max(0, columns - 1)) };
    return { rows: shown, cursor };
  }

  /** The position one row up or down; undefined: there is no such row. */
  vertical(editor: Editor, steps: -1 | 1): number | undefined {
    const rows = this.#layOut(editor.text);
    const at = rowOf(rows, editor.cursor);
    const [from, to] = [rows[at]!, rows[at + steps]];
    if (to === undefined) return undefined;
    const column = columnOf(from.line, from, editor.cursor - from.offset);
    return to.offset + indexAt(to.line, to, column, to.isLast);
  }

  /** The text as it stays on the screen after it was sent. */
  finished(text: string): string {
    return text
      .split("\n")
      .map((line, at) => `${at === 0 ? this.#marks.prompt : this.#marks.next}${line}`)
      .join("\n");
  }

  #widen(columns: number): void {
    // The last column is for a cursor behind the last character.
    const width = Math.max(2, columns - 1 - this.#indent);
    if (width !== this.#width) this.#rows.clear();
    this.#width = width;
  }

  #layOut(text: string): LineRow[] {
    const known = this.#rows;
    this.#rows = new Map();
    const all: LineRow[] = [];
    let offset = 0;
    for (const [number, line] of text.split("\n").entries()) {
      const rows = known.get(line) ?? this.#rows.get(line) ?? wrapLine(line, this.#width);
      this.#rows.set(line, rows);
      for (const [at, row] of rows.entries()) {
        const isFirst = number === 0 && at === 0;
        all.push({ ...row, line, offset, isFirst, isLast: at === rows.length - 1 });
      }
      offset += line.length + 1;
    }
    return all;
  }

  #markOf(row: LineRow): string {
    const mark = row.isFirst ? this.#marks.prompt : row.start === 0 ? this.#marks.next : "";
    return mark + " ".repeat(this.#indent - cellsOf(mark)); // it may be coloured
  }
}

/** The last row that begins at or before the position. */
function rowOf(rows: readonly LineRow[], index: number): number {
  let [low, high] = [0, rows.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const row = rows[middle]!;
    if (row.offset + row.start <= index) low = middle;
    else high = middle - 1;
  }
  return low;
}
