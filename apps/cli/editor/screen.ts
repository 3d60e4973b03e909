// The chat on the terminal: text that flows, wrapped between words, and under it the rows that are being edited. Remembers the
// written text, so that both are laid out again when the terminal's width changes. Pure but for the Canvas that it draws on.
//
// The terminal moves rows out of sight by its own rules: those stay as they were.

import type { Region } from "./view.ts";
import { type Row, wrapLine } from "./wrap.ts";

/** The terminal to draw on. */
export interface Canvas {
  readonly columns: number;
  readonly rows: number;
  /** Unfiltered: escape sequences work. */
  draw(text: string): void;
  /** Whether the terminal wraps rows again that no longer fit; else it cuts them off. */
  readonly reflows: boolean;
}

export type LayOut = (columns: number, height: number) => Region;

/** Lines and rows that are remembered: more than any terminal shows. */
const mostLines = 1000;

/** At the beginning of a row, the terminal then also forgets that it had wrapped the row. */
const clearRight = "\x1b[K";
const clearBelow = "\x1b[J";
const noWrap = "\x1b[?7l";
const wraps = "\x1b[?7h";
const plain = "\x1b[22;39m";
const clearScreen = "\x1b[H\x1b[2J";
const up = (rows: number): string => (rows > 0 ? `\x1b[${rows}A` : "");
const right = (columns: number): string => (columns > 0 ? `\x1b[${columns}C` : "");

/** A line that overwrites itself: progress (terminal-text.ts). */
const lineStart = "\r";
const noStyle = "";
// biome-ignore-start lint/suspicious/noControlCharactersInRegex: ESC begins them
const weightOf = /\x1b\[[12]m/;
const colorOf = /\x1b\[3\dm/;
// biome-ignore-end lint/suspicious/noControlCharactersInRegex: see above

export class Screen {
  readonly #canvas: Canvas;
  /** Lines as they were written, each with the colours that it begins with; the last is open. */
  #lines: string[] = [""];
  /** Widths of the rows that are on the terminal, without that of the open line's last one. */
  #painted: number[] = [];
  /** The last row of the open line: its part of the line, its drawn text, and its width. */
  #tail = "";
  #shown = "";
  #width = 0;
  /** The colours at its beginning. */
  #style = noStyle;
  #region: { layOut: LayOut; drawn: Region } | undefined;

  constructor(canvas: Canvas) {
    this.#canvas = canvas;
  }

  /** Text that is safe for a terminal: lines, pieces of lines, or a line of progress. */
  write(text: string): void {
    if (text === "") return;
    const isProgress = text.startsWith(lineStart) && text.endsWith(clearRight);
    if (isProgress) {
      if (!this.#region) this.#draw(this.#progress(text.slice(1, -clearRight.length)));
      return;
    }
    const region = this.#region;
    let out = this.#lift();
    for (const [at, part] of text.split("\n").entries()) {
      if (at > 0) out += this.#endLine();
      if (part !== "") out += this.#append(part);
    }
    this.#draw(out + (region ? this.#put(region.layOut) : ""));
  }

  /** Shows or redraws the rows that are edited; undefined: removes them. */
  edit(layOut: LayOut | undefined): void {
    const out = layOut && this.#region ? "" : this.#lift();
    this.#draw(out + (layOut ? this.#put(layOut) : ""));
  }

  clear(): void {
    const region = this.#region;
    this.#region = undefined;
    this.#forget();
    this.#draw(clearScreen + (region ? this.#put(region.layOut) : ""));
  }

  /** Other programs have written on the terminal: earlier rows are no longer ours. */
  restart(): void {
    this.#region = undefined;
    this.#forget();
    this.#draw("\r");
  }

  #forget(): void {
    this.#lines = [""];
    this.#painted = [];
    this.#setTail("", undefined, noStyle);
  }

  /** The terminal has another size. */
  repaint(): void {
    const { columns, rows: height } = this.#canvas;
    const above = Math.min(this.#rowsAbove(columns), height - 1);
    const isFull = above === height - 1;
    const region = this.#region;
    this.#region = undefined;
    const flow = this.#layAgain();
    // Its first row is the last of the text, which is empty then.
    const edited = region ? region.layOut(columns, height).rows.length - 1 : 0;
    const shown = isFull ? flow.slice(-Math.max(1, height - edited)) : flow;
    let out = `${up(above)}\r${plain}`;
    out += shown.map((row) => clearRight + row + plain).join("\r\n") + clearBelow;
    this.#draw(out + (region ? this.#put(region.layOut) : styleAfter(this.#style, this.#tail)));
  }

  /** Rows from the first that was written to that of the cursor, after the terminal has got its new width. */
  #rowsAbove(columns: number): number {
    const region = this.#region?.drawn;
    const edited = region?.rows.slice(0, region.cursor.row).map(({ width }) => width) ?? [];
    const widths = [...this.#painted, ...edited];
    if (!this.#canvas.reflows) return widths.length;
    const rowsOf = (width: number): number => Math.max(1, Math.ceil(width / columns));
    const column = region?.cursor.column ?? this.#width;
    return widths.reduce((sum, width) => sum + rowsOf(width), Math.floor(column / columns));
  }

  /** Lays all lines out for the current width; returns the rows as they are drawn. */
  #layAgain(): string[] {
    this.#painted = [];
    const drawn: string[] = [];
    for (const [at, line] of this.#lines.entries()) {
      let style = noStyle;
      const rows = wrapLine(line, this.#columns, true);
      for (const row of rows) {
        const source = line.slice(row.start, row.end);
        drawn.push(style + row.shown);
        this.#painted.push(row.width);
        this.#setTail(source, row, style);
        style = styleAfter(style, source);
      }
      if (at === this.#lines.length - 1) this.#painted.pop();
      else this.#setTail("", undefined, noStyle);
    }
    return drawn;
  }

  get #columns(): number {
    return this.#canvas.columns - 1; // the last one stays free: terminals differ in their handling of it
  }

  #setTail(tail: string, row: Row | undefined, style: string): void {
    this.#tail = tail;
    this.#shown = row?.shown ?? "";
    this.#width = row?.width ?? 0;
    this.#style = style;
  }

  #append(text: string): string {
    this.#lines[this.#lines.length - 1] += text;
    const source = this.#tail + text;
    const [first, ...more] = wrapLine(source, this.#columns, true) as [Row, ...Row[]];
    // A word that has become too long for its row moves to the next.
    let out = first.shown.startsWith(this.#shown)
      ? first.shown.slice(this.#shown.length)
      : `\r${clearRight}${plain}${this.#style}${first.shown}`;
    let last = first;
    let style = this.#style;
    for (const row of more) {
      style = styleAfter(style, source.slice(last.start, last.end));
      this.#paint(last.width);
      out += `\r\n${plain}${style}${row.shown}`;
      last = row;
    }
    this.#setTail(source.slice(last.start), last, style);
    return out;
  }

  #endLine(): string {
    this.#paint(this.#width);
    const style = styleAfter(this.#style, this.#tail);
    this.#lines.push(style);
    if (this.#lines.length > mostLines) this.#lines.shift();
    this.#setTail("", undefined, style);
    return "\r\n";
  }

  #paint(width: number): void {
    this.#painted.push(width);
    if (this.#painted.length > mostLines) this.#painted.shift();
  }

  /** A line that replaces the open one until the next line. */
  #progress(line: string): string {
    this.#lines[this.#lines.length - 1] = line;
    const [row] = wrapLine(line, this.#columns, true);
    this.#setTail(line, row, noStyle);
    return `\r${row!.shown}${clearRight}`;
  }

  /** Takes the edited rows away. */
  #lift(): string {
    const region = this.#region?.drawn;
    this.#region = undefined;
    return region ? `${up(region.cursor.row)}\r${clearBelow}` : "";
  }

  /** Draws the edited rows, over those that are there. */
  #put(layOut: LayOut): string {
    const before = this.#region?.drawn;
    let out = before ? `${up(before.cursor.row)}\r` : "";
    if (this.#tail !== "") out += this.#endLine();
    const { columns, rows } = this.#canvas;
    const drawn = layOut(columns, rows);
    // If our widths differ from the terminal's, a row must not run into the next.
    out += noWrap;
    out += drawn.rows.map(({ text }) => clearRight + text).join("\r\n");
    out += `${clearBelow}${wraps}\r${up(drawn.rows.length - 1 - drawn.cursor.row)}${right(drawn.cursor.column)}`;
    this.#region = { layOut, drawn };
    return out;
  }

  #draw(text: string): void {
    if (text !== "") this.#canvas.draw(text);
  }
}

/** The colours that are on after a text which begins with `before`. */
function styleAfter(before: string, text: string): string {
  let [weight, color] = [weightOf.exec(before)?.[0] ?? "", colorOf.exec(before)?.[0] ?? ""];
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
  for (const [all, number] of text.matchAll(/\x1b\[(\d{1,2})m/g)) {
    if (number === "22") weight = "";
    else if (number === "39") color = "";
    else if (weightOf.test(all)) weight = all;
    else color = all;
  }
  return weight + color;
}
