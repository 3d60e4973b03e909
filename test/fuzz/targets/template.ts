// Chat templates: Jinja programs from a grammar, and real ones with pieces of them, on awkward conversations.

import { asRendered } from "../../../src/base/rendered-prompt.ts";
import { builtInTemplates, ChatTemplate } from "../../../src/chat/template.ts";
import { type Random, seededRandom } from "../../formats/mutate.ts";
import { awkwardJson, awkwardStrings } from "../awkward.ts";
import { type FuzzTarget, type Json, refusal } from "../target.ts";

interface Input {
  source: string;
  messages: Json[];
  tools?: Json[];
}

type Rule = (random: Random, depth: number) => string;

const names = "messages message m x loop tools bos_token ns raise_exception namespace".split(" ");
const filters =
  "trim upper length tojson default('a') join(',') list first last reverse int float string items map(attribute='role') selectattr('role') sort unique replace('a','b') indent(2) capitalize dictsort abs safe title".split(
    " ",
  );
const tests = "defined none string mapping iterable sequence number odd even boolean true".split(
  " ",
);
const operators = "+ - * / % // ~ == != < > <= >= and or in".split(" ");
const numbers = ["0", "1", "-1", "3", "2.5", "100", "99999999", "1e9", "0x10", "9007199254740993"];

const expression: Rule = (random, depth) => {
  const again = (): string => expression(random, depth - 1);
  if (depth <= 0)
    return random.pick([random.pick(names), random.pick(numbers), "'a'", "none", "[]"]);
  switch (random.below(13)) {
    case 0:
      return `${again()}|${random.pick(filters)}`;
    case 1:
      return `(${again()} ${random.pick(operators)} ${again()})`;
    case 2:
      return `${again()}.${random.pick(["role", "content", "constructor", "__proto__", "split('a')", "items()", "strip()", "x"])}`;
    case 3:
      return `${again()}[${random.pick([again(), ":1", "-1:", "::-1", "::0", "1:2:3"])}]`;
    case 4:
      return `[${again()}, ${again()}]`;
    case 5:
      return `{'a': ${again()}, ${again()}: 1}`;
    case 6:
      return `(${again()} if ${again()} else ${again()})`;
    case 7:
      return `${again()} is ${random.pick(["", "not "])}${random.pick(tests)}`;
    case 8:
      return `range(${random.pick(numbers)})`;
    case 9:
      return `${random.pick(["namespace", "raise_exception", "strftime_now", "x", "f"])}(${again()})`;
    case 10:
      return JSON.stringify(random.pick(awkwardStrings));
    case 11:
      return `'{} {0} {a}'.format(${again()})`;
    default:
      return random.pick(names);
  }
};

const block: Rule = (random, depth) => {
  const inner = (): string => (depth > 0 ? block(random, depth - 1) : "t");
  const value = (): string => expression(random, 2);
  switch (random.below(11)) {
    case 0:
      return `{% for ${random.pick(["m", "x", "a, b"])} in ${value()} %}${inner()}{% endfor %}`;
    case 1:
      return `{% if ${value()} %}${inner()}{% elif ${value()} %}b{% else %}${inner()}{% endif %}`;
    case 2:
      return `{% set ${random.pick(["x", "ns.a", "a, b", "m"])} = ${value()} %}`;
    case 3:
      return `{% macro f(a, b=1) %}${inner()}{% endmacro %}{{ f(${value()}) }}`;
    case 4:
      return `{%- for m in messages -%}${inner()}{{ m.content }}{%- endfor -%}`;
    case 5:
      return `{# ${random.pick(awkwardStrings)} #}${inner()}`;
    case 6:
      return `{% filter upper %}${inner()}{% endfilter %}`;
    case 7:
      return `{% set x %}${inner()}{% endset %}{{ x }}`;
    case 8:
      return `{% generation %}${inner()}{% endgeneration %}`;
    case 9:
      return random.pick([
        "{{",
        "}}",
        "{%",
        "%}",
        "{% raw %}{{ x }}{% endraw %}",
        "{% break %}",
        "\n",
      ]);
    default:
      return `{{ ${value()} }}${inner()}`;
  }
};

/** A text with a piece of another in it. */
function splice(text: string, piece: string, random: Random): string {
  const at = random.below(text.length + 1);
  return text.slice(0, at) + piece + text.slice(at + random.pick([0, 0, 1, 5]));
}

function messagesOf(random: Random): Json[] {
  return Array.from({ length: random.below(4) }, () =>
    random.below(6) === 0
      ? awkwardJson(random)
      : {
          role: random.pick(["system", "user", "assistant", "tool", "constructor"]),
          content: random.below(4) === 0 ? awkwardJson(random) : random.pick(awkwardStrings),
        },
  );
}

/** A character of every message; it must stay words, whatever the template does with it. */
const CANARY = "\ue000";

function withCanary(message: unknown): unknown {
  if (typeof message !== "object" || message === null) return message;
  const { content } = message as { content?: unknown };
  return typeof content === "string"
    ? { ...message, content: `${CANARY}${content} ${CANARY}` }
    : message;
}

export const target: FuzzTarget = {
  name: "template",
  describe: "chat templates made from a grammar, on awkward conversations",
  make(seed, from) {
    const random = seededRandom(seed);
    const known = [...Object.values(builtInTemplates)];
    const before = from as unknown as Input | undefined;
    const source = before
      ? splice(before.source, block(random, 1), random)
      : random.below(4) === 0
        ? splice(random.pick(known), block(random, 1), random)
        : block(random, 3) + block(random, 2);
    const tools = random.below(3) === 0 && { tools: [awkwardJson(random)] };
    return { source, messages: messagesOf(random), ...tools } as unknown as Json;
  },
  run(_seed, value) {
    const { source, messages, tools } = value as unknown as Input;
    if (typeof source !== "string" || !Array.isArray(messages)) return undefined;
    try {
      const template = new ChatTemplate(source, { bos: "<s>", eos: "</s>" });
      const said = messages.map((message) => withCanary(message));
      const prompt = template.render(said as unknown as { role: string; content: string }[], {
        addGenerationPrompt: true,
        now: new Date(0),
        ...(tools && { tools: [...tools, { description: CANARY }] }),
      });
      const { text } = prompt;
      if (asRendered(prompt) === undefined) throw new Error("render() gave no rendered prompt");
      const own = source.includes(CANARY) ? [] : prompt.template;
      for (let i = 0; i < own.length; i += 2) {
        if (!text.slice(own[i], own[i + 1]).includes(CANARY)) continue;
        throw new Error("words of a message became the template's");
      }
      return `rendered ${Math.ceil(Math.log2(text.length + 1))} bits`;
    } catch (error) {
      const outcome = refusal(error);
      const { message } = error as Error;
      if (!/\bline \d+/.test(message)) throw new Error(`no place in: ${message}`);
      const isOurs = !outcome.startsWith("usage: "); // a refusal has the template's own words
      if (isOurs && /Cannot read prop|is not a function|of undefined|\blantern /.test(message)) {
        throw new Error(`words of a library in: ${message}`);
      }
      return outcome;
    }
  },
};
