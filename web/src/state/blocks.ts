// Markdown that grows, cut into its blocks: a block that is finished is never looked at again, so that an answer of any
// length costs the same per frame. Only the last two blocks are read anew, since what comes next may still change them.
// A long list is shown in pieces: it is one block until it ends, and would be made anew with every word.

import { Marked, type Token, type Tokens } from "marked";
import { escapeHtml } from "./escape.ts";
import { mathExtension } from "./math.ts";
import { sanitize } from "./sanitize.ts";

export interface Block {
  /** The same as long as the block is. */
  key: number;
  /** Of a block of code; undefined: `html` is the block. */
  code?: { text: string; language: string; closed: boolean };
  /** Sanitised. */
  html: string;
  /** Goes on with the list of the block before it. */
  continued?: true;
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // What a model writes is text: tags in it are shown, not obeyed.
    html: ({ text }) => escapeHtml(text),
    // A picture would be a request to somewhere else. Its address can be looked at and followed.
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
  },
});
marked.use(mathExtension);

const unfinished = 2;
const itemsPerPiece = 24;

export class MarkdownBlocks {
  #text = "";
  /** Of the text, what the finished blocks cover. */
  #offset = 0;
  #finished: Block[] = [];
  #blocks: readonly Block[] = [];
  /** HTML of the pieces of lists in the last update, by what they are made of. */
  #pieces = new Map<string, string>();

  /** Whether there may be formulas in it. */
  get hasMath(): boolean {
    return /\$|\\[([]/.test(this.#text);
  }

  /** The blocks of a text, which mostly is the last one with something added. */
  update(raw: string): readonly Block[] {
    const text = raw.replaceAll(/\r\n?/g, "\n");
    if (text === this.#text) return this.#blocks;
    if (!text.startsWith(this.#text.slice(0, this.#offset))) {
      this.#offset = 0;
      this.#finished = [];
    }
    this.#text = text;
    const tokens = marked.lexer(text.slice(this.#offset));
    const open = tokens.splice(openFrom(tokens));
    for (const token of tokens) {
      this.#offset += token.raw.length;
      if (token.type === "list") this.#pushList(this.#finished, token as Tokens.List, this.#pieces);
      else this.#push(this.#finished, token);
    }
    const blocks = [...this.#finished];
    const known = this.#pieces;
    this.#pieces = new Map();
    for (const token of open) {
      if (token.type === "list") this.#pushList(blocks, token as Tokens.List, known);
      else this.#push(blocks, token);
    }
    this.#blocks = blocks;
    return blocks;
  }

  #pushList(blocks: Block[], list: Tokens.List, known: ReadonlyMap<string, string>): void {
    for (const piece of piecesOf(list)) {
      const source = `${piece.start} ${piece.loose} ${piece.raw}`;
      const html = known.get(source) ?? sanitize(marked.parser([piece]));
      this.#pieces.set(source, html);
      const isFirst = piece.items[0] === list.items[0];
      blocks.push({ key: blocks.length, html, ...(!isFirst && { continued: true }) });
    }
  }

  #push(blocks: Block[], token: Token): void {
    if (token.type === "space" || token.type === "def") return;
    const key = blocks.length;
    if (token.type === "code") {
      const { text, lang = "", raw } = token as Tokens.Code;
      const language = /^[\w+#.-]*/.exec(lang)![0];
      blocks.push({ key, html: "", code: { text, language, closed: isClosed(raw) } });
      return;
    }
    blocks.push({ key, html: sanitize(marked.parser([token])) });
  }
}

/** A list as lists of a few items, which count on from one another. */
function piecesOf(list: Tokens.List): Tokens.List[] {
  const pieces: Tokens.List[] = [];
  for (let at = 0; at < list.items.length; at += itemsPerPiece) {
    const items = list.items.slice(at, at + itemsPerPiece);
    const start = list.start === "" ? "" : list.start + at;
    pieces.push({ ...list, start, items, raw: items.map(({ raw }) => raw).join("") });
  }
  return pieces;
}

/** Where the last blocks begin that may still change; blank lines between blocks are none. */
function openFrom(tokens: readonly Token[]): number {
  let blocks = 0;
  for (let at = tokens.length - 1; at >= 0; at--) {
    if (tokens[at]!.type !== "space" && ++blocks === unfinished) return at;
  }
  return 0;
}

/** A fence that ended; what stands indented has none. */
function isClosed(raw: string): boolean {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(raw)?.[1];
  return (
    fence === undefined ||
    raw.trimEnd().split("\n").slice(1).at(-1)?.trim().startsWith(fence) === true
  );
}
