// Formats numbers, tables and colours for the command line. Pure functions of their arguments.

import type { Terminal } from "../../src/platform/node-cli.ts";
import { plainText } from "../../src/platform/terminal-text.ts";

/** --no-color, which every command has; here, since --help loads no table of options. */
export const noColorHelp = "no colours (also: NO_COLOR=1)";

export { bytesText } from "../../src/base/byte-sizes.ts";

/** "1.1 B", "15.2 M": a number of parameters. */
export function countText(count: number): string {
  if (count >= 1e9) return `${(count / 1e9).toFixed(2)} B`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(1)} M`;
  if (count >= 1e3) return `${(count / 1e3).toFixed(1)} k`;
  return String(count);
}

/** "1 token", "2 tokens". */
export function plural(count: number, noun: string, many: string = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : many}`;
}

/** "45 s", "3 min 20 s", "1 h 5 min". */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}

/** Rows as aligned columns with two spaces between them; columns in `right` are right-aligned. */
export function tableText(
  rows: readonly (readonly string[])[],
  right: readonly number[] = [],
): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    }
  }
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => {
        const width = widths[column]!;
        if (right.includes(column)) return cell.padStart(width);
        return column === row.length - 1 ? cell : cell.padEnd(width);
      })
      .join("  ")
      .trimEnd();
  return rows.map((row) => `${line(row)}\n`).join("");
}

export interface Palette {
  bold(text: string): string;
  dim(text: string): string;
  green(text: string): string;
  red(text: string): string;
}

/** Colours for a terminal, or none at all. */
export function palette(enabled: boolean): Palette {
  const style =
    (on: number, off: number) =>
    (text: string): string =>
      enabled && text !== "" ? `\x1b[${on}m${text}\x1b[${off}m` : text;
  return { bold: style(1, 22), dim: style(2, 22), green: style(32, 39), red: style(31, 39) };
}

/** Prints a model's text: on a terminal, not even our own colours work in it. */
export function outPlain(terminal: Pick<Terminal, "out" | "outIsTerminal">, text: string): void {
  terminal.out(terminal.outIsTerminal ? plainText(text) : text);
}

/** https://no-color.org: set and not empty means no colour, regardless of all other settings. */
export function wantsColor(
  isTerminal: boolean,
  env: (name: string) => string | undefined,
  flag: boolean,
): boolean {
  return isTerminal && flag && !env("NO_COLOR") && env("TERM") !== "dumb";
}
