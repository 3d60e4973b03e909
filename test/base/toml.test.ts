// The TOML reader: values of every kind, tables in every form, and errors that name the line.

import { expect, test } from "vitest";
import { parseToml } from "../../src/base/toml.ts";

test("values", () => {
  const table = parseToml(`
a = 1          # a comment
b = -1_000
c = 3.5e2
d = 0xff
e = true
"f g" = 'C:\\path'
h.i = "tab\\t \\u00e9 \\" #"
j = [1, [ "x",
  "y", # and a comment
], ]
k = { l = 1, "m n" = { o = [] } }
p = """
one \\
   two
"three" """
q = '''
\\raw'''
r = +inf
s = ""
`);
  expect(JSON.parse(JSON.stringify(table))).toEqual({
    ...{ a: 1, b: -1000, c: 350, d: 255, e: true, "f g": "C:\\path", h: { i: 'tab\t é " #' } },
    ...{ j: [1, ["x", "y"]], k: { l: 1, "m n": { o: [] } } },
    ...{ p: 'one two\n"three" ', q: "\\raw", r: null, s: "" },
  });
  expect(table.r).toBe(Infinity);
});

test("tables, and arrays of tables", () => {
  const table = parseToml(
    '[models."a.b"]\r\nx = 1\r\n[models.c]\r\n[[list]]\nn = 1\n[[list]]\nn = 2\n[list.in]\nm = 3\n',
  );
  expect(JSON.parse(JSON.stringify(table))).toEqual({
    models: { "a.b": { x: 1 }, c: {} },
    list: [{ n: 1 }, { n: 2, in: { m: 3 } }],
  });
});

test("keys of Object.prototype are keys like any other", () => {
  const table = parseToml("__proto__ = 1\nconstructor.x = 2\n");
  expect(Object.keys(table)).toEqual(["__proto__", "constructor"]);
  expect(({} as Record<string, unknown>).x).toBeUndefined();
});

test.each([
  ["a = 1\na = 2", "line 2: a is given twice"],
  ["[a]\n[a]", "line 2: a is given twice"],
  ["a = 1\n[a]", "line 2: a is given twice"],
  ["a = 1\na.b = 2", "line 2: a has a value already, and cannot have keys of its own"],
  ["a = { b = 1 }\na.c = 2", "line 2: a has a value already"],
  ["a = [1]\n[[a]]", "line 2: a is given twice"],
  ["a = word", 'line 1: got "word", expected a value. A text is in quotes'],
  ["a = 2020-01-01", 'line 1: got "2020-01-01", a date or time, which no setting is'],
  ["a = 01", 'line 1: got "01", expected a value'],
  ["a = 1_", 'line 1: got "1_", expected a value'],
  ["a = 1 b = 2", 'line 1: got "b = 2", expected the end of the line'],
  ["a", 'line 1: got the end of the line, expected "="'],
  ["= 1", 'line 1: got "= 1", expected a key'],
  ["\n\na = 'x", "line 3: a text has no closing quote"],
  ['a = """x', 'line 1: a text has no closing """'],
  ['a = "\\q"', 'line 1: got "\\\\q", which is no escape'],
  ['a = "\\ud800"', "which is no escape"],
  ["a = { b = 1, }", 'line 1: got "}" after a comma, expected a key'],
  ["a = [1 2]", 'line 1: got "2]", expected ","'],
  ["[a", 'line 1: got the end of the line, expected "]"'],
  [`a = ${"[".repeat(100)}`, "line 1: values are nested more than 50 deep"],
])("%j is refused", (text, message) => {
  expect(() => parseToml(text)).toThrow(message);
});
