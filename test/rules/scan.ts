// A small scanner of TypeScript source for the rules of this folder: files, tokens, imports. It is not a parser: it knows
// comments, strings, templates and regular expressions well enough to never mistake one for code, and finds the import
// and export statements among the rest.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";

const root: string = fileURLToPath(new URL("../../", import.meta.url));

export interface SourceFile {
  /** From the repository's root, with forward slashes: "src/base/errors.ts". */
  readonly path: string;
  readonly text: string;
}

export interface Token {
  readonly kind: "word" | "string" | "template" | "number" | "regex" | "punctuation";
  /** A string's characters without its quotes; a template's without its expressions, which follow as tokens. */
  readonly text: string;
  readonly line: number;
}

export interface Import {
  /** As written: "../base/errors.ts", "node:fs", "commander". */
  readonly from: string;
  /** Erased when the types are: `import type`, `export type ... from`. */
  readonly typesOnly: boolean;
  readonly line: number;
}

/** The program: the library and its apps. The web app's sources, some of them with JSX, are in apps/web/src. */
export const programFolders: readonly string[] = [
  "src",
  ...["batch", "cli", "cluster", "mcp", "server", "sessions"].map((name) => `apps/${name}`),
];

/** All .ts files under these folders of the repository, sorted; a folder that is not there has none. */
export function sourceFiles(...folders: readonly string[]): SourceFile[] {
  return filesUnder(folders, [".ts"]);
}

/** The same for other endings. */
export function filesUnder(
  folders: readonly string[],
  endings: readonly `.${string}`[],
): SourceFile[] {
  const present = folders.filter((folder) => existsSync(root + folder));
  const paths = present.flatMap((folder) =>
    readdirSync(root + folder, { recursive: true, encoding: "utf8" })
      .map((file) => `${folder}/${file.replaceAll("\\", "/")}`)
      .filter((path) => endings.some((ending) => path.endsWith(ending))),
  );
  return paths.sort().map((path) => ({ path, text: readFileSync(root + path, "utf8") }));
}

/** The file that a relative import means, from the repository's root; undefined for a package or node:*. */
export function resolveImport(importer: string, from: string): string | undefined {
  if (!from.startsWith(".")) return undefined;
  return posix.normalize(posix.join(posix.dirname(importer), from));
}

/** Comments and white space out, everything else in order. */
export function tokenize(text: string): Token[] {
  return new Scanner(text).tokens();
}

/** Static imports, re-exports, side-effect imports and dynamic import("...")s. */
export function importsOf(tokens: readonly Token[]): Import[] {
  const imports: Import[] = [];
  tokens.forEach((token, at) => {
    if (token.kind !== "word" || isText(tokens[at - 1], ".")) return;
    if (token.text === "import") addImport(tokens, at, imports);
    else if (token.text === "export") addReExport(tokens, at, imports);
  });
  return imports;
}

function addImport(tokens: readonly Token[], at: number, imports: Import[]): void {
  const { line } = tokens[at]!;
  const next = tokens[at + 1];
  if (isText(next, ".")) return; // import.meta
  if (isText(next, "(")) {
    const name = tokens[at + 2];
    const computed = name?.kind !== "string";
    imports.push({ from: computed ? "(computed)" : name.text, typesOnly: false, line });
    return;
  }
  const from = next?.kind === "string" ? next.text : fromClause(tokens, at);
  // `import type from "x"` would be a default import named "type".
  const typesOnly = isText(next, "type") && !isText(tokens[at + 2], "from");
  if (from !== undefined) imports.push({ from, typesOnly, line });
}

function addReExport(tokens: readonly Token[], at: number, imports: Import[]): void {
  const typesOnly = isText(tokens[at + 1], "type");
  const opening = tokens[at + (typesOnly ? 2 : 1)];
  if (!isText(opening, "{") && !isText(opening, "*")) return; // export const, export type X = ...
  const from = fromClause(tokens, at);
  if (from !== undefined) imports.push({ from, typesOnly, line: tokens[at]!.line });
}

/** What stands after `from`, if the statement has one: only names, braces, commas and stars may come before it. */
function fromClause(tokens: readonly Token[], at: number): string | undefined {
  for (let i = at + 1; i < tokens.length; i++) {
    const token = tokens[i]!;
    const next = tokens[i + 1];
    if (isText(token, "from") && next?.kind === "string") return next.text;
    if (token.kind !== "word" && !["{", "}", ",", "*"].includes(token.text)) return undefined;
    if (isText(token, "}") && !isText(next, "from")) return undefined;
  }
  return undefined;
}

export function isText(token: Token | undefined, text: string): boolean {
  return token !== undefined && token.text === text && token.kind !== "string";
}

/** After these words a slash begins a regular expression; after any other it divides. */
const beforeRegex: ReadonlySet<string> = new Set(
  "return typeof case in of do else void delete throw new await yield instanceof".split(" "),
);

class Scanner {
  readonly #text: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;

  constructor(text: string) {
    this.#text = text;
  }

  tokens(): Token[] {
    this.#code(undefined);
    return this.#tokens;
  }

  /** Scans until the end, or until the brace that closes a template's expression. */
  #code(until: "}" | undefined): void {
    let depth = 0;
    while (this.#at < this.#text.length) {
      const char = this.#text[this.#at]!;
      if (until && depth === 0 && char === until) return;
      if (char === "{") depth++;
      if (char === "}") depth--;
      this.#one(char);
    }
  }

  #one(char: string): void {
    const rest = this.#text.slice(this.#at, this.#at + 2);
    if (/\s/.test(char)) this.#skip(1);
    else if (rest === "//") this.#skip(this.#match(/[^\n]*/y).length);
    else if (rest === "/*") this.#skip(this.#match(/\/\*[\s\S]*?\*\//y).length);
    else if (char === '"' || char === "'") this.#string(char);
    else if (char === "`") this.#template();
    else if (/[\p{L}_$#]/u.test(char)) this.#push("word", this.#match(/[\p{L}\p{N}_$#]+/uy));
    else if (/\d/.test(char)) this.#push("number", this.#match(/[\w.]+/y));
    else if (char === "/" && this.#regexMayBegin()) {
      this.#push("regex", this.#match(/\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/\w*/y));
    } else this.#push("punctuation", char);
  }

  #string(quote: string): void {
    const pattern = quote === '"' ? /"(?:\\[\s\S]|[^"\\])*"/y : /'(?:\\[\s\S]|[^'\\])*'/y;
    const literal = this.#match(pattern);
    this.#tokens.push({ kind: "string", text: literal.slice(1, -1), line: this.#line });
    this.#skip(literal.length);
  }

  #template(): void {
    const index = this.#tokens.length; // its expressions' tokens come after it
    const line = this.#line;
    let text = "";
    this.#tokens.push({ kind: "template", text, line });
    this.#skip(1);
    while (this.#at < this.#text.length && this.#text[this.#at] !== "`") {
      if (this.#text.startsWith("${", this.#at)) {
        this.#skip(2);
        this.#code("}");
        this.#skip(1);
      } else {
        const piece = this.#match(/(?:\\[\s\S]|\$(?!\{)|[^`\\$])+/y);
        text += piece;
        this.#skip(piece.length);
      }
    }
    this.#skip(1);
    this.#tokens[index] = { kind: "template", text, line };
  }

  #regexMayBegin(): boolean {
    // TypeScript's `!` after an operand is not an operator: weights[i]! / scale.
    const asserted = isText(this.#tokens.at(-1), "!") && this.#isOperand(this.#tokens.at(-2));
    return !asserted && !this.#isOperand(this.#tokens.at(-1));
  }

  #isOperand(token: Token | undefined): boolean {
    if (token === undefined) return false;
    if (token.kind === "word") return !beforeRegex.has(token.text);
    return token.kind !== "punctuation" || ")]}".includes(token.text);
  }

  #match(sticky: RegExp): string {
    sticky.lastIndex = this.#at;
    const found = sticky.exec(this.#text)?.[0];
    if (found) return found;
    throw new Error(`line ${this.#line}: ${this.#text.slice(this.#at, this.#at + 40)}: not closed`);
  }

  #push(kind: Token["kind"], text: string): void {
    this.#tokens.push({ kind, text, line: this.#line });
    this.#skip(text.length);
  }

  #skip(count: number): void {
    const end = this.#at + count;
    for (; this.#at < end; this.#at++) if (this.#text[this.#at] === "\n") this.#line++;
  }
}
