// Every error of a chat template names its place, what was got and expected, and a next step.

import { describe, expect, test } from "vitest";
import { LanternError, ModelError, UsageError } from "../../src/base/errors.ts";
import { ChatTemplate } from "../../src/chat/template.ts";

function failure(source: string): Error {
  try {
    new ChatTemplate(source, { bos: "<s>", eos: "</s>" }).render([{ role: "user", content: "Hi" }]);
  } catch (error) {
    return error as Error;
  }
  throw new Error("it was rendered");
}

const nextStep =
  /\. Choose another template with chatTemplate \(chatml, llama2, .*\), or correct this one$/;
const value = "expected a value";
const statements = "expected if, for, set, macro, call, filter, break, continue or generation";

describe("a template that cannot be parsed:", () => {
  test.each([
    ["{% if %}", "line 1, {% if %}: got %}, expected a value"],
    ["a\n{% if x %}b", "line 2, {% if x %}: got the end of the template, expected {% endif %}"],
    ["\n\n{% for m in messages %}", "line 3, {% for m in messages %}: got the end of the"],
    ["{% for %}", `line 1, {% for %}: got %}, ${value}`],
    ["{% for a b %}", "line 1, {% for a b %}: got b, expected `in` keyword"],
    ["{% macro f(a) %}\n{{ a }}", "line 1, {% macro f(a) %}: got the end of the template"],
    ["{% macro %}{% endmacro %}", `line 1, {% macro %}: got %}, ${value}`],
    ["{% call f() %}", "expected {% endcall %}"],
    ["{% call x %}{% endcall %}", "line 1, {% call x %}: got %}, expected ("],
    ["{% filter upper %}", "expected {% endfilter %}"],
    ["{% filter %}{% endfilter %}", `line 1, {% filter %}: got %}, ${value}`],
    ["{% set x %}a", "line 1, {% set x %}: got the end of the template, expected {% endset %}"],
    ["{% set x = %}", `line 1, {% set x = %}: got %}, ${value}`],
    ["{% endfor %}", "line 1, {% endfor %}: got endfor, but no block is open here"],
    ["{% else %}", "line 1, {% else %}: got else, but no block is open here"],
    [
      "{% for m in messages %}\n{% if x %}\n{% endfor %}",
      "line 3, {% endfor %}: got endfor, expected {% endif %}, since {% if x %} of line 2 is open",
    ],
    ["{% raw %}", `line 1, {% raw %}: got the statement "raw", ${statements}`],
    ["{% %}", `line 1, {% %}: got %}, ${statements}`],
    ["{{ }}", `line 1, {{ }}: got }}, ${value}`],
    ["{{ (1 }}", "line 1, {{ (1 }}: got }}, expected )"],
    ["{{ {'a' 1} }}", "got 1, expected :"],
    ["\n{{ x", "line 2, {{ x: got the end of the template, expected }}"],
    ["{% if x", "line 1, {% if x: got the end of the template, expected %}"],
    ["{# x", "line 1, {# x: got the end of the template, expected #}"],
    ["{{ 'abc }}", "got the end of the template in a text, expected '"],
    [String.raw`{{ 'a\q' }}`, String.raw`got the escape \q, expected one of \n`],
    ["{{ a ! b }}", 'line 1, {{ a !: got "!", expected an operator or a value'],
    // A tag's text holds what looks like tags; comments and generation are not blocks.
    ["{{ '%}\n{% if' }}{# {% if #}{% generation %}\n{% if %}", "line 3, {% if %}: got %}"],
  ])("%j", (source, words) => {
    const error = failure(source);
    expect(error).toBeInstanceOf(ModelError);
    expect(error.message).toContain("chat template: it cannot be parsed: line ");
    expect(error.message).toContain(words);
    expect(error.message).toMatch(nextStep);
  });
});

test("one that is nested too deeply names the tag", () => {
  const { message } = failure(`\n{{ ${"[".repeat(20_000)} }}`);
  expect(message).toMatch(
    /^chat template: it cannot be parsed: line 2, \{\{ \[+\.\.\.: its expressions/,
  );
  expect(message).toMatch(nextStep);
});

describe("a template that cannot be rendered:", () => {
  test.each([
    ["{{ foo(1) }}", "line 1, {{ foo(1) }}: got a call of foo, which is undefined"],
    [
      "\n{% for m in messages %}\n{{ m.foo.bar() }}{% endfor %}",
      "line 3, {{ m.foo.bar() }}: got a call of m.foo.bar, which is undefined, expected a function",
    ],
    ["{% if messages[0].x.strip() %}{% endif %}", "got a call of messages[0].x.strip, which is"],
    ["{% if x %}{% elif\ny() %}{% endif %}", "line 1, {% elif y() %}: got a call of y"],
    ["{% if x %}{% else %}\n{{ y() }}{% endif %}", "line 2, {{ y() }}: got a call of y"],
    ["{% macro f() %}\n{{ y() }}{% endmacro %}\n{{ f() }}", "line 2, {{ y() }}: got a call"],
    ["{% set x %}\n{{ y() }}{% endset %}", "line 2, {{ y() }}: got a call of y"],
    ["{% set x | replace(a=1) %}{% endset %}\n{{ y() }}", "line"],
    ["{% filter upper %}\n{{ y() }}{% endfilter %}", "line 2, {{ y() }}: got a call of y"],
    ["{% filter nofilter %}a{% endfilter %}", 'got the filter "nofilter" for a text'],
    ["{{ 'x'|nofilter }}", "line 1, {{ 'x'|nofilter }}: got the filter \"nofilter\" for a text"],
    [
      "{{ 1 is odder }}",
      'line 1, {{ 1 is odder }}: got the test "odder", expected a test of Jinja',
    ],
    ["{{ 1 is odder(2) }}", 'got the test "odder"'],
    ["{{ messages|select('odder') }}", 'got the test "odder"'],
    ["{{ missing + 1 }}", "got missing + 1 where one of them is undefined or none"],
    ["{{ [] < 1 }}", 'Unknown operator "<" between a list and an integer'],
    ["{% break %}", "line 1, {% break %}: got break outside of a loop"],
    ["{% for m in messages %}{% break %}{% endfor %}\n{{ y() }}", "line 2, {{ y() }}: got a"],
  ])("%j", (source, words) => {
    const error = failure(source);
    expect(error).toBeInstanceOf(ModelError);
    expect(error.message).toContain("line ");
    expect(error.message).toContain(words);
    expect(error.message).toMatch(nextStep);
  });

  test("its own refusal stays its own words, and says where they are", () => {
    const error = failure(
      "\n{% if true %}{{ raise_exception('Roles must alternate!') }}{% endif %}",
    );
    expect(error).toBeInstanceOf(UsageError);
    expect(error.message).toBe(
      "chat template: it refuses this conversation: Roles must alternate! (line 2 of the template)",
    );
  });

  test("one that costs too much says where", () => {
    const inner = "\n{% for j in range(300) %}{{ j }}{% endfor %}";
    const error = failure(`{% for i in range(300) %}${inner}{% endfor %}`);
    expect(error).toBeInstanceOf(LanternError);
    expect(error.message).toMatch(/it takes more than .* \(line 2, \{/);
    expect(error.message).toMatch(nextStep);
  });
});
