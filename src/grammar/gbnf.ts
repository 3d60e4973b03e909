// Reads GBNF, llama.cpp's notation for grammars: rules of characters, classes, groups, repetitions and token literals.

import { GrammarError } from "./errors.ts";
import { either, inOrder, type Node, Rules, repeat, text } from "./nodes.ts";
import { type CodePoints, complement, uniteAll, utf8 } from "./regex/code-points.ts";
import { EPSILON, type Expressions } from "./regex/expressions.ts";

const DEEPEST = 200;
const MOST_REPEATS = 10_000;

/** Finds the token that a text stands for; undefined if there is none. */
export type FindToken = (text: string) => number | undefined;

export function readGbnf(
  source: string,
  of: Expressions,
  vocabSize: number,
  findToken: FindToken,
  rules: Rules = new Rules(),
): Rules {
  return new GbnfReader(source, of, vocabSize, findToken, rules).read();
}

function isLineEnd(code: number): boolean {
  return code === 10 || code === 13;
}

class GbnfReader {
  readonly #source: string;
  readonly #of: Expressions;
  readonly #vocabSize: number;
  readonly #findToken: FindToken;
  readonly #rules: Rules;
  readonly #ids: Map<string, number> = new Map();
  readonly #defined: Set<string> = new Set();
  readonly #used: Map<string, number> = new Map(); // where a rule is named first
  #at = 0;
  #depth = 0;
  /** The rule that is read. */
  #current = "root";

  constructor(
    source: string,
    of: Expressions,
    vocabSize: number,
    findToken: FindToken,
    rules: Rules,
  ) {
    this.#rules = rules;
    this.#source = source;
    this.#of = of;
    this.#vocabSize = vocabSize;
    this.#findToken = findToken;
    this.#id("root");
  }

  read(): Rules {
    this.#of.meter.spend(this.#source.length / 32);
    this.#of.meter.at = () => this.#current;
    this.#space(true);
    while (this.#at < this.#source.length) this.#rule();
    for (const [name, at] of this.#used) {
      if (this.#defined.has(name)) continue;
      this.#at = at;
      throw this.#wrong(`the rule ${name} is not defined`);
    }
    if (!this.#defined.has("root")) {
      throw new GrammarError("gbnf: no rule root, which is where a grammar begins");
    }
    return this.#rules;
  }

  #wrong(what: string): GrammarError {
    const before = this.#source.slice(0, this.#at);
    const line = before.split("\n").length;
    const column = this.#at - before.lastIndexOf("\n");
    return new GrammarError(`gbnf: line ${line}, column ${column}: ${what}`);
  }

  #id(name: string): number {
    let id = this.#ids.get(name);
    if (id === undefined) {
      id = this.#rules.add(name);
      this.#ids.set(name, id);
    }
    return id;
  }

  #peek(): string {
    return this.#source[this.#at] ?? "";
  }

  #skip(part: string): boolean {
    if (!this.#source.startsWith(part, this.#at)) return false;
    this.#at += part.length;
    return true;
  }

  /** Spaces and comments; line ends only where the rule cannot be over. */
  #space(lines: boolean): void {
    for (;;) {
      const next = this.#peek();
      if (next === "#") {
        while (this.#at < this.#source.length && !isLineEnd(this.#source.charCodeAt(this.#at))) {
          this.#at++;
        }
      } else if (next === " " || next === "\t" || (lines && (next === "\n" || next === "\r"))) {
        this.#at++;
      } else {
        return;
      }
    }
  }

  #name(): string {
    const from = this.#at;
    while (/[a-zA-Z0-9_-]/.test(this.#peek())) this.#at++;
    if (this.#at === from) throw this.#wrong(`expected a rule's name, got ${this.#shown()}`);
    return this.#source.slice(from, this.#at);
  }

  #shown(): string {
    return this.#at < this.#source.length ? JSON.stringify(this.#peek()) : "the end";
  }

  #rule(): void {
    const name = this.#name();
    this.#current = name;
    this.#space(false);
    if (!this.#skip("::=")) throw this.#wrong(`expected ::= after ${name}, got ${this.#shown()}`);
    if (this.#defined.has(name)) throw this.#wrong(`the rule ${name} is defined twice`);
    this.#defined.add(name);
    this.#space(true);
    this.#rules.set(this.#id(name), this.#either(false));
    if (this.#at < this.#source.length && !/[\r\n]/.test(this.#peek())) {
      throw this.#wrong(`expected a line end, got ${this.#shown()}`);
    }
    this.#space(true);
  }

  #either(nested: boolean): Node {
    if (++this.#depth > DEEPEST) throw this.#wrong(`more than ${DEEPEST} nested groups`);
    const items = [this.#sequence(nested)];
    while (this.#skip("|")) {
      this.#space(true);
      items.push(this.#sequence(nested));
    }
    this.#depth--;
    return either(items);
  }

  #sequence(nested: boolean): Node {
    const items: Node[] = [];
    for (;;) {
      const item = this.#item(nested);
      if (item === undefined) break;
      items.push(this.#repeats(item, nested));
    }
    return items.length === 0 ? text(EPSILON) : inOrder(items);
  }

  #item(nested: boolean): Node | undefined {
    this.#of.meter.spend(1);
    const next = this.#peek();
    let item: Node | undefined;
    if (next === '"') item = this.#literal();
    else if (next === "[") item = text(utf8(this.#of, this.#class()));
    else if (next === "(") {
      this.#at++;
      this.#space(true);
      item = this.#either(true);
      if (!this.#skip(")")) throw this.#wrong(`expected ), got ${this.#shown()}`);
    } else if (next === ".") {
      this.#at++;
      item = text(utf8(this.#of, complement([])));
    } else if (next === "<" || next === "!") item = this.#token();
    else if (/[a-zA-Z0-9_-]/.test(next)) item = this.#reference();
    if (item !== undefined) this.#space(nested);
    return item;
  }

  #reference(): Node {
    const at = this.#at;
    const name = this.#name();
    if (!this.#used.has(name)) this.#used.set(name, at);
    return { kind: "rule", rule: this.#id(name) };
  }

  #repeats(given: Node, nested: boolean): Node {
    let item = given;
    for (;;) {
      const bounds = this.#bounds();
      if (bounds === undefined) return item;
      this.#space(nested);
      item = repeat(item, bounds[0], bounds[1]);
    }
  }

  #bounds(): [number, number] | undefined {
    if (this.#skip("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#skip("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#skip("?")) return [0, 1];
    if (!this.#skip("{")) return undefined;
    const match = /^\s*(\d+)\s*(,\s*(\d*)\s*)?\}/.exec(this.#source.slice(this.#at, this.#at + 64));
    if (!match) throw this.#wrong("expected {m}, {m,} or {m,n}");
    this.#at += match[0].length;
    const low = Number(match[1]);
    let high = low;
    if (match[2] !== undefined) high = match[3] ? Number(match[3]) : Number.POSITIVE_INFINITY;
    if (high < low) throw this.#wrong(`the repetition {${low},${high}} has its bounds swapped`);
    if (low > MOST_REPEATS || (high !== Number.POSITIVE_INFINITY && high > MOST_REPEATS)) {
      throw this.#wrong(`a repetition of more than ${MOST_REPEATS}`);
    }
    return [low, high];
  }

  #literal(): Node {
    this.#at++;
    let expression: number = EPSILON;
    const points: number[] = [];
    while (!this.#skip('"')) points.push(this.#character());
    for (const point of points.reverse()) {
      expression = this.#of.concat(this.#one(point), expression);
    }
    return text(expression);
  }

  #one(point: number): number {
    return point < 0x80 ? this.#of.range(point, point) : utf8(this.#of, [point, point]);
  }

  #class(): CodePoints {
    this.#at++;
    const negative = this.#skip("^");
    const sets: CodePoints[] = [];
    while (!this.#skip("]")) {
      const from = this.#character();
      let to = from;
      if (this.#peek() === "-" && this.#source[this.#at + 1] !== "]") {
        this.#at++;
        to = this.#character();
        if (to < from) throw this.#wrong("a range in [...] whose ends are swapped");
      }
      sets.push([from, to]);
    }
    this.#of.meter.spend(sets.length);
    const set = uniteAll(sets);
    return negative ? complement(set) : set;
  }

  #character(): number {
    const point = this.#source.codePointAt(this.#at);
    if (point === undefined) throw this.#wrong("the grammar ends inside of a text or a class");
    this.#at += point > 0xffff ? 2 : 1;
    if (point !== 0x5c) return point;
    const letter = this.#peek();
    this.#at++;
    const digits = { x: 2, u: 4, U: 8 }[letter];
    if (digits !== undefined) {
      const hex = this.#source.slice(this.#at, this.#at + digits);
      if (hex.length < digits || !/^[0-9a-fA-F]+$/.test(hex)) {
        throw this.#wrong(`expected ${digits} hexadecimal digits after \\${letter}`);
      }
      this.#at += digits;
      const value = Number.parseInt(hex, 16);
      if (value > 0x10ffff) throw this.#wrong("a code point beyond 10FFFF");
      return value;
    }
    const simple = { t: 9, r: 13, n: 10 }[letter];
    if (simple !== undefined) return simple;
    if (letter !== "" && '\\"[]-^'.includes(letter)) return letter.charCodeAt(0);
    throw this.#wrong(`the unknown escape \\${letter}`);
  }

  #token(): Node {
    const except = this.#skip("!");
    if (!this.#skip("<")) throw this.#wrong(`expected <token> after !, got ${this.#shown()}`);
    const number = /^\[(\d+)\]>/.exec(this.#source.slice(this.#at, this.#at + 24));
    if (number) {
      const id = Number(number[1]);
      if (id >= this.#vocabSize) {
        throw this.#wrong(
          `token ${id} does not exist: the vocabulary has ${this.#vocabSize} tokens`,
        );
      }
      this.#at += number[0].length;
      return { kind: "token", ids: [id], except };
    }
    const end = this.#source.indexOf(">", this.#at);
    if (end < 0) throw this.#wrong("a < without its >");
    const name = this.#source.slice(this.#at - 1, end + 1);
    const id = this.#findToken(name);
    if (id === undefined) throw this.#wrong(`${name} is not one token of this vocabulary`);
    this.#at = end + 1;
    return { kind: "token", ids: [id], except };
  }
}
