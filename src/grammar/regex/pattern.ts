// Reads a regular expression in ECMAScript's syntax (as JSON Schema and llama.cpp's users write them) into a tree.
//
// Characters are code points, as with the flag u. Features without a regular language (back references), or without one over
// characters alone (\b, lookbehind), are refused by name. pattern-language.ts turns the tree into an expression.

import { GrammarError } from "../errors.ts";
import type { Meter } from "../meter.ts";
import { type CodePoints, complement, normalize, unite, uniteAll } from "./code-points.ts";
import { classEscape, DIGIT, LINE_END, propertySet, SPACE, WORD } from "./pattern-classes.ts";

export type Pattern =
  | { readonly kind: "set"; readonly set: CodePoints }
  /** `capture`: the number of the group that it is, where groups are asked for. */
  | { readonly kind: "sequence"; readonly items: readonly Pattern[]; readonly capture?: number }
  | { readonly kind: "either"; readonly items: readonly Pattern[] }
  | {
      readonly kind: "repeat";
      readonly item: Pattern;
      readonly low: number;
      readonly high: number;
      /** As few as possible; it matches the same texts. */
      readonly lazy?: boolean;
    }
  | { readonly kind: "start" }
  | { readonly kind: "end" }
  | { readonly kind: "look"; readonly item: Pattern; readonly negative: boolean };

const DEEPEST = 200;
const MOST_REPEATS = 100_000;
/** A property has up to two thousand ranges of characters; asked for the first time, it takes longer. */
const PROPERTY_STEPS = 100;
const ASKING_STEPS = 20_000;

export interface PatternOptions {
  readonly ignoreCase?: boolean;
  readonly dotAll?: boolean;
  /** Whether capturing groups are in the tree. */
  readonly captures?: boolean;
  /** Counts the work; without it the work is not counted. */
  readonly meter?: Meter;
}

export function parsePattern(source: string, options: PatternOptions = {}): Pattern {
  return new PatternReader(source, options).read();
}

class PatternReader {
  readonly #source: string;
  #text: readonly string[]; // one code point each
  #at = 0;
  #depth = 0;
  #ignoreCase: boolean;
  #dotAll: boolean;
  readonly #captures: boolean;
  #groups = 0;
  readonly #meter: Meter | undefined;

  constructor(source: string, options: PatternOptions) {
    this.#source = source;
    this.#text = [...source];
    this.#ignoreCase = options.ignoreCase ?? false;
    this.#dotAll = options.dotAll ?? false;
    this.#captures = options.captures ?? false;
    this.#meter = options.meter;
  }

  read(): Pattern {
    const flags = /^\(\?([ims]+)\)/.exec(this.#source);
    if (flags) {
      if (flags[1]!.includes("m")) throw this.#unsupported("the flag m");
      this.#ignoreCase ||= flags[1]!.includes("i");
      this.#dotAll ||= flags[1]!.includes("s");
      this.#at = flags[0].length;
    }
    const pattern = this.#either();
    if (this.#at < this.#text.length) throw this.#wrong("a ) without its (");
    return pattern;
  }

  #wrong(what: string): GrammarError {
    return new GrammarError(
      `regular expression ${JSON.stringify(this.#source.slice(0, 200))}: ${what} at character ${this.#at}`,
    );
  }

  #unsupported(what: string): GrammarError {
    return this.#wrong(`${what} is not supported`);
  }

  #peek(): string | undefined {
    return this.#text[this.#at];
  }

  #startsWith(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#text[this.#at + i] !== text[i]) return false;
    return true;
  }

  #skip(text: string): boolean {
    if (!this.#startsWith(text)) return false;
    this.#at += text.length;
    return true;
  }

  #either(): Pattern {
    if (++this.#depth > DEEPEST) throw this.#wrong(`more than ${DEEPEST} nested groups`);
    const items = [this.#sequence()];
    while (this.#skip("|")) items.push(this.#sequence());
    this.#depth--;
    return items.length === 1 ? items[0]! : { kind: "either", items };
  }

  #sequence(): Pattern {
    const items: Pattern[] = [];
    for (;;) {
      const next = this.#peek();
      if (next === undefined || next === "|" || next === ")") break;
      items.push(this.#repeats(this.#atom()));
    }
    return items.length === 1 ? items[0]! : { kind: "sequence", items };
  }

  #repeats(atom: Pattern): Pattern {
    const bounds = this.#bounds();
    if (bounds === undefined) return atom;
    const [low, high] = bounds;
    if (high < low) throw this.#wrong(`a repetition {${low},${high}} whose bounds are swapped`);
    if (low > MOST_REPEATS || (high !== Number.POSITIVE_INFINITY && high > MOST_REPEATS)) {
      throw this.#wrong(`a repetition of more than ${MOST_REPEATS}`);
    }
    const lazy = this.#skip("?");
    if (/^[*+?]$/.test(this.#peek() ?? "")) throw this.#unsupported("a repetition of a repetition");
    if (atom.kind === "start" || atom.kind === "end") {
      return low > 0 ? atom : { kind: "sequence", items: [] };
    }
    return { kind: "repeat", item: atom, low, high, ...(lazy && { lazy }) };
  }

  #bounds(): [number, number] | undefined {
    if (this.#skip("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#skip("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#skip("?")) return [0, 1];
    if (this.#peek() !== "{") return undefined;
    const rest = this.#text.slice(this.#at, this.#at + 24).join("");
    const match = /^\{(\d+)(,(\d*))?\}/.exec(rest);
    if (!match) return undefined; // a literal {, as browsers read it
    this.#at += match[0].length;
    const low = Number(match[1]);
    if (match[2] === undefined) return [low, low];
    return [low, match[3] === "" ? Number.POSITIVE_INFINITY : Number(match[3])];
  }

  #atom(): Pattern {
    this.#meter?.spend(2);
    const character = this.#text[this.#at++]!;
    switch (character) {
      case "(":
        return this.#group();
      case "[":
        return { kind: "set", set: this.#class() };
      case ".":
        return { kind: "set", set: this.#dotAll ? complement([]) : complement(LINE_END) };
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case "\\":
        return this.#escape();
      case "*":
      case "+":
      case "?":
        throw this.#wrong(`nothing before ${character} to repeat`);
      default:
        return this.#character(character.codePointAt(0)!);
    }
  }

  #character(point: number): Pattern {
    return { kind: "set", set: this.#folded([point, point]) };
  }

  /** The set, with both cases of its letters where case does not count. */
  #folded(set: CodePoints): CodePoints {
    if (!this.#ignoreCase) return set;
    const added: [number, number][] = [];
    for (let i = 0; i < set.length; i += 2) {
      for (let point = set[i]!; point <= Math.min(set[i + 1]!, 0x24f); point++) {
        const text = String.fromCodePoint(point);
        for (const other of [text.toLowerCase(), text.toUpperCase()]) {
          if ([...other].length === 1) added.push([other.codePointAt(0)!, other.codePointAt(0)!]);
        }
      }
    }
    return unite(set, normalize(added));
  }

  #group(): Pattern {
    let negative: boolean | undefined;
    let capture: number | undefined;
    const isNamed = this.#startsWith("?<") || this.#startsWith("?P<");
    if (this.#captures && (isNamed || this.#peek() !== "?")) capture = ++this.#groups;
    if (this.#skip("?")) {
      if (this.#startsWith("<=") || this.#startsWith("<!")) throw this.#unsupported("a lookbehind");
      if (this.#skip("=")) negative = false;
      else if (this.#skip("!")) negative = true;
      else if (this.#skip("P<") || this.#skip("<")) {
        while (this.#peek() !== undefined && this.#peek() !== ">") this.#at++;
        this.#at++;
      } else if (!this.#skip(":")) throw this.#unsupported(`the group (?${this.#peek() ?? ""}`);
    }
    const item = this.#either();
    if (!this.#skip(")")) throw this.#wrong("a ( without its )");
    if (capture !== undefined) return { kind: "sequence", items: [item], capture };
    return negative === undefined ? item : { kind: "look", item, negative };
  }

  #escape(): Pattern {
    const next = this.#peek();
    if (next === undefined) throw this.#wrong("a \\ with nothing after it");
    if (next === "b" || next === "B") throw this.#unsupported(`the word border \\${next}`);
    if (next === "A") {
      this.#at++;
      return { kind: "start" };
    }
    if (next === "z" || next === "Z") {
      this.#at++;
      return { kind: "end" };
    }
    if (/[1-9k]/.test(next)) throw this.#unsupported(`the back reference \\${next}`);
    const set = this.#classEscape();
    return { kind: "set", set: set.length === 2 && set[0] === set[1] ? this.#folded(set) : set };
  }

  /** After a \, inside or outside of [...]. */
  #classEscape(): CodePoints {
    const next = this.#text[this.#at++]!;
    switch (next) {
      case "d":
        return DIGIT;
      case "D":
        return complement(DIGIT);
      case "w":
        return WORD;
      case "W":
        return complement(WORD);
      case "s":
        return SPACE;
      case "S":
        return complement(SPACE);
      case "p":
      case "P":
        return this.#property(next === "P");
      default: {
        this.#at--;
        const found = classEscape(this.#text.slice(this.#at, this.#at + 12).join(""));
        if (typeof found === "string") throw this.#wrong(found);
        this.#at += found.length;
        return [found.point, found.point];
      }
    }
  }

  #property(negative: boolean): CodePoints {
    const rest = this.#text.slice(this.#at, this.#at + 80).join("");
    const match = /^(?:\{(\^?)([A-Za-z0-9_= -]+)\}|([A-Z]))/.exec(rest);
    if (!match) throw this.#wrong("\\p without a {property}");
    this.#at += match[0].length;
    this.#meter?.spend(PROPERTY_STEPS);
    const set = propertySet(match[2] ?? match[3]!, () => this.#meter?.spend(ASKING_STEPS));
    if (set === undefined) throw this.#unsupported(`the property ${match[0]}`);
    return negative !== (match[1] === "^") ? complement(set) : set;
  }

  #class(): CodePoints {
    const negative = this.#skip("^");
    const sets: CodePoints[] = [];
    let first = true;
    for (;;) {
      const character = this.#text[this.#at++];
      if (character === undefined) throw this.#wrong("a [ without its ]");
      if (character === "]" && !first) break;
      if (character === "]" && first) break; // [] matches no character, [^] every one
      first = false;
      if (character === "[" && this.#startsWith(":")) {
        throw this.#unsupported("a POSIX class such as [:alpha:]");
      }
      const low = this.#classItem(character);
      const isRange = this.#peek() === "-" && this.#text[this.#at + 1] !== "]";
      if (!isRange || this.#text[this.#at + 1] === undefined || !isSingle(low)) {
        sets.push(low);
        continue;
      }
      this.#at++;
      const high = this.#classItem(this.#text[this.#at++]!);
      if (!isSingle(high)) {
        sets.push(low, [0x2d, 0x2d], high);
        continue;
      }
      if (high[0]! < low[0]!) throw this.#wrong("a range in [...] whose ends are swapped");
      sets.push([low[0]!, high[0]!]);
    }
    this.#meter?.spend(sets.length);
    const set = this.#folded(uniteAll(sets));
    return negative ? complement(set) : set;
  }

  #classItem(character: string): CodePoints {
    if (character === "\\") {
      if (this.#peek() === "b") {
        this.#at++;
        return [8, 8];
      }
      return this.#classEscape();
    }
    const point = character.codePointAt(0)!;
    return [point, point];
  }
}

function isSingle(set: CodePoints): boolean {
  return set.length === 2 && set[0] === set[1];
}
