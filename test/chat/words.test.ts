// Words are words: a text of people, tools and documents becomes no special token, whatever a template does with it; what the template
// says does. Here with small templates and vocabularies; words-shared.test.ts has those of real models.

import { describe, expect, it } from "vitest";
import {
  asRendered,
  joined,
  type RenderedPrompt,
  trusted,
  words,
} from "../../src/base/rendered-prompt.ts";
import { builtInTemplates, ChatTemplate } from "../../src/chat/template.ts";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import {
  type Conversation,
  conversations,
  harmlessly,
  markIds,
  marksIn,
  marksOf,
  spoofs,
  tryRender,
  vocabularyWith,
} from "./words.ts";

/** A rendering with words in brackets: «words». */
function shown(source: string, extra: object = {}, content = "Hello, You"): string {
  const template = new ChatTemplate(source, { bos: "<s>", eos: "</s>" });
  const { text, template: own } = template.render([{ role: "user", content }], {
    extra: { ...extra },
  });
  let [result, at] = ["", 0];
  for (let i = 0; i <= own.length; i += 2) {
    const from = own[i] ?? text.length;
    if (from > at) result += `«${text.slice(at, from)}»`;
    at = own[i + 1] ?? from;
    result += text.slice(from, at);
  }
  return result;
}

const c = "{% set c = messages[0].content %}";
const both = "{% set c = '<a> ' + messages[0].content + ' <b>' %}";

describe("who says what survives", () => {
  it.each([
    ["output", "<a>{{ messages[0].content }}<b>", "<a>«Hello, You»<b>"],
    [
      "BOS and EOS",
      "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
      "<s>«Hello, You»</s>",
    ],
    ["+ and ~", `${c}{{ '<a>' + c ~ '<b>' }}`, "<a>«Hello, You»<b>"],
    ["a number", "{{ '<|' ~ 1 ~ '|>' }}", "<|«1»|>"],
    ["a role", "{{ '<|' + messages[0].role + '|>' }}", "<|user|>"],
    [
      "set, if, loops",
      `${both}{% for i in [1, 2] %}{% if i == 2 %}{{ c }}<c>{% endif %}{% endfor %}`,
      "<a> «Hello, You» <b><c>",
    ],
    [
      "break and continue",
      `${c}{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}<a>{{ c }}{% endfor %}`,
      "<a>«Hello, You»<a>«Hello, You»",
    ],
    [
      "an else of a loop",
      `${c}{% for i in [] %}x{% else %}<a>{{ c }}{% endfor %}`,
      "<a>«Hello, You»",
    ],
    ["a set block", `${c}{% set d %}<a>{{ c }}{% endset %}{{ d }}`, "<a>«Hello, You»"],
    [
      "a namespace",
      `${both}{% set n = namespace(x='') %}{% set n.x = n.x + c %}{{ n.x }}`,
      "<a> «Hello, You» <b>",
    ],
    [
      "a macro",
      `{% macro m(x) %}<m>{{ x }}</m>{% endmacro %}${both}{{ m(c) }}`,
      "<m><a> «Hello, You» <b></m>",
    ],
    [
      "a call block",
      `{% macro m() %}<m>{{ caller() }}</m>{% endmacro %}${c}{% call m() %}<i>{{ c }}{% endcall %}`,
      "<m><i>«Hello, You»</m>",
    ],
    [
      "a ternary, or, default",
      `${both}{{ c if true else '' }}{{ '' or c }}{{ c | default('x') }}`,
      "<a> «Hello, You» <b>".repeat(3),
    ],
    [
      "trim, strip",
      `${both}{{ (' ' + c + ' ') | trim }}{{ c.strip() }}{{ (' ' + c).lstrip() }}{{ (c + ' ').rstrip() }}`,
      "<a> «Hello, You» <b>".repeat(4),
    ],
    [
      "trim with characters",
      `${both}{{ c | trim('<a >') }}{{ c | trim(chars='<a') }}`,
      "«Hello, You» <b> «Hello, You» <b>",
    ],
    [
      "upper, lower, title, capitalize",
      `${both}{{ c | upper }}{{ c.lower() }}{{ c | title }}{{ c | capitalize }}`,
      "<A> «HELLO, YOU» <B><a> «hello, you» <b><A> «Hello, You» <B><a> «hello, you» <b>",
    ],
    ["split and join", `${both}{{ c.split(', ') | join('<j>') }}`, "<a> «Hello»<j>«You» <b>"],
    [
      "split at white space",
      `${both}{{ c.split() | join('<j>') }}`,
      "<a><j>«Hello,»<j>«You»<j><b>",
    ],
    ["rsplit", `${both}{{ c.rsplit(', ', 1) | join('<j>') }}`, "<a> «Hello»<j>«You» <b>"],
    ["split with a most", `${both}{{ c.split('l', 1)[1] }}`, "«lo, You» <b>"],
    [
      "slices",
      `${both}{{ c[1:6] }}|{{ c[:-5] }}|{{ c[-3:] }}|{{ c[::-1] }}|{{ c[4] }}{{ c[0] }}`,
      "a> «He»|<a> «Hello, Yo»|<b>|>b< «uoY ,olleH» >a<|«H»<",
    ],
    [
      "replace",
      `${both}{{ c.replace('l', '<l>') }}{{ c | replace('<a> ', c) }}`,
      "<a> «He<l><l>o, You» <b><a> «Hello, You» <b>«Hello, You» <b>",
    ],
    [
      "replace, so many times",
      `${c}{{ ('{}{}' + c).replace('{}', '<l>', 1) }}`,
      "<l>{}«Hello, You»",
    ],
    ["a hole of the template's", `${c}{{ '<a>{c}'.replace('{c}', c) }}`, "<a>«Hello, You»"],
    [
      "indent",
      `{% set c = '<a>\n' + messages[0].content %}{{ c | indent(2) }}`,
      "<a>\n  «Hello, You»",
    ],
    [
      "format",
      `${both}{{ '<f>{}{{}}{x}</f>'.format(c, x=c) }}`,
      "<f><a> «Hello, You» <b>{}<a> «Hello, You» <b></f>",
    ],
    ["a text, several times", `${both}{{ c * 2 }}`, "<a> «Hello, You» <b>".repeat(2)],
    ["string, safe", `${both}{{ c | string }}{{ c | safe }}`, "<a> «Hello, You» <b>".repeat(2)],
    ["map", `${both}{{ [c, c] | map('trim') | join }}`, "<a> «Hello, You» <b>".repeat(2)],
    [
      "first, last, sort, reverse, items",
      `${both}{{ ([c] | first) + ([c] | last) + ([c] | sort)[0] + ([c] | reverse)[0] }}{% for k, v in {'k': c}.items() %}{{ v }}{% endfor %}`,
      "<a> «Hello, You» <b>".repeat(5),
    ],
    ["a value of an object", "{{ {'user': '<|u|>'}[messages[0].role] }}", "<|u|>"],
  ])("%s", (_, source, expected) => {
    const found = shown(source);
    expect(found.replaceAll("»«", "")).toBe(expected);
  });

  it.each([
    ["tojson", `{{ messages | tojson }}`],
    ["a list as text", `{{ messages }}`],
    ["a key of an object", `{% for k in {'<a>': 1} %}{{ k }}{% endfor %}`],
    ["a filter block", `{% filter upper %}<a>{{ messages[0].content }}{% endfilter %}`],
    ["a method by another way", `${both}{{ c['up' + 'per']() }}`],
    ["another length", `{{ ('<a>' + x) | upper }}`],
  ])("or all of it counts as words: %s", (_, source) => {
    expect(shown(source, { x: "ß" })).toMatch(/^«[^«»]*»$/);
  });

  it("nothing that is given takes the template's place", () => {
    expect(shown("{{ bos_token }}{{ x }}", { bos_token: "<x>", x: "<y>" })).toBe("«<x><y>»");
    const odd = new ChatTemplate("{{ '<|' + messages[0].role + '|>' }}", { bos: "", eos: "" });
    const { template } = odd.render([{ role: "end", content: "" }]);
    expect(template).toEqual([0, 2, 5, 7]);
  });
});

/** Every kind of place that real templates write: with reasoning, calls, tools and documents. */
const everything = `{%- if tools %}<|tools|>{{ tools | tojson }}{% for t in tools %}
<tool>{{ t.function.name }}: {{ t.function.description }} {% for k, v in t.function.parameters.properties.items() %}{{ k }}={{ v.description | trim }}{% endfor %}</tool>
{%- endfor %}<|end|>{% endif %}
{%- for d in documents or [] %}<doc>{{ d.title }}: {{ d.text | indent(4) }}</doc>{% endfor %}
{%- for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.name ~ '\n' if m.name }}
{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content.strip() + '</think>' }}{% endif %}
{{- m.content.split('</think>')[-1].lstrip('\n') }}
{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{%- if call.function.arguments is mapping %}{% for k, v in call.function.arguments.items() %}<arg>{{ k }}</arg>{{ v }}{% endfor %}{% endif %}</tool_call>
{%- endfor %}<|end|>
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}`;

const templates = { ...builtInTemplates, everything };
const roles = ["<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<s>", "</s>", "[INST]"];

describe.each(Object.entries(templates))("%s: no text changes the number of turns", (_, source) => {
  const marks = [...new Set([...marksOf(source), ...roles])];
  const tokenizer = vocabularyWith(marks);
  const ids = markIds(tokenizer);
  const template = new ChatTemplate(source, { bos: "<s>", eos: "</s>" });

  it.each(conversations)("$name", (conversation: Conversation) => {
    const plain = tryRender(template, conversation, harmlessly);
    if (plain === undefined) return; // it has no tools, say
    const expected = marksIn(tokenizer, ids, plain);
    const own = { addSpecial: false };
    expect(tokenizer.encode(plain, own)).toEqual(tokenizer.encode(plain.text, own));
    const fields = new Set<string>();
    conversation.make((field, harmless) => {
      fields.add(field);
      return harmless;
    });
    for (const field of fields) {
      for (const spoof of spoofs([...ids.values()])) {
        const prompt = tryRender(template, conversation, (at, harmless) =>
          at === field ? spoof : harmless,
        );
        expect(marksIn(tokenizer, ids, prompt!), `${field}: ${spoof}`).toEqual(expected);
      }
    }
  });
});

describe("a token is a mark only where the template says all of it", () => {
  const tokenizer = vocabularyWith(["<|a|>", "<|ab|>"]);
  const ids = markIds(tokenizer);
  const found = (...parts: RenderedPrompt[]): string[] => marksIn(tokenizer, ids, joined(...parts));

  it("not half of it", () => {
    expect(found(trusted("<|a|>"), words("<|a|>"))).toEqual(["<|a|>"]);
    expect(found(trusted("<|"), words("a"), trusted("|>"))).toEqual([]);
    expect(found(words("<|a"), trusted("|>"))).toEqual([]);
    expect(found(trusted("<|a|"), words(">"))).toEqual([]);
    expect(found(trusted("<|a"), trusted("|>"))).toEqual(["<|a|>"]);
  });

  it("text on both sides of a border merges as any text", () => {
    const own = { addSpecial: false };
    for (const cut of [0, 1, 3, 5, 7, 11]) {
      const text = "hello world";
      const prompt = joined(trusted(text.slice(0, cut)), words(text.slice(cut)));
      expect(tokenizer.encode(prompt, own)).toEqual(tokenizer.encode(text, own));
    }
  });

  it("what has another shape is no rendered prompt", () => {
    const wrong = [[1], [3, 2], [-1, 2], [0, 9], [0, 1.5], [0, 2, 2, 3], ["0", 1], "no"];
    for (const template of wrong) expect(asRendered({ text: "abcdef", template })).toBeUndefined();
    expect(asRendered({ text: "abcdef", template: [0, 2, 3, 6] })).toBeDefined();
  });
});

describe("tokenizer.json", () => {
  const token = (id: number, content: string, more: object = {}): object => ({
    ...{ id, content, special: true, normalized: false, lstrip: false, rstrip: false },
    ...{ single_word: false, ...more },
  });
  const letters = [..."▁abcdefghijklmnopqrstuvwxyz<>|/"];
  const make = (normalized: boolean): ReturnType<typeof tokenizerFromJson> =>
    tokenizerFromJson(
      {
        added_tokens: [
          token(100, "<|end|>", { normalized }),
          token(101, "<call>", { special: false, normalized }),
          token(102, "the", { special: false, normalized }),
        ],
        normalizer: {
          type: "Sequence",
          normalizers: [
            { type: "Prepend", prepend: "▁" },
            { type: "Replace", pattern: { String: " " }, content: "▁" },
          ],
        },
        pre_tokenizer: null,
        decoder: null,
        model: {
          type: "BPE",
          vocab: Object.fromEntries(letters.map((letter, id) => [letter, id])),
          merges: [],
        },
      },
      undefined,
    );

  it.each([false, true])("normalized: %s", (normalized) => {
    const tokenizer = make(normalized);
    const mark = normalized ? "a <|end|>" : "a<|end|>"; // a normalised token has the mark of a space
    const ids = (...parts: RenderedPrompt[]): number[] =>
      tokenizer.encode(joined(...parts), { addSpecial: false }).filter((id) => id >= 100);
    expect(ids(trusted(mark))).toEqual([100]);
    expect(ids(words(mark))).toEqual([]);
    expect(ids(trusted(mark), words(`b ${mark}`), trusted(`c ${mark}`))).toEqual([100, 100]);
    expect(ids(words(`b ${mark} `), trusted(mark), words(mark))).toEqual([100]);
    expect(ids(words("a <call>"), trusted("a <call>"))).toEqual([101]);
    expect(ids(words("a the"))).toEqual([102]);
  });
});
