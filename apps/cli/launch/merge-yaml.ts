// Sets a value in the text of a YAML file of nested mappings, one key to a line, as programs write their settings. New values are
// written as JSON, which is YAML. What goes beyond that form where the value belongs (flow mappings, anchors, several documents) is
// refused.

import { UsageError } from "../../../src/index.ts";
import { type Json, lineEnd, type Setting } from "./settings.ts";

interface Line {
  readonly indent: number;
  readonly key: string;
  /** What follows the colon, without a comment. */
  readonly rest: string;
}

export function setInYaml(text: string, { at, value }: Setting): string {
  const path = at.map((step) => {
    if (typeof step !== "string") throw new UsageError("lists are not changed here");
    return step;
  });
  const eol = lineEnd(text);
  const lines = text.split(/\r?\n/);
  checkForm(lines);
  // The lines of the mapping in which the next key is looked for.
  let range = { from: documentStart(lines), to: lines.length };
  let indent = 0;
  for (const [depth, key] of path.entries()) {
    const own = childIndent(lines, range) ?? (depth === 0 ? 0 : indent + 2);
    if (depth > 0 && own <= indent) throw unclear(lines, range.from);
    const row = findKey(lines, range, own, key);
    if (row === undefined) return inserted(lines, range, own, path.slice(depth), value).join(eol);
    const line = lineOf(lines[row]!)!;
    const block = { from: row + 1, to: blockEnd(lines, row + 1, range.to, own) };
    const isLast = depth === path.length - 1;
    if (isLast) {
      const same = `${" ".repeat(own)}${keyText(key)}: ${JSON.stringify(value)}`;
      if (/^[&*!]/.test(line.rest)) throw unclear(lines, row);
      lines.splice(row, block.to - row, same);
      return lines.join(eol);
    }
    if (line.rest === "{}" || (line.rest === "" && childIndent(lines, block) === undefined)) {
      lines[row] = `${" ".repeat(own)}${keyText(key)}:`;
      return inserted(
        lines,
        { from: row + 1, to: row + 1 },
        own + 2,
        path.slice(depth + 1),
        value,
      ).join(eol);
    }
    if (line.rest !== "") throw unclear(lines, row);
    range = block;
    indent = own;
  }
  throw new UsageError("no key was given");
}

/** What the rest of the file must not have for its lines to mean what they seem to. */
function checkForm(lines: readonly string[]): void {
  const content = lines.map((line, row) => ({ line, row })).filter(({ line }) => !isBlank(line));
  for (const { line, row } of content) {
    if (/^\s*\t/.test(line)) throw unclear(lines, row);
    if (/^(---|\.\.\.)(\s|$)/.test(line) && row > content[0]!.row) throw unclear(lines, row);
    if (/^%/.test(line)) throw unclear(lines, row);
  }
  const top = content.filter(({ line }) => /^\S/.test(line) && !line.startsWith("---"));
  for (const { line, row } of top) {
    if (lineOf(line) === undefined && !line.startsWith("- ") && line !== "-")
      throw unclear(lines, row);
  }
  const [first] = top;
  if (first && lineOf(first.line) === undefined) throw unclear(lines, first.row);
  if (content.some(({ line }) => /^---\s+\S/.test(line))) throw unclear(lines, content[0]!.row);
}

function documentStart(lines: readonly string[]): number {
  return lines.findIndex((line) => /^---\s*$/.test(line)) + 1;
}

/** A longer line is refused where its key matters. */
const longestLine = 10_000;

const isBlank = (line: string): boolean => /^\s*(#.*)?$/.test(line);

function lineOf(line: string): Line | undefined {
  if (line.length > longestLine) return undefined; // the pattern takes time with the square of it
  const found =
    /^( *)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'#&*!|>%@`?{}[\],:-][^:#]*|-[^\s:][^:#]*)\s*:(?:\s+(.*))?$/.exec(
      line,
    );
  if (!found) return undefined;
  const [, blanks = "", name = "", rest = ""] = found;
  const key = name.startsWith('"')
    ? (JSON.parse(name) as string)
    : name.replace(/^'(.*)'$/, "$1").trim();
  return { indent: blanks.length, key, rest: rest.replace(/(^|\s)#.*$/, "").trim() };
}

/** The indent of the first line of a mapping. */
function childIndent(
  lines: readonly string[],
  { from, to }: { from: number; to: number },
): number | undefined {
  const first = lines.slice(from, to).find((line) => !isBlank(line));
  if (first === undefined) return undefined;
  if (lineOf(first) === undefined) throw unclear(lines, lines.indexOf(first, from));
  return lineOf(first)!.indent;
}

function findKey(
  lines: readonly string[],
  { from, to }: { from: number; to: number },
  indent: number,
  key: string,
): number | undefined {
  const rows: number[] = [];
  for (let row = from; row < to; row++) {
    const line = lines[row]!;
    if (isBlank(line) || !line.startsWith(" ".repeat(indent)) || line[indent] === " ") continue;
    const found = lineOf(line);
    if (found?.key === "<<") throw unclear(lines, row);
    if (found?.indent === indent && found.key === key) rows.push(row);
  }
  if (rows.length > 1) throw unclear(lines, rows[1]!);
  return rows[0];
}

/** Where the lines of a key end: the next line that is not deeper. A list may stand right below its key. */
function blockEnd(lines: readonly string[], from: number, to: number, indent: number): number {
  let end = from;
  for (let row = from; row < to; row++) {
    const line = lines[row]!;
    if (isBlank(line)) continue;
    const own = line.length - line.trimStart().length;
    const isItem = own === indent && /^-(\s|$)/.test(line.trimStart());
    if (own <= indent && !isItem) break;
    end = row + 1;
  }
  return end;
}

function inserted(
  lines: string[],
  { from, to }: { from: number; to: number },
  indent: number,
  path: readonly string[],
  value: Json,
): string[] {
  let end = to;
  while (end > from && isBlank(lines[end - 1]!)) end--;
  const added = path.map((key, depth) => {
    const start = `${" ".repeat(indent + 2 * depth)}${keyText(key)}:`;
    return depth === path.length - 1 ? `${start} ${JSON.stringify(value)}` : start;
  });
  lines.splice(end, 0, ...added);
  if (lines.at(-1) !== "") lines.push("");
  return lines;
}

function keyText(key: string): string {
  return /^[A-Za-z_][\w.-]*$/.test(key) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(key)
    ? key
    : JSON.stringify(key);
}

function unclear(lines: readonly string[], row: number): UsageError {
  const line = lines[row]?.trim().slice(0, 40) ?? "";
  return new UsageError(
    `it has a form of YAML in line ${row + 1} that is not changed here: ${JSON.stringify(line)}`,
  );
}
