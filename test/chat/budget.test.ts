// Hostile chat templates end with an error that says so, within a budget; real ones stay far below it.

import { describe, expect, test } from "vitest";
import { AbortedError, ModelError } from "../../src/base/errors.ts";
import { ChatTemplate } from "../../src/chat/template.ts";

const tokens = { bos: "<s>", eos: "</s>" };
const conversation = [{ role: "user", content: "Hello, how are you?" }];

function render(source: string, messages = conversation): string {
  return new ChatTemplate(source, tokens).render(messages).text;
}

function failure(source: string): Error {
  try {
    render(source);
  } catch (error) {
    return error as Error;
  }
  throw new Error("it was rendered");
}

const double = (times: number, statement: string): string =>
  `{% for i in range(${times}) %}${statement}{% endfor %}`;

const tooManySteps = /chat template: rendering was stopped: it takes more than \d+ steps/;
const tooLarge = /chat template: rendering was stopped: its texts and lists have more than/;
const tooDeep = /chat template: rendering was stopped: it is nested more than 400 levels deep/;

describe("a hostile template is stopped:", () => {
  test.each<[string, string, RegExp]>([
    [
      "loops within loops",
      `${"{% for i in range(999) %}".repeat(5)}{{ i }}${"{% endfor %}".repeat(5)}`,
      tooManySteps,
    ],
    ["an endless range", "{% for i in range(1000000000) %}{% endfor %}", tooLarge],
    ["a range of floats", "{{ range(0, 5, 0.0000000001)|length }}", tooLarge],
    [
      "a text that doubles",
      `{% set ns = namespace(x='ab') %}${double(64, "{% set ns.x = ns.x + ns.x %}")}`,
      tooLarge,
    ],
    [
      "a text that doubles by ~",
      `{% set ns = namespace(x='ab') %}${double(64, "{% set ns.x = ns.x ~ ns.x %}")}`,
      tooLarge,
    ],
    [
      "a list that doubles",
      `{% set ns = namespace(x=[1]) %}${double(64, "{% set ns.x = ns.x + ns.x %}")}`,
      tooLarge,
    ],
    [
      "a list of lists, written",
      `{% set ns = namespace(x=[1]) %}${double(64, "{% set ns.x = [ns.x, ns.x] %}")}{{ ns.x }}`,
      tooLarge,
    ],
    [
      "a list of lists, as JSON",
      `{% set ns = namespace(x=[1]) %}${double(64, "{% set ns.x = [ns.x, ns.x] %}")}{{ ns.x|tojson }}`,
      tooLarge,
    ],
    [
      "a list of lists, beside a text",
      `{% set ns = namespace(x=[1]) %}${double(64, "{% set ns.x = [ns.x, ns.x] %}")}{{ 'x' + ns.x }}`,
      tooLarge,
    ],
    [
      "an object that holds itself",
      "{% set ns = namespace() %}{% set ns.x = [ns, ns] %}{{ ns.x|tojson }}",
      tooLarge,
    ],
    [
      "replacing nothing by much",
      `{% set ns = namespace(x='ab') %}${double(16, "{% set ns.x = ns.x + ns.x %}")}{{ ns.x|replace('', ns.x) }}`,
      tooLarge,
    ],
    [
      "the same, by another name",
      `{% set ns = namespace(x='ab') %}${double(16, "{% set ns.x = ns.x + ns.x %}")}{% set f = ns.x['replace'] %}{{ f('a', ns.x) }}`,
      tooLarge,
    ],
    [
      "a long separator",
      `{% set ns = namespace(x='ab') %}${double(16, "{% set ns.x = ns.x + ns.x %}")}{{ range(1000)|join(ns.x) }}`,
      tooLarge,
    ],
    [
      "a wide indent",
      `{% set ns = namespace(x='a\n') %}${double(16, "{% set ns.x = ns.x + ns.x %}")}{{ ns.x|indent(100000) }}`,
      tooLarge,
    ],
    ["JSON with a wide indent", "{{ [1, [2, [3]]]|tojson(indent=400000000) }}", tooLarge],
    [
      "a stretch of the template, filtered",
      "{% filter indent(400000000) %}a\nb\n{% endfilter %}",
      tooLarge,
    ],
    [
      "format",
      `{% set ns = namespace(x='ab') %}${double(16, "{% set ns.x = ns.x + ns.x %}")}{{ '${"{0}".repeat(9999)}'.format(ns.x) }}`,
      tooLarge,
    ],
    [
      "searching a long text, often",
      `{% set ns = namespace(x='ab') %}${double(18, "{% set ns.x = ns.x + ns.x %}")}${double(9999, "{% if 'c' in ns.x %}{% endif %}")}`,
      tooLarge,
    ],
    ["a macro that calls itself", "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", tooDeep],
    [
      "a macro that calls itself twice",
      "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
      tooManySteps,
    ],
  ])("%s", (_, source, message) => {
    const error = failure(source);
    expect(error).toBeInstanceOf(ModelError);
    expect(error.message).toMatch(message);
    expect(error.message).toContain("Choose another template with chatTemplate");
  });

  test("one of megabytes is not even read", () => {
    expect(() => render("{{ 1 }}".repeat(200_000))).toThrow(
      "chat template: got 1400000 characters, expected at most 1000000",
    );
  });
});

test("the budget grows with the conversation", () => {
  const source =
    "{% for message in messages %}{% for other in messages %}{% if other.content == message.content %}{{ loop.index }} {% endif %}{% endfor %}{{ message.content|trim|replace('a', 'bb') }}{% endfor %}";
  const messages = Array.from({ length: 300 }, (_, i) => ({ role: "user", content: `${i}` }));
  expect(render(source, messages)).toMatch(/^1 02 13 24 3/);
  const long = [{ role: "user", content: "long ".repeat(2_000_000) }];
  expect(render("{% for m in messages %}{{ m.content|trim }}{% endfor %}", long)).toHaveLength(
    9_999_999,
  );
});

test("break and continue leave the depth as it was", () => {
  const source = `${double(500, "{% if i > 1 %}{% if i > 2 %}{% continue %}{% endif %}{% break %}{% endif %}")}${double(900, "{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{% endfor %}")}ok`;
  expect(render(source)).toBe("ok");
});

test("a rendering for which nobody waits any more stops", () => {
  let looks = 0;
  const check = (): void => {
    if (++looks === 3) throw new AbortedError("the rendering");
  };
  const template = new ChatTemplate("{% for i in range(99999) %}{{ i }}{% endfor %}", tokens);
  expect(() => template.render(conversation, { check })).toThrow(AbortedError);
  expect(looks).toBe(3);
});
