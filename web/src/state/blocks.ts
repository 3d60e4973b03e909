// Markdown that grows, cut into its blocks: a block that is finished is never looked at again, so that an answer of any
// length costs the same per frame. Only the last two blocks are read anew, since what comes next may still change them.

import { Marked, type Token, type Tokens } from "marked";
import { sanitize } from "./sanitize.ts";

export interface Block {
  /** The same as long as the block is. */
  key: number;
  /** Of a block of code; undefined: `html` is the block. */
  code?: { text: string; language: string };
  /** Sanitised. */
  html: string;
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

const unfinished = 2;

export class MarkdownBlocks {
  #text = "";
  /** Of the text, what the finished blocks cover. */
  #offset = 0;
  #finished: Block[] = [];
  #blocks: readonly Block[] = [];

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
      this.#push(this.#finished, token);
    }
    const blocks = [...this.#finished];
    for (const token of open) this.#push(blocks, token);
    this.#blocks = blocks;
    return blocks;
  }

  #push(blocks: Block[], token: Token): void {
    if (token.type === "space" || token.type === "def") return;
    const key = blocks.length;
    if (token.type === "code") {
      const { text, lang = "" } = token as Tokens.Code;
      blocks.push({ key, html: "", code: { text, language: /^[\w+#.-]*/.exec(lang)![0] } });
      return;
    }
    blocks.push({ key, html: sanitize(marked.parser([token])) });
  }
}

/** Where the last blocks begin that may still change; blank lines between blocks are none. */
function openFrom(tokens: readonly Token[]): number {
  let blocks = 0;
  for (let at = tokens.length - 1; at >= 0; at--) {
    if (tokens[at]!.type !== "space" && ++blocks === unfinished) return at;
  }
  return 0;
}

function escapeHtml(text: string): string {
  const entities: Readonly<Record<string, string>> = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "'": "&#39;",
  };
  return text.replaceAll(/[&<>"']/g, (letter) => entities[letter]!);
}
