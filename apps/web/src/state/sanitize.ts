// Sanitises HTML from Markdown: allows only the tags of Markdown and formulas, and links to the web. The server's
// content security policy is a second line of defence; neither relies on the other.

import createPurifier, { type Config } from "dompurify";
import { policy } from "./trusted.ts";

/** It parses HTML, so it needs the page's policy, too. */
const own = policy as unknown as NonNullable<Config["TRUSTED_TYPES_POLICY"]>;

const tags = [
  ...["p", "br", "hr", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6"],
  ...["strong", "em", "del", "code", "pre", "sup", "sub", "a", "input"],
  ...["ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"],
];

/** KaTeX's tags, without links, pictures, notes and styles. */
const mathTags = [
  ...["math", "mrow", "mi", "mo", "mn", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot"],
  ...["msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts"],
  ...["mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose", "mstyle"],
];

const mathAttributes = [
  ...["display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "fence", "separator"],
  ...["symmetric", "largeop", "movablelimits", "accent", "accentunder", "form", "lspace", "rspace"],
  ...["minsize", "maxsize", "linethickness", "width", "height", "depth", "voffset", "notation"],
  ...["columnalign", "columnspacing", "rowspacing", "columnlines", "rowlines", "mathcolor"],
];

const options = {
  TRUSTED_TYPES_POLICY: own,
  ALLOWED_TAGS: [...tags, ...mathTags],
  ALLOWED_ATTR: ["href", "title", "start", "align", "type", "checked", ...mathAttributes],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  // These are not URLs.
  ADD_URI_SAFE_ATTR: ["start", "align", "type", "checked", ...mathAttributes],
};

/** Elements with their own text direction: a right-to-left paragraph between left-to-right ones. */
const ownDirection = new Set([
  ...["P", "LI", "UL", "OL", "TABLE", "TD", "TH", "BLOCKQUOTE", "H1", "H2", "H3", "H4", "H5", "H6"],
]);

const purifier = createPurifier(window);

purifier.addHook("uponSanitizeElement", (node) => {
  // KaTeX repeats the formula's source for programs; without its tag it would be shown.
  if (node.nodeName.toLowerCase() === "annotation") node.textContent = "";
});

purifier.addHook("afterSanitizeAttributes", (node) => {
  // A link opens in a new tab, which does not learn the page's URL.
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  } else if (node.tagName === "INPUT") {
    asCheckbox(node);
  } else if (ownDirection.has(node.tagName)) {
    node.setAttribute("dir", "auto");
    // A wide table is scrolled, also with the keyboard.
    if (node.tagName === "TABLE") node.setAttribute("tabindex", "0");
  }
});

/** The only input allowed: a disabled checkbox of a task list. */
function asCheckbox(node: Element): void {
  if (node.getAttribute("type") !== "checkbox") {
    node.remove();
    return;
  }
  const isDone = node.hasAttribute("checked");
  for (const name of node.getAttributeNames()) node.removeAttribute(name);
  node.setAttribute("type", "checkbox");
  node.setAttribute("disabled", "");
  if (isDone) node.setAttribute("checked", "");
  node.setAttribute("aria-label", isDone ? "Done" : "To do");
}

export function sanitize(html: string): string {
  return purifier.sanitize(html, options);
}

const coder = createPurifier(window);

coder.addHook("uponSanitizeAttribute", (_, data) => {
  if (data.attrName !== "class" || !/^[a-z_ -]+$/.test(data.attrValue)) data.keepAttr = false;
});

/** Highlighted code: spans with classes. */
export function sanitizeCode(html: string): string {
  return coder.sanitize(html, {
    TRUSTED_TYPES_POLICY: own,
    ALLOWED_TAGS: ["span"],
    ALLOWED_ATTR: ["class"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  });
}
