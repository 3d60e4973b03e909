// Does slow first-time work before a user waits for it: the regular expressions and the parser of Markdown. Otherwise
// the first words of the first answer would block the page for a few frames.

import { MarkdownBlocks } from "./blocks.ts";

/** Samples of all kinds of blocks in answers. */
const samples = [
  "A *few* **words**, `code`, ~~no~~ and a [link](https://example.com) to www.example.com.\nA line.",
  "# Title\n\n- one\n- two\n\n1. one\n\n> said",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\ncode\n```\n\n---\n\n<b>",
];

/** One sample per idle moment, so that each is short. */
export function warmUp(): void {
  const [next] = samples.splice(0, 1);
  if (next === undefined) return;
  new MarkdownBlocks().update(next);
  whenIdle(warmUp);
}

/** Safari has no idle callbacks. */
export function whenIdle(work: () => void): void {
  if ("requestIdleCallback" in window) window.requestIdleCallback(() => work());
  else setTimeout(work, 200);
}
