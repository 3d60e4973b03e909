// Templates as llama.cpp's Jinja renders them (jinja-vectors.json), and what real Jinja does where llama.cpp has no test.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { messageOf } from "../../src/base/errors.ts";
import { ChatTemplate } from "../../src/chat/template.ts";

const { cases } = JSON.parse(
  readFileSync(new URL("jinja-vectors.json", import.meta.url), "utf8"),
) as { cases: { name: string; template: string; vars?: object; expect: string }[] };

/** What we render otherwise, by the name of the case. All but the last three are errors that name the reason. */
const others: Readonly<Record<string, string>> = {
  "object comparison": "keys of objects are texts and whole numbers",
  "set dict with mixed type keys": "as above",
  "print dict with mixed type keys": "as above",
  "numeric as object key (template: Seed-OSS)": "objects are not indexed by numbers",
  "empty computed member defaults to undefined": "a[] is no Jinja",
  "empty computed member is undefined": "as above",
  "undefined computed member is undefined": "an undefined index is an error",
  "indent with string": "an indent is a number",
  "is escaped": "nothing is escaped",
  "is filter": "templates cannot ask which filters there are",
  "is test": "nor which tests",
  "undefined|truncate": "there is no truncate",
  "array comparison": "0 and false are told apart in lists",
  "tuple slice": "tuples are lists",
  "print array with mixed types": "as above",
};

function render(template: string, vars: object = {}): string {
  try {
    return new ChatTemplate(template, { bos: "", eos: "" }).render([], { extra: { ...vars } }).text;
  } catch (error) {
    return `error: ${messageOf(error)}`;
  }
}

describe("templates as llama.cpp renders them", () => {
  it(`test-jinja.cpp: ${cases.length - Object.keys(others).length} of ${cases.length} are the same`, () => {
    const different = cases.filter(
      ({ template, vars, expect }) => render(template, vars) !== expect,
    );
    expect(new Set(different.map(({ name }) => name))).toEqual(new Set(Object.keys(others)));
  });
});

// Renderings of Jinja 3.1.6 itself.
describe("templates as Jinja renders them", () => {
  const args = { items: "3", keys: [1, true, null], get: { a: 1.5 } };
  it.each([
    [
      "{% for k, v in args.items() %}{{ k }}={{ v }};{% endfor %}",
      "items=3;keys=[1, True, None];get={'a': 1.5};",
    ],
    ["{{ args.keys()|list }}", "['items', 'keys', 'get']"],
    ["{{ args.get('get') ~ true ~ none }}", "{'a': 1.5}TrueNone"],
    ["{{ 'yes' if not args.none and not [] and not {} else 'no' }}", "yes"],
    [
      "{{ args|length is gt(2) }} {{ 7 is not divisibleby(7) }} {{ 2 is in([1, 2]) }}",
      "True False True",
    ],
    ["{{ [{'n': 2}, {'n': 1}]|selectattr('n', 'gt', 1)|map(attribute='n')|list }}", "[2]"],
    ["{{ [{'n': {'m': 'x'}}]|map(attribute='n.m')|join }}", "x"],
    ["{{ ['a ', ' b']|map('trim')|map('upper')|join(',') }}", "A,B"],
    [
      "{{ [3, 4]|sum }} {{ 2 * 3 }} {{ 2 * 1.5 }} {{ 'ab' * 2 }} {{ []|first is defined }}",
      "7 6 3.0 abab False",
    ],
    ["{{ '{a}-{}-{{'.format(1, a='x') }} {{ '0x1f'|int(base=16) }}", "x-1-{ 31"],
  ])("%s", (template, expected) => {
    expect(render(template, { args })).toBe(expected);
  });
});
