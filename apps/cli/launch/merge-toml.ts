// Sets a value in the text of a TOML file: a line of its table is replaced or added, or a table is added at the end. The result is read
// again and compared with what was wanted, so a file in a form that is not understood here is refused.

import { parseToml, type TomlTable } from "../../../src/base/toml.ts";
import { UsageError } from "../../../src/index.ts";
import { isSame, lineEnd, type Setting } from "./settings.ts";

export function setInToml(text: string, { at, value }: Setting): string {
  const path = at.map((step) => {
    if (typeof step !== "string") throw new UsageError("lists of tables are not changed here");
    return step;
  });
  const before = parseToml(text);
  const tables = path.slice(0, -1);
  const key = path.at(-1)!;
  const wanted = withValue(before, path, value);
  if (isSame(before, wanted)) return text;
  const eol = lineEnd(text);
  const lines = text.split(/\r?\n/);
  const line = `${keyText(key)} = ${JSON.stringify(value)}`;
  const range = tableLines(lines, tables);
  if (range === undefined) {
    while (lines.length > 0 && lines.at(-1)!.trim() === "") lines.pop();
    const gap = lines.length > 0 ? [""] : [];
    lines.push(...gap, `[${tables.map(keyText).join(".")}]`, line, "");
  } else {
    const own = lines.findIndex(
      (each, row) => row >= range.from && row < range.to && isLineOf(each, key),
    );
    if (own >= 0) lines[own] = line;
    else lines.splice(range.from, 0, line);
  }
  const changed = lines.join(eol);
  if (isSame(read(changed), wanted)) return changed;
  throw new UsageError(`its ${path.join(".")} is written in a form that is not changed here`);
}

function read(text: string): TomlTable | undefined {
  try {
    return parseToml(text);
  } catch {
    return undefined;
  }
}

function withValue(table: TomlTable, path: readonly string[], value: Setting["value"]): TomlTable {
  const [key, ...rest] = path as [string, ...string[]];
  const inner = table[key] ?? {};
  if (rest.length > 0 && (typeof inner !== "object" || Array.isArray(inner))) {
    throw new UsageError(`it has a value where the table ${key} would be`);
  }
  const own = rest.length > 0 ? withValue(inner as TomlTable, rest, value) : (value as string);
  return { ...table, [key]: own };
}

/** The lines below a table's header, or those before the first header; undefined: there is no such header. */
function tableLines(
  lines: readonly string[],
  tables: readonly string[],
): { from: number; to: number } | undefined {
  const isHeader = (line: string): boolean => /^\s*\[/.test(line);
  const end = (from: number): number => {
    const next = lines.findIndex((line, row) => row >= from && isHeader(line));
    return next < 0 ? lines.length : next;
  };
  if (tables.length === 0) return { from: 0, to: end(0) };
  const at = lines.findIndex((line) => {
    const [, name] = /^\s*\[([^[\]]+)\]\s*(?:#.*)?$/.exec(line) ?? [];
    return name !== undefined && isSame(partsOf(name), tables);
  });
  return at < 0 ? undefined : { from: at + 1, to: end(at + 1) };
}

function partsOf(name: string): string[] {
  return name.split(".").map((part) => part.trim().replace(/^(["'])(.*)\1$/, "$2"));
}

function isLineOf(line: string, key: string): boolean {
  const [, name] = /^\s*("[^"]*"|'[^']*'|[\w-]+)\s*=/.exec(line) ?? [];
  return name !== undefined && partsOf(name)[0] === key;
}

function keyText(key: string): string {
  return /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
}
