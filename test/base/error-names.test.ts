// The names of errors, which bundlers must not change: a page's script has short names for its classes.

import { describe, expect, test } from "vitest";
import * as errors from "../../src/base/errors.ts";
import * as lantern from "../../src/index.ts";
import { programFolders, sourceFiles } from "../rules/scan.ts";

/** Every class of the sources that is a LanternError: its name and body. */
function errorClasses(): { name: string; body: string }[] {
  const files = sourceFiles(...programFolders, "apps/web/src");
  const classes = files.flatMap(({ text }) =>
    [...text.matchAll(/class (\w+) extends (\w+) \{(.*?)\n?\}\n/gs)].map(([, name, of, body]) => ({
      name: name!,
      of: of!,
      body: body!,
    })),
  );
  const known = new Set(["LanternError"]);
  for (let size = 0; size < known.size; ) {
    size = known.size;
    for (const { name, of } of classes) if (known.has(of)) known.add(name);
  }
  return classes.filter(({ name }) => known.has(name));
}

describe("each error", () => {
  const classes = errorClasses();

  test("are all found", () => {
    expect(classes.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["ApiError", "TabClosedError", "UsageError"]),
    );
  });

  test.each(classes.map(({ name, body }) => [name, body] as const))(
    "%s says its name",
    (name, body) => {
      expect(body).toContain(`override name: string = "${name}";`);
    },
  );
});

test("a class of another name keeps the error's", () => {
  const Short = errors.TabClosedError;
  expect(new Short("x").name).toBe("TabClosedError");
  expect(String(new errors.UsageError("x"))).toBe("UsageError: x");
});

test("every kind of error that callers meet is exported", () => {
  const inner = ["KvRangeError"]; // the model is opened again, and nobody sees it
  const kinds = Object.entries(errors).flatMap(([name, value]) =>
    typeof value === "function" && value.prototype instanceof errors.LanternError ? [name] : [],
  );
  expect(kinds.length).toBeGreaterThan(10);
  const missing = kinds.filter((name) => !(name in lantern) && !inner.includes(name));
  expect(missing).toEqual([]);
});
