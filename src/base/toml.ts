// A reader of TOML 1.0, for files of settings: tables, dotted and quoted keys, strings of all four kinds, numbers, booleans, arrays,
// inline tables and arrays of tables. Dates are refused, since no setting is one. It is strict: a duplicate key, or text that is not
// TOML, is an error that names the line.

import { UsageError } from "./errors.ts";

export type TomlValue = string | number | boolean | TomlValue[] | TomlTable;
export interface TomlTable {
  [key: string]: TomlValue;
}

/** Tables in tables: no file of settings needs more. */
const deepest = 50;

export function parseToml(text: string): TomlTable {
  return new TomlReader(text).read();
}

const escapes: ReadonlyMap<string, string> = new Map([
  ...([
    ["b", "\b"],
    ["t", "\t"],
    ["n", "\n"],
    ["f", "\f"],
    ["r", "\r"],
  ] as const),
  ...([
    ['"', '"'],
    ["\\", "\\"],
    ["e", "\u001b"],
  ] as const),
]);

class TomlReader {
  readonly #text: string;
  #at = 0;
  /** Tables that a header or an inline table has defined: they cannot be defined again, or added to. */
  readonly #defined = new Set<TomlTable>();
  readonly #closed = new Set<TomlTable | TomlValue[]>();

  constructor(text: string) {
    this.#text = text.replace(/^\uFEFF/, "");
  }

  read(): TomlTable {
    const root = newTable();
    let table = root;
    for (this.#skipLines(); this.#at < this.#text.length; this.#skipLines()) {
      if (this.#peek() === "[") table = this.#header(root);
      else this.#pair(table, 0);
      this.#endOfLine();
    }
    return root;
  }

  #fail(problem: string, at: number = this.#at): never {
    const line = this.#text.slice(0, at).split("\n").length;
    throw new UsageError(`line ${line}: ${problem}`);
  }

  #peek(length = 1): string {
    return this.#text.slice(this.#at, this.#at + length);
  }

  #take(expected: string): void {
    if (this.#peek(expected.length) !== expected) {
      this.#fail(`got ${this.#shown()}, expected ${JSON.stringify(expected)}`);
    }
    this.#at += expected.length;
  }

  #shown(): string {
    const rest = this.#text.slice(this.#at, this.#at + 20).split("\n", 1)[0]!;
    return rest === "" ? "the end of the line" : JSON.stringify(rest);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #spaces(): void {
    this.#match(/[ \t]*/y);
  }

  /** White space, ends of lines and comments. */
  #skipLines(): void {
    this.#match(/(?:[ \t\n]|\r\n|#[^\n]*)*/y);
  }

  #endOfLine(): void {
    this.#spaces();
    this.#match(/#[^\n]*/y);
    if (this.#at < this.#text.length && this.#match(/\r?\n/y) === undefined) {
      this.#fail(`got ${this.#shown()}, expected the end of the line`);
    }
  }

  #header(root: TomlTable): TomlTable {
    const isArray = this.#peek(2) === "[[";
    this.#take(isArray ? "[[" : "[");
    const path = this.#keys();
    this.#take(isArray ? "]]" : "]");
    const name = path.at(-1)!;
    const parent = this.#descend(root, path.slice(0, -1));
    const before = Object.hasOwn(parent, name) ? parent[name] : undefined;
    if (isArray) {
      const list = before ?? [];
      if (!Array.isArray(list) || this.#closed.has(list)) this.#fail(`${name} is given twice`);
      const table = newTable();
      list.push(table);
      parent[name] = list;
      return table;
    }
    const table = before ?? newTable();
    if (!isTable(table) || this.#defined.has(table)) this.#fail(`${path.join(".")} is given twice`);
    this.#defined.add(table);
    parent[name] = table;
    return table;
  }

  /** The table at a path, made where it is missing; of an array of tables, its last one. */
  #descend(from: TomlTable, path: readonly string[]): TomlTable {
    let table = from;
    for (const name of path) {
      const next = Object.hasOwn(table, name) ? table[name]! : newTable();
      if (!Object.hasOwn(table, name)) table[name] = next;
      const inner = Array.isArray(next) && !this.#closed.has(next) ? next.at(-1)! : next;
      if (!isTable(inner) || this.#closed.has(inner)) {
        this.#fail(`${name} has a value already, and cannot have keys of its own`);
      }
      table = inner;
    }
    return table;
  }

  #pair(table: TomlTable, depth: number): void {
    const start = this.#at;
    const path = this.#keys();
    this.#take("=");
    this.#spaces();
    const parent = this.#descend(table, path.slice(0, -1));
    if (path.length > 1) this.#defined.add(parent);
    const name = path.at(-1)!;
    if (Object.hasOwn(parent, name)) this.#fail(`${path.join(".")} is given twice`, start);
    parent[name] = this.#value(depth);
  }

  #keys(): string[] {
    const path: string[] = [];
    do {
      if (path.length > 0) this.#at++;
      this.#spaces();
      path.push(this.#key());
      this.#spaces();
    } while (this.#peek() === ".");
    if (path.length > deepest) this.#fail(`a key has more than ${deepest} parts`);
    return path;
  }

  #key(): string {
    if (this.#peek() === '"') return this.#basic();
    if (this.#peek() === "'") return this.#literal();
    return this.#match(/[A-Za-z0-9_-]+/y) ?? this.#fail(`got ${this.#shown()}, expected a key`);
  }

  #value(depth: number): TomlValue {
    if (depth > deepest) this.#fail(`values are nested more than ${deepest} deep`);
    if (this.#peek(3) === '"""') return this.#longBasic();
    if (this.#peek(3) === "'''") return this.#longLiteral();
    const first = this.#peek();
    if (first === '"') return this.#basic();
    if (first === "'") return this.#literal();
    if (first === "[") return this.#array(depth);
    if (first === "{") return this.#inline(depth);
    return this.#word();
  }

  #word(): TomlValue {
    const start = this.#at;
    const word = this.#match(/[A-Za-z0-9_+.:-]+/y) ?? "";
    if (word === "true" || word === "false") return word === "true";
    const plain = word.replaceAll(/(?<=[0-9A-Fa-f])_(?=[0-9A-Fa-f])/g, "");
    if (/^[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(plain)) return Number(plain);
    if (/^0(?:x[0-9A-Fa-f]+|o[0-7]+|b[01]+)$/.test(plain)) return Number(plain);
    if (/^[+-]?inf$/.test(plain)) return plain.startsWith("-") ? -Infinity : Infinity;
    this.#at = start;
    if (/^\d{4}-\d\d-|^\d\d:\d\d/.test(word)) {
      this.#fail(`got ${this.#shown()}, a date or time, which no setting is`);
    }
    this.#fail(`got ${this.#shown()}, expected a value. A text is in quotes`);
  }

  #array(depth: number): TomlValue[] {
    const list: TomlValue[] = [];
    this.#take("[");
    for (this.#skipLines(); this.#peek() !== "]"; this.#skipLines()) {
      list.push(this.#value(depth + 1));
      this.#skipLines();
      if (this.#peek() !== "]") this.#take(",");
    }
    this.#take("]");
    this.#closed.add(list);
    return list;
  }

  #inline(depth: number): TomlTable {
    const table = newTable();
    this.#take("{");
    this.#spaces();
    while (this.#peek() !== "}") {
      this.#pair(table, depth + 1);
      this.#spaces();
      if (this.#peek() === "}") break;
      this.#take(",");
      this.#spaces();
      if (this.#peek() === "}") this.#fail('got "}" after a comma, expected a key');
    }
    this.#take("}");
    this.#closed.add(table);
    this.#defined.add(table);
    return table;
  }

  #literal(): string {
    const found = this.#match(/'[^'\n]*'/y);
    return found === undefined ? this.#fail("a text has no closing quote") : found.slice(1, -1);
  }

  #longLiteral(): string {
    const found = this.#match(/'''[\s\S]*?'''(?:'{0,2}(?!'))/y);
    if (found === undefined) this.#fail("a text has no closing '''");
    return found.slice(3, -3).replace(/^\r?\n/, "");
  }

  #basic(): string {
    const start = this.#at;
    const found = this.#match(/"(?:[^"\\\n]|\\.)*"/y);
    if (found === undefined) this.#fail("a text has no closing quote");
    return this.#unescaped(found.slice(1, -1), start);
  }

  #longBasic(): string {
    const start = this.#at;
    const found = this.#match(/"""(?:[^"\\]|\\[\s\S]|"{1,2}(?!"))*"""(?:"{0,2}(?!"))/y);
    if (found === undefined) this.#fail('a text has no closing """');
    const inner = found.slice(3, -3).replace(/^\r?\n/, "");
    // A backslash at the end of a line joins it with the next words.
    const joined = inner.replaceAll(/(?<!\\)((?:\\\\)*)\\[ \t]*\r?\n\s*/g, "$1");
    return this.#unescaped(joined, start);
  }

  #unescaped(text: string, start: number): string {
    return text.replaceAll(/\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[\s\S])/g, (whole, code: string) => {
      const known = escapes.get(code);
      if (known !== undefined) return known;
      const point = code.length > 1 ? Number.parseInt(code.slice(1), 16) : Number.NaN;
      const isScalar = point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
      if (!isScalar) this.#fail(`got ${JSON.stringify(whole)}, which is no escape`, start);
      return String.fromCodePoint(point);
    });
  }
}

/** Without a prototype: keys come from outside. */
function newTable(): TomlTable {
  return Object.create(null) as TomlTable;
}

function isTable(value: TomlValue): value is TomlTable {
  return typeof value === "object" && !Array.isArray(value);
}
