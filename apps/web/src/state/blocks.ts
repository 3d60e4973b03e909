// Splits growing Markdown into blocks: a finished block is never parsed again, so an answer of any length costs the
// same per frame. Only the last two blocks are parsed again, because the next text may still change them. A long list
// is shown in pieces: it is one block until it ends, and would be rendered again with every word.

import { Marked, type Token, type Tokens } from "marked";
import { escapeHtml } from "./escape.ts";
import { mathExtension } from "./math.ts";
import { sanitize } from "./sanitize.ts";

export interface Block {
  /** Constant for the life of the block. */
  key: number;
  /** For a code block; undefined: `html` is the block. */
  code?: { text: string; language: string; closed: boolean };
  /** Sanitised. */
  html: string;
  /** Continues the list of the previous block. */
  continued?: true;
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // A model's output is text: tags in it are shown, not interpreted.
    html: ({ text }) => escapeHtml(text),
    // A picture would be a request to another host. Its URL is shown as a link.
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
  },
});
marked.use(mathExtension);

const unfinished = 2;
const itemsPerPiece = 24;

export class MarkdownBlocks {
  #text = "";
  /** The length of the text that the finished blocks cover. */
  #offset = 0;
  #finished: Block[] = [];
  #blocks: readonly Block[] = [];
  /** HTML of list pieces in the last update, by their source. */
  #pieces = new Map<string, string>();

  /** Whether it may contain formulas. */
  get hasMath(): boolean {
    return /\$|\\[([]/.test(this.#text);
  }

  /** The blocks of a text, which usually is the previous one with an appended part. */
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

/** Splits a list into lists of a few items, with continuing numbers. */
function piecesOf(list: Tokens.List): Tokens.List[] {
  const pieces: Tokens.List[] = [];
  for (let at = 0; at < list.items.length; at += itemsPerPiece) {
    const items = list.items.slice(at, at + itemsPerPiece);
    const start = list.start === "" ? "" : list.start + at;
    pieces.push({ ...list, start, items, raw: items.map(({ raw }) => raw).join("") });
  }
  return pieces;
}

/** The start of the last blocks that may still change; blank lines between blocks do not count. */
function openFrom(tokens: readonly Token[]): number {
  let blocks = 0;
  for (let at = tokens.length - 1; at >= 0; at--) {
    if (tokens[at]!.type !== "space" && ++blocks === unfinished) return at;
  }
  return 0;
}

/** Whether a fence is closed; an indented block has none. */
function isClosed(raw: string): boolean {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(raw)?.[1];
  return (
    fence === undefined ||
    raw.trimEnd().split("\n").slice(1).at(-1)?.trim().startsWith(fence) === true
  );
}
