// The text that is being typed: events in, a new text and cursor out. Pure, without a terminal: view.ts lays it out, keys.ts reads the
// keys, input.ts connects them. Keys are those of GNU readline; a text may have many lines.

import type { InputEvent } from "./keys.ts";
import type { Recall } from "./recall.ts";
import { clustersOf } from "./widths.ts";

/** The end of an edit. */
export type Answer =
  | { readonly kind: "submit"; readonly text: string }
  /** Ctrl-C. `hadText`: it has cleared a text. */
  | { readonly kind: "interrupt"; readonly hadText: boolean }
  | { readonly kind: "end" };

/** A key's request to the caller; any other key has only changed the text. */
export type Outcome = Answer | { readonly kind: "clear screen" | "suspend" | "quit" };

export interface EditorOptions {
  /** Earlier texts; none: a question, which is answered once. */
  readonly recall?: Recall;
  /** The effect of Enter after this text: undefined: it is complete; otherwise the text continues as the result. */
  readonly goesOn?: (text: string) => string | undefined;
  /** The completion of the text with Tab. */
  readonly complete?: (text: string) => string | undefined;
  /** The position one row up or down, if there is one: the layout knows it. */
  readonly vertical?: (editor: Editor, rows: -1 | 1) => number | undefined;
}

/** A search in earlier texts (Ctrl-R). */
interface Search {
  query: string;
  /** The index of the match in the list. */
  at: number;
  readonly before: { text: string; cursor: number };
}

export class Editor {
  text = "";
  /** Between two clusters. */
  cursor = 0;
  readonly #options: EditorOptions;
  /** The text that was cut last. */
  #cut: string;
  #search: Search | undefined;

  constructor(options: EditorOptions, cut = "") {
    this.#options = options;
    this.#cut = cut;
  }

  /** For the next editor: the text that Ctrl-Y inserts. */
  get cut(): string {
    return this.#cut;
  }

  /** The search text, during a search. */
  get searched(): string | undefined {
    return this.#search?.query;
  }

  handle(event: InputEvent): Outcome | undefined {
    if (this.#search && this.#searchOn(event)) return undefined;
    if (event.kind === "text" || event.kind === "paste") this.insert(event.text);
    else if (event.kind === "key") {
      edits.get(event.key)?.(this);
      return asks.get(event.key)?.(this);
    }
    return undefined;
  }

  insert(text: string): void {
    this.replace(this.cursor, this.cursor, text);
  }

  replace(from: number, to: number, text: string): void {
    this.text = this.text.slice(0, from) + text + this.text.slice(to);
    this.cursor = from + text.length;
  }

  enter(): Outcome | undefined {
    const on = this.#options.goesOn?.(this.text);
    if (on === undefined) return { kind: "submit", text: this.text };
    // A line that continues is split at the cursor; the rest of the new text (without its backslash) is at its end.
    if (this.cursor < this.text.length) this.insert("\n");
    else this.replace(0, this.text.length, on);
    return undefined;
  }

  interrupt(): Outcome {
    const hadText = this.text !== "";
    if (hadText) this.#cut = this.text;
    return { kind: "interrupt", hadText };
  }

  deleteOrEnd(): Outcome | undefined {
    if (this.text === "") return { kind: "end" };
    this.replace(this.cursor, this.next(), "");
    return undefined;
  }

  cutRange(from: number, to: number): void {
    if (from === to) return;
    this.#cut = this.text.slice(from, to);
    this.replace(from, to, "");
  }

  paste(): void {
    this.insert(this.#cut);
  }

  swap(): void {
    const start = this.lineStart();
    const at = this.cursor === this.lineEnd() ? this.previous() : this.cursor;
    if (at <= start) return;
    const first = this.previous(at);
    const last = this.next(at);
    this.replace(first, last, this.text.slice(at, last) + this.text.slice(first, at));
  }

  complete(): void {
    const completed = this.#options.complete?.(this.text);
    if (completed !== undefined) this.replace(0, this.text.length, completed);
    else if (!this.text.startsWith("/")) this.insert("\t");
  }

  vertical(rows: -1 | 1): void {
    const place = this.#options.vertical?.(this, rows);
    if (place !== undefined) this.cursor = place;
    else this.recall(rows);
  }

  recall(steps: -1 | 1): void {
    const text = this.#options.recall?.move(steps, this.text);
    if (text !== undefined) this.replace(0, this.text.length, text);
  }

  lineStart(): number {
    return this.cursor === 0 ? 0 : this.text.lastIndexOf("\n", this.cursor - 1) + 1;
  }

  lineEnd(): number {
    const end = this.text.indexOf("\n", this.cursor);
    return end < 0 ? this.text.length : end;
  }

  /** The position one cluster before. */
  previous(from: number = this.cursor): number {
    if (from === 0) return 0;
    const start = this.text.lastIndexOf("\n", from - 1) + 1;
    const last = clustersOf(this.text.slice(start, from)).at(-1);
    return from - (last?.text.length ?? 1); // without one, over the line break
  }

  next(from: number = this.cursor): number {
    if (from >= this.text.length) return this.text.length;
    const end = this.text.indexOf("\n", from);
    const [first] = clustersOf(this.text.slice(from, end < 0 ? this.text.length : end));
    return from + (first?.text.length ?? 1);
  }

  /** `blanks`: words end at blanks only, as for Ctrl-W. */
  wordLeft(blanks = false): number {
    const isWord = blanks ? notBlank : letter;
    let at = this.cursor;
    while (at > 0 && !isWord.test(this.text[at - 1]!)) at--;
    while (at > 0 && isWord.test(this.text[at - 1]!)) at--;
    return at;
  }

  wordRight(): number {
    let at = this.cursor;
    while (at < this.text.length && !letter.test(this.text[at]!)) at++;
    while (at < this.text.length && letter.test(this.text[at]!)) at++;
    return at;
  }

  search(): void {
    const { recall } = this.#options;
    if (recall === undefined) return;
    const before = { text: this.text, cursor: this.cursor };
    this.#search = { query: "", at: recall.texts.length, before };
  }

  /** False: the search has ended, and the event is for the text that was found. */
  #searchOn(event: InputEvent): boolean {
    const search = this.#search!;
    const key = event.kind === "key" ? event.key : "";
    if (event.kind === "text" || event.kind === "paste") {
      search.query += event.text.replaceAll("\n", " ");
      this.#find(search.at + 1);
    } else if (key === "backspace") {
      search.query = search.query.slice(0, -(clustersOf(search.query).at(-1)?.text.length ?? 1));
      this.#find(this.#options.recall!.texts.length);
    } else if (key === "ctrl-r") this.#find(search.at);
    else if (key === "ctrl-g" || key === "ctrl-c" || key === "escape") {
      this.text = search.before.text;
      this.cursor = search.before.cursor;
      this.#search = undefined;
    } else {
      this.#search = undefined;
      return false;
    }
    return true;
  }

  /** The last text before an index of the list that contains the search text. */
  #find(before: number): void {
    const search = this.#search!;
    const { texts } = this.#options.recall!;
    for (let at = Math.min(before, texts.length) - 1; at >= 0 && search.query !== ""; at--) {
      const found = texts[at]!.indexOf(search.query);
      if (found < 0) continue;
      search.at = at;
      this.text = texts[at]!;
      this.cursor = found;
      return;
    }
  }
}

// A half of a surrogate pair counts as a letter: words of such characters stay whole.
const letter = /[\p{L}\p{N}\p{M}\p{Cs}_]/u;
const notBlank = /\S/;

type Place = (editor: Editor) => number;
type Edit = (editor: Editor) => void;

const here: Place = (editor) => editor.cursor;
const cut =
  (from: Place, to: Place): Edit =>
  (editor) =>
    editor.cutRange(from(editor), to(editor));

// biome-ignore format: a table
const moves: readonly (readonly [keys: string, to: Place])[] = [
  ["left ctrl-b", (editor) => editor.previous()],
  ["right ctrl-f", (editor) => editor.next()],
  ["home ctrl-a", (editor) => editor.lineStart()],
  ["end ctrl-e", (editor) => editor.lineEnd()],
  ["ctrl-home", () => 0],
  ["ctrl-end", (editor) => editor.text.length],
  ["ctrl-left alt-left alt-b", (editor) => editor.wordLeft()],
  ["ctrl-right alt-right alt-f", (editor) => editor.wordRight()],
];

// biome-ignore format: a table
const changes: readonly (readonly [keys: string, edit: Edit])[] = [
  ["alt-enter shift-enter alt-shift-enter ctrl-enter ctrl-j ctrl-alt-j", (editor) => editor.insert("\n")],
  ["up", (editor) => editor.vertical(-1)],
  ["down", (editor) => editor.vertical(1)],
  ["ctrl-p page-up", (editor) => editor.recall(-1)],
  ["ctrl-n page-down", (editor) => editor.recall(1)],
  ["ctrl-r", (editor) => editor.search()],
  ["backspace shift-backspace", (editor) => editor.replace(editor.previous(), editor.cursor, "")],
  ["delete", (editor) => editor.replace(editor.cursor, editor.next(), "")],
  ["ctrl-k", cut(here, endToCut)],
  ["ctrl-u", cut(startToCut, here)],
  ["ctrl-w", cut((editor) => editor.wordLeft(true), here)],
  ["alt-backspace ctrl-backspace", cut((editor) => editor.wordLeft(), here)],
  ["alt-d ctrl-delete", cut(here, (editor) => editor.wordRight())],
  ["ctrl-y", (editor) => editor.paste()],
  ["ctrl-t", (editor) => editor.swap()],
  ["tab", (editor) => editor.complete()],
];

const byKey = <T>(rows: readonly (readonly [keys: string, value: T])[]): ReadonlyMap<string, T> =>
  new Map(rows.flatMap(([keys, value]) => keys.split(" ").map((key) => [key, value] as const)));

const edits: ReadonlyMap<string, Edit> = byKey([
  ...changes,
  ...moves.map(
    ([keys, to]) =>
      [
        keys,
        (editor: Editor): void => {
          editor.cursor = to(editor);
        },
      ] as const,
  ),
]);

const asks: ReadonlyMap<string, (editor: Editor) => Outcome | undefined> = byKey([
  ["enter", (editor: Editor) => editor.enter()],
  ["ctrl-c", (editor: Editor) => editor.interrupt()],
  ["ctrl-d", (editor: Editor) => editor.deleteOrEnd()],
  ["ctrl-l", (): Outcome => ({ kind: "clear screen" })],
  ["ctrl-z", (): Outcome => ({ kind: "suspend" })],
  ["ctrl-\\", (): Outcome => ({ kind: "quit" })],
]);

/** At the end of a line its break is cut, so that pressing on takes the next line. */
function endToCut(editor: Editor): number {
  const end = editor.lineEnd();
  return end === editor.cursor ? editor.next() : end;
}

function startToCut(editor: Editor): number {
  const start = editor.lineStart();
  return start === editor.cursor ? editor.previous() : start;
}
