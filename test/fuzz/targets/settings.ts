// Files of settings: TOML and Modelfiles, made from their own syntax and damaged. What is read must be data: no table inherits
// anything that the file gave it.

import { parseModelfile } from "../../../apps/server/protocols/ollama/modelfile.ts";
import { parseToml, type TomlValue } from "../../../src/base/toml.ts";
import { type Random, seededRandom } from "../../formats/mutate.ts";
import { awkwardNumbers, awkwardStrings } from "../awkward.ts";
import { type FuzzTarget, type Json, refusal } from "../target.ts";

interface Input {
  kind: "toml" | "modelfile";
  text: string;
}

const keys = [
  "a",
  "b",
  '"c d"',
  "a.b",
  "'x'",
  "__proto__",
  "constructor.prototype",
  '""',
  "1",
  "-",
];

function value(random: Random, depth: number): string {
  const again = (): string => value(random, depth - 1);
  switch (random.below(depth > 0 ? 9 : 5)) {
    case 0:
      return JSON.stringify(random.pick(awkwardStrings));
    case 1:
      return String(random.pick(awkwardNumbers));
    case 2:
      return random.pick([
        "true",
        "false",
        "inf",
        "-nan",
        "0x1F",
        "0b2",
        "1_000",
        "1__0",
        "07",
        "1.",
        "1979-05-27",
      ]);
    case 3:
      return `'''\n${random.pick(awkwardStrings)}'''`;
    case 4:
      return `"""a\\\n  ${random.pick(awkwardStrings)}"""`;
    case 5:
      return `[${again()}, ${again()},]`;
    case 6:
      return `{ ${random.pick(keys)} = ${again()}, ${random.pick(keys)} = ${again()} }`;
    case 7:
      return "[".repeat(random.below(200));
    default:
      return `[\n# note\n${again()}\n]`;
  }
}

function tomlLine(random: Random): string {
  switch (random.below(5)) {
    case 0:
      return `[${random.pick(keys)}]`;
    case 1:
      return `[[${random.pick(keys)}]]`;
    case 2:
      return `# ${random.pick(awkwardStrings)}`;
    default:
      return `${random.pick(keys)} = ${value(random, 3)}`;
  }
}

const instructions = [
  "FROM",
  "PARAMETER",
  "SYSTEM",
  "TEMPLATE",
  "LICENSE",
  "MESSAGE",
  "ADAPTER",
  "from",
  "X",
];
const parameters = [
  "temperature 0.5",
  "stop a",
  "num_ctx 99999999999",
  "top_k x",
  "stop",
  "seed -1",
  "__proto__ 1",
];

function modelfileLine(random: Random): string {
  const text = random.pick(awkwardStrings);
  const rest = random.pick([
    text,
    JSON.stringify(text),
    `"""${text}\n${text}"""`,
    `"""${text}`,
    random.pick(parameters),
  ]);
  return `${random.pick(instructions)} ${rest}`;
}

/** A piece is left out, or comes twice. */
function damaged(text: string, random: Random): string {
  const from = random.below(text.length + 1);
  const to = from + random.below(Math.min(20, text.length - from) + 1);
  const middle = random.pick(["", text.slice(from, to).repeat(2), random.pick(awkwardStrings)]);
  return text.slice(0, from) + middle + text.slice(to);
}

/** Values of JSON have no other prototype than those of their kind; tables have none. */
function check(read: TomlValue): void {
  if (typeof read !== "object") return;
  const inner = Array.isArray(read) ? read : Object.values(read);
  for (const one of inner) check(one);
  if (Array.isArray(read)) return;
  if (Object.getPrototypeOf(read) !== null && Object.getPrototypeOf(read) !== Object.prototype) {
    throw new Error("a table has a prototype that the file gave it");
  }
}

export const target: FuzzTarget = {
  name: "settings",
  describe: "TOML and Modelfiles, made from their syntax and damaged",
  make(seed: number, base?: Json): Json {
    const random = seededRandom(seed);
    const given = base as unknown as Input | undefined;
    const kind = given?.kind ?? random.pick(["toml", "modelfile"] as const);
    const line = kind === "toml" ? tomlLine : modelfileLine;
    const lines = Array.from({ length: random.below(8) }, () => line(random));
    const text = [...(given ? [given.text] : []), ...lines].join("\n").slice(0, 20_000);
    return { kind, text: random.below(3) === 0 ? damaged(text, random) : text };
  },
  run(_seed: number, input?: Json): string {
    const { kind, text } = input as unknown as Input;
    try {
      if (kind === "modelfile") return `modelfile: ${Object.keys(parseModelfile(text)).join(" ")}`;
      const read = parseToml(text);
      check(read);
      return `toml: ${Object.keys(read).length} keys`;
    } catch (error) {
      return refusal(error);
    }
  },
};
