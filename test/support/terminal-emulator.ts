// A small terminal for tests: understands what apps/cli/editor writes, wraps, scrolls, and breaks rows anew when it is resized, as most
// terminals do. What real ones do is in test/cli/chat-terminal.test.ts.

import { clustersOf } from "../../apps/cli/editor/widths.ts";

interface EmulatedRow {
  cells: string[];
  /** The terminal has broken it; the next row belongs to it. */
  goesOn: boolean;
}

const emptyRow = (): EmulatedRow => ({ cells: [], goesOn: false });
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
const sequences = /(\x1b\[[<>?]?[\d;]*[A-Za-z]|[\r\n])/;

export class TerminalEmulator {
  columns: number;
  rows: number;
  /** Rows that have been scrolled out of sight come first. */
  readonly #grid: EmulatedRow[] = [emptyRow()];
  /** Index in the grid of the first visible row. */
  #top = 0;
  #row = 0;
  #column = 0;
  #wraps = true;
  /** Modes that are on: "?2004". */
  readonly modes: Set<string> = new Set();

  constructor(columns: number, rows: number) {
    this.columns = columns;
    this.rows = rows;
  }

  get cursor(): { row: number; column: number } {
    return { row: this.#row - this.#top, column: Math.min(this.#column, this.columns - 1) };
  }

  /** The visible rows, without empty ones at the end. */
  get text(): string {
    return textOf(this.#grid.slice(this.#top, this.#top + this.rows));
  }

  /** What was scrolled out of sight, too. */
  get all(): string {
    return textOf(this.#grid);
  }

  write(text: string): void {
    for (const [at, part] of text.split(sequences).entries()) {
      if (at % 2 === 0) this.#print(part);
      else if (part === "\r") this.#column = 0;
      else if (part === "\n") this.#down(false);
      else this.#obey(part.slice(2, -1), part.at(-1)!);
    }
  }

  resize(columns: number, rows: number): void {
    const cells = this.#grid.splice(0);
    const [cursorRow, cursorColumn] = [this.#row, this.#column];
    const line: string[] = [];
    let cursorAt = -1;
    this.columns = columns;
    for (const [at, row] of cells.entries()) {
      if (at === cursorRow) cursorAt = line.length + cursorColumn;
      line.push(...row.cells);
      if (row.goesOn) continue;
      const first = this.#grid.length;
      do this.#grid.push({ cells: line.splice(0, columns), goesOn: line.length > 0 });
      while (line.length > 0);
      if (cursorAt < 0) continue;
      this.#row = first + Math.floor(cursorAt / columns);
      this.#column = cursorAt % columns;
      while (this.#grid.length <= this.#row) this.#grid.push(emptyRow());
      cursorAt = -1;
    }
    this.rows = rows;
    this.#top = Math.max(0, Math.min(this.#top, this.#row), this.#row - rows + 1);
  }

  #obey(parameters: string, final: string): void {
    const count = Number(parameters || 1);
    if (final === "A") this.#row = Math.max(this.#top, this.#row - count);
    else if (final === "C") this.#column = Math.min(this.columns - 1, this.#column + count);
    else if (final === "K") this.#clearRight();
    else if (final === "J" && parameters === "") {
      this.#clearRight();
      this.#grid.splice(this.#row + 1);
    } else if (final === "J") this.#grid.splice(this.#top, this.rows, emptyRow());
    else if (final === "H") [this.#row, this.#column] = [this.#top, 0];
    else if (parameters === "?7") this.#wraps = final === "h";
    else if (final === "h") this.modes.add(parameters);
    else if (final === "l") this.modes.delete(parameters);
    else if (final !== "m" && final !== "u") throw new Error(`not known: ${parameters}${final}`);
  }

  #clearRight(): void {
    const row = this.#grid[this.#row]!;
    row.cells.splice(this.#column);
    if (this.#column === 0) row.goesOn = false; // else it stays marked, as in tmux
  }

  #print(text: string): void {
    for (const { text: char, width } of clustersOf(text)) {
      if (width === 0) continue;
      if (this.#column + width > this.columns) {
        if (this.#wraps) {
          this.#column = 0;
          this.#down(true);
        } else this.#column = this.columns - width;
      }
      const { cells } = this.#grid[this.#row]!;
      while (cells.length < this.#column) cells.push(" ");
      cells.splice(this.#column, width, char, ...Array<string>(width - 1).fill(""));
      this.#column += width;
    }
  }

  #down(goesOn: boolean): void {
    if (goesOn) this.#grid[this.#row]!.goesOn = true; // it stays marked, as in tmux
    this.#row++;
    if (this.#row === this.#grid.length) this.#grid.push(emptyRow());
    if (this.#row - this.#top === this.rows) this.#top++;
  }
}

function textOf(rows: readonly EmulatedRow[]): string {
  return rows
    .map(({ cells }) => cells.join("").trimEnd())
    .join("\n")
    .trimEnd();
}
