// HTML that came out of Markdown, made harmless: the tags that Markdown needs, links to the web, and nothing else. The
// server's content security policy stands behind this; neither relies on the other.

import createPurifier from "dompurify";

const tags = [
  ...["p", "br", "hr", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6"],
  ...["strong", "em", "del", "code", "pre", "sup", "sub", "a"],
  ...["ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"],
];

const options = {
  ALLOWED_TAGS: tags,
  ALLOWED_ATTR: ["href", "title", "start", "align"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["start", "align"], // these are no addresses
};

const purifier = createPurifier(window);

// A link leaves this page alone: in a new tab, which does not learn where it was opened.
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

export function sanitize(html: string): string {
  return purifier.sanitize(html, options);
}
