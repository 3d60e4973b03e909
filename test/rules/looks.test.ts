// A page changes by itself: what a test reads of it must be waited for. `expect(await page.innerText())` looks once, and on a busy
// machine before the page has drawn it; `expect.poll(() => page.innerText())` waits. What must not be there is looked for at once.
// Held against: texts with and without such a look.

import { expect, test } from "vitest";
import { sourceFiles } from "./scan.ts";

const reads =
  "innerText|textContent|inputValue|isVisible|isDisabled|isEnabled|isChecked|allInnerTexts|getAttribute|title|count";
const look = new RegExp(`expect\\(\\s*await [^;]*?\\.(?:${reads})\\([^;]*;.*`, "g");
/** Nothing is there, or a comment on the line says why it is there by then. */
const isMeant = /\)\.(?:not\.|toBe\(0\))|; \/\/ /;

const looksIn = (text: string): string[] =>
  (text.match(look) ?? []).filter((found) => !isMeant.test(found));

test("tests of pages wait for what they read", () => {
  const files = sourceFiles("test/web", "test/browser");
  expect(files.length).toBeGreaterThan(10);
  expect(
    files.flatMap(({ path, text }) => looksIn(text).map((found) => `${path}: ${found}`)),
  ).toEqual([]);
});

test("a look is found, and what is meant is not", () => {
  expect(looksIn('expect(await box.inputValue()).toBe("a");')).toHaveLength(1);
  expect(looksIn('expect(\n  await list.locator("li").count(),\n).toBe(3);')).toHaveLength(1);
  expect(looksIn("expect(await page.locator(bad).count()).toBe(0);")).toEqual([]);
  expect(looksIn("expect(await box.isDisabled()).toBe(true); // in the same step")).toEqual([]);
  expect(looksIn('await expect.poll(() => box.inputValue()).toBe("a");')).toEqual([]);
});
