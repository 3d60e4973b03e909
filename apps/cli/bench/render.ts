// The table of a benchmark: aligned columns for a terminal, or Markdown for a note.

import { tableText } from "../text.ts";

export interface BenchTable {
  header: readonly string[];
  rows: readonly (readonly string[])[];
  /** Columns of numbers. */
  right: readonly number[];
}

export function renderTable(table: BenchTable, markdown: boolean): string {
  if (!markdown) return tableText([table.header, ...table.rows], table.right);
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |\n`;
  const rule = table.header.map((_, column) => (table.right.includes(column) ? "---:" : "---"));
  return [table.header, rule, ...table.rows].map(line).join("");
}
