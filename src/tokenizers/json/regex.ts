// Translates the regular expressions of tokenizer.json (Oniguruma, Ruby syntax) into JavaScript's, Unicode mode.
//
// Differences that are translated: \s, \w, \d and \b are Unicode-aware; `.` stops at "\n" only; ^ and $ match at lines; (?i:...)
// ignores case in a group; possessive quantifiers and (?>...) do not backtrack. A feature without a counterpart is an error that
// names it: a misread pattern would silently split text at the wrong positions.

import type { Check } from "../../base/check.ts";
import { ModelError } from "../../base/errors.ts";
import { isKnownPattern } from "./known-patterns.ts";
import { Matcher } from "./regex-match.ts";
import { compilePattern, PatternError } from "./regex-program.ts";

const WORD = "\\p{L}\\p{M}\\p{N}\\p{Pc}";

/** Outside a class. Inside one, the value must be a class itself: see CLASS_ESCAPES. */
const ESCAPES: Readonly<Record<string, string>> = {
  s: "\\p{White_Space}",
  S: "\\P{White_Space}",
  d: "\\p{Nd}",
  D: "\\P{Nd}",
  w: `[${WORD}]`,
  W: `[^${WORD}]`,
  h: "[0-9a-fA-F]",
  b: `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`,
  B: `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`,
  A: "^",
  z: "$",
  Z: "(?=\\n?$)",
};

const CLASS_ESCAPES: Readonly<Record<string, string>> = {
  s: "\\p{White_Space}",
  S: "\\P{White_Space}",
  d: "\\p{Nd}",
  D: "\\P{Nd}",
  w: WORD,
  h: "0-9a-fA-F",
};

const POSIX: Readonly<Record<string, string>> = {
  alpha: "\\p{Alphabetic}",
  digit: "\\p{Nd}",
  alnum: "\\p{Alphabetic}\\p{Nd}",
  space: "\\p{White_Space}",
  upper: "\\p{Lu}",
  lower: "\\p{Ll}",
  punct: "\\p{P}$+<=>^`|~",
};

/** Real patterns have up to two thousand characters. */
const LONGEST = 20_000;

const CONTROLS = "rntfv0";
const GROUP = /^\((?:\?(?:[imx]*:|=|!|<=|<!|>|<\w+>))?/;
const QUANTIFIER = /^(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})/;

/** A pattern to search for in texts. */
export interface Pattern {
  /** The start and end of each match, in order, as String.matchAll finds them. */
  matches(text: string, check?: Check): number[];
}

/** Wraps a trusted RegExp with the flag `g`. */
export function nativePattern(regex: RegExp): Pattern {
  return {
    matches: (text) => {
      const found: number[] = [];
      for (const match of text.matchAll(regex)) {
        found.push(match.index, match.index + match[0].length);
      }
      return found;
    },
  };
}

/**
 * A pattern with the meaning of the Oniguruma `source`. Patterns of published tokenizers are known to be harmless and
 * are run by the platform, which is about ten times as fast; any other could take exponential time there
 * (regex-match.ts).
 */
export function translateRegex(source: string): Pattern {
  const regex = toRegExp(source);
  if (isKnownPattern(source)) return nativePattern(regex);
  try {
    return new Matcher(compilePattern(regex.source), source);
  } catch (error) {
    if (error instanceof PatternError) throw refusal(source, error.message);
    throw error;
  }
}

/** The same as a RegExp. */
export function toRegExp(source: string): RegExp {
  if (source.length > LONGEST) {
    throw new ModelError(
      `tokenizer.json: a pattern has ${source.length} characters, expected at most ${LONGEST}`,
    );
  }
  const translated = new Translation(source).run();
  try {
    return new RegExp(translated, "gu");
  } catch (cause) {
    throw new ModelError(
      `tokenizer.json: the pattern ${JSON.stringify(source)} cannot be read as a regular expression`,
      { cause },
    );
  }
}

function refusal(source: string, what: string): ModelError {
  return new ModelError(
    `tokenizer.json: the pattern ${JSON.stringify(source)} uses ${what}, which Lantern does not support`,
  );
}

interface OpenGroup {
  start: number;
  folds: boolean;
  atomic: boolean;
}

class Translation {
  readonly #source: string;
  readonly #out: string[] = []; // one entry per atom, group bracket or operator
  readonly #groups: OpenGroup[] = [];
  #at = 0;
  #folds = false;
  /** Start of the last atom in #out: a quantifier applies to it. */
  #atom = 0;
  #kept = 0;

  constructor(source: string) {
    this.#source = source;
  }

  run(): string {
    while (this.#at < this.#source.length) this.#step();
    return this.#out.join("");
  }

  #step(): void {
    const rest = this.#source.slice(this.#at);
    const char = String.fromCodePoint(this.#source.codePointAt(this.#at)!);
    const quantifier = QUANTIFIER.exec(rest)?.[0];
    if (quantifier !== undefined) this.#quantify(quantifier);
    else if (char === "(") this.#open(rest);
    else if (char === ")") this.#close();
    else if (char === "[") this.#push(`[${this.#class()}]`);
    else if (char === "\\") this.#push(this.#escape(ESCAPES));
    else {
      this.#at += char.length;
      this.#push(this.#literal(char));
    }
  }

  #literal(char: string): string {
    if (char === "|") return "|";
    if (char === ".") return "[^\\n]";
    if (char === "^") return "(?<=^|\\n)";
    if (char === "$") return "(?=\\n|$)";
    if ("{}]/".includes(char)) return `\\${char}`;
    return this.#folds && /^[a-z]$/i.test(char) ? `[${bothCases(char)}]` : char;
  }

  #push(atom: string): void {
    this.#atom = this.#out.length;
    this.#out.push(atom);
  }

  #quantify(quantifier: string): void {
    this.#at += quantifier.length;
    const suffix = this.#source[this.#at];
    const js = quantifier.startsWith("{,") ? `{0,${quantifier.slice(2)}` : quantifier;
    if (suffix === "+" && !quantifier.startsWith("{")) {
      this.#at++;
      this.#makeAtomic(this.#atom, js);
      return;
    }
    if (suffix === "+") this.#refuse(`${quantifier}+`);
    if (suffix === "?") this.#at++;
    this.#out.push(suffix === "?" ? `${js}?` : js);
  }

  /** Prevents backtracking: match in a lookahead, then take exactly that. */
  #makeAtomic(start: number, quantifier: string): void {
    const name = `kept${this.#kept++}`;
    const body = this.#out.splice(start).join("") + quantifier;
    this.#push(`(?:(?=(?<${name}>${body}))\\k<${name}>)`);
  }

  #open(rest: string): void {
    const bracket = GROUP.exec(rest)![0];
    if (bracket === "(" && rest[1] === "?") this.#refuse(rest.slice(0, 4));
    const flags = /^\(\?([imx]*):$/.exec(bracket)?.[1] ?? "";
    if (/[mx]/.test(flags)) this.#refuse(bracket);
    const atomic = bracket === "(?>";
    this.#groups.push({ start: this.#out.length, folds: this.#folds, atomic });
    if (flags === "i") this.#folds = true;
    const looks = ["(?=", "(?!", "(?<=", "(?<!"].includes(bracket);
    this.#out.push(looks ? bracket : "(?:"); // captures are not used
    this.#at += bracket.length;
  }

  #close(): void {
    const group = this.#groups.pop();
    if (group === undefined) this.#refuse(")");
    this.#at++;
    this.#out.push(")");
    this.#folds = group!.folds;
    this.#atom = group!.start;
    if (group!.atomic) this.#makeAtomic(group!.start, "");
  }

  /** The inside of the class that starts here, including "^"; nested classes are unions. */
  #class(): string {
    this.#at++; // the bracket
    let out = "";
    if (this.#source[this.#at] === "^") {
      this.#at++;
      out = "^";
    }
    for (let first = true; ; first = false) {
      const rest = this.#source.slice(this.#at);
      if (rest === "") this.#refuse("an unterminated [");
      if (rest.startsWith("&&")) this.#refuse("&&");
      if (rest[0] === "]" && !first) break;
      out += this.#classPart(rest);
    }
    this.#at++;
    return out;
  }

  #classPart(rest: string): string {
    const posix = /^\[:(\w+):\]/.exec(rest);
    if (posix) {
      this.#at += posix[0].length;
      return POSIX[posix[1]!] ?? this.#refuse(posix[0]);
    }
    if (rest[0] === "[") {
      const nested = this.#class();
      return nested.startsWith("^") ? this.#refuse(`[${nested}] inside a class`) : nested;
    }
    const from = this.#classChar();
    const isRange = this.#source[this.#at] === "-" && this.#source[this.#at + 1] !== "]";
    if (!isRange || /^\\p|^\\P/.test(from)) return this.#folds ? bothCases(from) : from;
    this.#at++;
    const to = this.#classChar();
    const range = `${from}-${to}`;
    if (!this.#folds || !/^[a-z]-[a-z]$/i.test(range)) return range;
    return `${range.toLowerCase()}${range.toUpperCase()}`;
  }

  #classChar(): string {
    const char = String.fromCodePoint(this.#source.codePointAt(this.#at)!);
    if (char === "\\") return this.#escape(CLASS_ESCAPES);
    this.#at += char.length;
    return "[]^-\\".includes(char) ? `\\${char}` : char;
  }

  #escape(known: Readonly<Record<string, string>>): string {
    const rest = this.#source.slice(this.#at);
    const property = /^\\([pP])\{(\^?)([\w=]+)\}/.exec(rest);
    const hex = /^\\(?:x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))/.exec(rest);
    const char = String.fromCodePoint(rest.codePointAt(1) ?? 0);
    this.#at += property?.[0].length ?? hex?.[0].length ?? 1 + char.length;
    if (property) return this.#property(property[1] === "P", property[2] === "^", property[3]!);
    if (hex) return `\\u{${hex[1] ?? hex[2] ?? hex[3]}}`;
    if (CONTROLS.includes(char)) return `\\${char}`;
    if (known[char] !== undefined) return known[char];
    if (/^[\^$\\.*+?()[\]{}|/]$/.test(char)) return `\\${char}`;
    if (char === "-") return known === CLASS_ESCAPES ? "\\-" : "-";
    return /^\w$/.test(char) ? this.#refuse(`\\${char}`) : char;
  }

  #property(upper: boolean, caret: boolean, name: string): string {
    const letter = upper === caret ? "p" : "P";
    for (const candidate of [name, `Script=${name}`]) {
      try {
        new RegExp(`\\p{${candidate}}`, "u");
        return `\\${letter}{${candidate}}`;
      } catch {
        // Not this one.
      }
    }
    return this.#refuse(`\\p{${name}}`);
  }

  #refuse(what: string): never {
    throw refusal(this.#source, what);
  }
}

function bothCases(char: string): string {
  return /^[a-z]$/i.test(char) ? char.toLowerCase() + char.toUpperCase() : char;
}
