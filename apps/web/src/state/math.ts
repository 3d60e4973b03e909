// Formulas: text between $ and $, $$ and $$, \( and \), \[ and \], as MathML, which browsers render. KaTeX translates
// it and is loaded with the first formula; until then the source is shown.
//
// MathML needs no style attributes and no fonts of its own, so the page's strict policy can stay.

import type { MarkedExtension, Tokens } from "marked";
import { escapeHtml } from "./escape.ts";
import { Store } from "./store.ts";

/** Whether KaTeX is loaded. Text with formulas is rendered again when this changes. */
export const mathReady: Store<boolean> = new Store(false);

type Katex = typeof import("katex")["default"];

let katex: Katex | undefined;
let isAsked = false;

async function load(): Promise<void> {
  if (isAsked) return;
  isAsked = true;
  try {
    katex = (await import("katex")).default;
    mathReady.set(true);
  } catch {
    isAsked = false; // the server has gone; the next formula tries again
  }
}

/** HTML that is not sanitised yet. */
function mathHtml(tex: string, display: boolean, raw: string): string {
  if (!katex) {
    void load();
    return `<code>${escapeHtml(raw.trim())}</code>`;
  }
  try {
    return katex.renderToString(tex, {
      displayMode: display,
      output: "mathml",
      throwOnError: true,
      trust: false,
      strict: "ignore",
      maxExpand: 200,
      maxSize: 20,
    });
  } catch {
    return `<code>${escapeHtml(raw.trim())}</code>`; // half a formula, or an unknown command
  }
}

interface MathToken extends Tokens.Generic {
  tex: string;
  display: boolean;
}

const displayRule = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
/** "$5 and $6" is money: no space inside the signs, and no digit after the second. */
const inlineRule =
  /^(?:\$\$((?:[^$\\]|\\[\s\S])+?)\$\$|\$(?![\s$])((?:[^$\\\n]|\\.)+?)(?<!\s)\$(?!\d)|\\\(([^\n]+?)\\\)|\\\[([^\n]+?)\\\])/;

function token(type: string, match: RegExpExecArray | null): MathToken | undefined {
  if (!match) return undefined;
  const [raw, ...groups] = match;
  const tex = groups.find((group) => group !== undefined) ?? "";
  const display = type === "mathBlock" || raw.startsWith("$$") || raw.startsWith("\\[");
  return tex.trim() === "" ? undefined : { type, raw, tex: tex.trim(), display };
}

function renderer(found: Tokens.Generic): string {
  const { tex, display, raw } = found as MathToken;
  return mathHtml(tex, display, raw);
}

export const mathExtension: MarkedExtension = {
  extensions: [
    {
      name: "mathBlock",
      level: "block",
      start: (source) => source.match(/^ {0,3}(?:\$\$|\\\[)/m)?.index,
      tokenizer: (source) => token("mathBlock", displayRule.exec(source)),
      renderer: (found) => `<p>${renderer(found)}</p>`,
    },
    {
      name: "math",
      level: "inline",
      start: (source) => source.match(/\$|\\[([]/)?.index,
      tokenizer: (source) => token("math", inlineRule.exec(source)),
      renderer,
    },
  ],
};
