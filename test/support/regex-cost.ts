// What a regular expression costs on a long input, in steps of a backtracking matcher: counted, not measured, so the same on every
// machine. A pattern is parsed, matched by this file's own matcher against strings that repeat what its loops can match ("pumped"), and
// called super-linear if four times the length takes much more than four times the steps. It follows JavaScript's rules except where
// that makes no difference to the cost: back references match nothing, and what is behind a position costs one step.

interface Loop {
  readonly type: "loop";
  readonly body: Node;
  readonly least: number;
  readonly most: number;
  readonly isLazy: boolean;
}

type Node =
  | { readonly type: "set"; readonly source: string }
  | { readonly type: "place"; readonly source: string }
  | { readonly type: "behind"; readonly source: string }
  | { readonly type: "ahead"; readonly body: Node; readonly isNot: boolean }
  | { readonly type: "sequence"; readonly parts: readonly Node[] }
  | { readonly type: "choice"; readonly options: readonly Node[] }
  | Loop;

const nothing: Node = { type: "sequence", parts: [] };

/** Reads a pattern that JavaScript has accepted. */
class Parser {
  readonly #source: string;
  readonly #isNested: boolean;
  #at = 0;

  constructor(source: string, flags: string) {
    this.#source = source;
    this.#isNested = flags.includes("v");
  }

  choice(): Node {
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    return options.length === 1 ? options[0]! : { type: "choice", options };
  }

  #sequence(): Node {
    const parts: Node[] = [];
    while (this.#at < this.#source.length && !/[|)]/.test(this.#source[this.#at]!)) {
      parts.push(this.#quantified(this.#atom()));
    }
    return parts.length === 1 ? parts[0]! : { type: "sequence", parts };
  }

  #quantified(body: Node): Node {
    const found = this.#match(/(?:[*+?]|\{(\d+)(,(\d*))?\})(\??)/y);
    if (!found) return body;
    const [text, low, more, high, lazy] = found;
    const isLazy = lazy === "?";
    if (low === undefined) {
      const most = text!.startsWith("?") ? 1 : Infinity;
      return { type: "loop", body, least: text!.startsWith("+") ? 1 : 0, most, isLazy };
    }
    const most = more === undefined ? Number(low) : high === "" ? Infinity : Number(high);
    return { type: "loop", body, least: Number(low), most, isLazy };
  }

  #atom(): Node {
    if (this.#take("(")) return this.#group();
    if (this.#source[this.#at] === "[") return { type: "set", source: this.#class() };
    const place = this.#match(/\^|\$|\\[bB]/y);
    if (place) return { type: "place", source: place[0] };
    if (this.#match(/\\(?:k<[^>]*>|[1-9]\d*)/y)) return nothing;
    const letter = /\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|u[\dA-Fa-f]{4}|x[\dA-Fa-f]{2}|c[A-Za-z]|.)|./suy;
    return { type: "set", source: this.#match(letter)![0] };
  }

  #group(): Node {
    const behindAt = this.#at;
    const kind = this.#match(/\?(?:[=!]|<[=!]|<[^>]*>|[ims-]*:)/y)?.[0] ?? "";
    const body = this.choice();
    this.#take(")");
    if (kind === "?=" || kind === "?!") return { type: "ahead", body, isNot: kind === "?!" };
    if (kind !== "?<=" && kind !== "?<!") return body;
    return { type: "behind", source: `(${this.#source.slice(behindAt, this.#at)}` };
  }

  #class(): string {
    const from = this.#at;
    for (let depth = 0; ; this.#at++) {
      const letter = this.#source[this.#at];
      if (letter === "\\") this.#at++;
      else if (letter === "[" && (depth === 0 || this.#isNested)) depth++;
      else if (letter === "]" && --depth === 0) break;
    }
    return this.#source.slice(from, ++this.#at);
  }

  #take(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    if (!found) return undefined;
    this.#at += found[0].length;
    return found;
  }
}

class TooMany extends Error {}

/** Steps beyond these are not counted: a pattern that takes so many on so short an input is super-linear. */
const mostSteps = 400_000;

class Matcher {
  readonly #flags: string;
  readonly #sets = new Map<string, Map<string, boolean>>();
  #text: readonly string[] = [];
  #joined = "";
  steps = 0;

  constructor(flags: string) {
    this.#flags = flags.replaceAll(/[gyd]/g, "");
  }

  /** Steps of looking for it everywhere, as search() and, with g, replace() do. */
  count(node: Node, text: string, { isGlobal, isFixed }: How): number {
    this.#text = [...text];
    this.#joined = text;
    this.steps = 0;
    try {
      for (let from = 0; from <= this.#text.length; ) {
        let end = -1;
        const isFound = this.#run(node, from, (at) => {
          end = at;
          return true;
        });
        if ((isFound && !isGlobal) || isFixed) break;
        from = isFound && end > from ? end : from + 1;
      }
    } catch (error) {
      if (!(error instanceof TooMany || error instanceof RangeError)) throw error;
      this.steps = mostSteps;
    }
    return this.steps;
  }

  matches(node: Node, text: string): boolean {
    this.#text = [...text];
    this.#joined = text;
    this.steps = 0;
    return this.#run(node, 0, (at) => at > 0);
  }

  isIn(source: string, letter: string): boolean {
    const known = this.#sets.get(source) ?? new Map<string, boolean>();
    this.#sets.set(source, known);
    const found = known.get(letter) ?? new RegExp(`^${source}$`, this.#flags).test(letter);
    known.set(letter, found);
    return found;
  }

  #run(node: Node, at: number, next: (at: number) => boolean): boolean {
    if (++this.steps > mostSteps) throw new TooMany();
    switch (node.type) {
      case "set": {
        const letter = this.#text[at];
        return letter !== undefined && this.isIn(node.source, letter) && next(at + 1);
      }
      case "place":
        return this.#isAt(node.source, at) && next(at);
      case "behind": {
        const pattern = new RegExp(node.source, `${this.#flags}y`);
        pattern.lastIndex = at;
        return pattern.test(this.#joined) && next(at);
      }
      case "ahead":
        return this.#run(node.body, at, () => true) !== node.isNot && next(at);
      case "choice":
        return node.options.some((option) => this.#run(option, at, next));
      case "sequence":
        return this.#parts(node.parts, 0, at, next);
      case "loop":
        return this.#loop(node, 0, at, next);
      default:
        return node satisfies never;
    }
  }

  #parts(parts: readonly Node[], i: number, at: number, next: (at: number) => boolean): boolean {
    const part = parts[i];
    if (part === undefined) return next(at);
    return this.#run(part, at, (end) => this.#parts(parts, i + 1, end, next));
  }

  #loop(loop: Loop, done: number, at: number, next: (at: number) => boolean): boolean {
    if (++this.steps > mostSteps) throw new TooMany();
    const again = (): boolean =>
      done < loop.most &&
      this.#run(loop.body, at, (end) => end > at && this.#loop(loop, done + 1, end, next));
    if (done < loop.least) {
      // A body that matched nothing counts as matched as often as it must be.
      return again() || this.#run(loop.body, at, (end) => end === at && next(at));
    }
    return loop.isLazy ? next(at) || again() : again() || next(at);
  }

  #isAt(source: string, at: number): boolean {
    const isWord = (letter: string | undefined): boolean =>
      letter !== undefined && /\w/.test(letter);
    const isMany = this.#flags.includes("m");
    const [before, after] = [this.#text[at - 1], this.#text[at]];
    if (source === "^") return at === 0 || (isMany && before === "\n");
    if (source === "$") return after === undefined || (isMany && after === "\n");
    return (isWord(before) !== isWord(after)) === (source === "\\b");
  }
}

/** Letters that sets are tried with, besides those of the pattern itself. */
const usual = [..." \n\ta0_A-\"'\\.<>/#é中\u0000"];

/** Something that a node matches, without its optional parts. */
function witness(node: Node, matcher: Matcher, letters: readonly string[]): string {
  switch (node.type) {
    case "set":
      return letters.find((letter) => matcher.isIn(node.source, letter)) ?? "";
    case "sequence":
      return node.parts.map((part) => witness(part, matcher, letters)).join("");
    case "choice":
      return witness(node.options[0]!, matcher, letters);
    case "loop":
      return witness(node.body, matcher, letters).repeat(Math.min(node.least, 20));
    default:
      return "";
  }
}

/** Every loop without an end, with something that leads to it. */
function* endless(
  node: Node,
  before: string,
  of: (node: Node) => string,
): Generator<{ loop: Loop; before: string }> {
  if (node.type === "loop") {
    if (node.most > mostShort) yield { loop: node, before };
    yield* endless(node.body, before, of);
  } else if (node.type === "sequence") {
    let lead = before;
    for (const part of node.parts) {
      yield* endless(part, lead, of);
      lead += of(part);
    }
  } else if (node.type === "choice") {
    for (const option of node.options) yield* endless(option, before, of);
  } else if (node.type === "ahead") {
    yield* endless(node.body, before, of);
  }
}

/** A loop that ends after so many rounds costs no more than that for each letter. */
const mostShort = 300;
const shortLength = 48;
const longLength = 4 * shortLength;
const leastSteps = 6 * shortLength;
/** Four times the length: 4 is linear, 16 quadratic. */
const mostGrowth = 9;

/** A string that gets longer by repeating something. */
export interface Pumped {
  readonly before: string;
  readonly pump: string;
  readonly after: string;
}

export interface Cost extends Pumped {
  /** Steps of the long input by those of the short one. */
  readonly growth: number;
}

interface How {
  readonly isGlobal: boolean;
  readonly isFixed: boolean;
}

function parsed({ source, flags }: RegExp): { node: Node; matcher: Matcher; how: How } {
  const node = new Parser(source, flags).choice();
  const isFixed = flags.includes("y") || (isAnchored(node) && !flags.includes("m"));
  return { node, matcher: new Matcher(flags), how: { isGlobal: flags.includes("g"), isFixed } };
}

/** How much more a string of four times the length costs, if that is much more than four times; undefined: it is not. */
export function growthOf(regex: RegExp, pumped: Pumped): number | undefined {
  const { node, matcher, how } = parsed(regex);
  return grown(matcher, node, how, pumped);
}

function grown(matcher: Matcher, node: Node, how: How, pumped: Pumped): number | undefined {
  const { before, pump, after } = pumped;
  const text = (length: number): string => before + pump.repeat(length) + after;
  const few = matcher.count(node, text(shortLength), how);
  // Fewer than these are linear, or the beginning of something that no loop of a pattern is.
  if (few < leastSteps * pump.length) return undefined;
  const many = matcher.count(node, text(longLength), how);
  return many < mostGrowth * few && many < mostSteps ? undefined : many / few;
}

/** The worst input that was found if the pattern is super-linear; undefined: it is not, as far as was tried. */
export function superLinear(regex: RegExp): Cost | undefined {
  const { node, matcher, how } = parsed(regex);
  const { source } = regex;
  const own = [...new Set(source.replaceAll(/\\[a-zA-Z]/g, ""))];
  const letters = [...new Set([...usual, ...own])];
  const of = (each: Node): string => witness(each, matcher, letters);
  const loops = [...endless(node, "", of)];
  if (loops.length === 0) return undefined;
  const pumps = new Set<string>();
  const kinds = distinct(node, matcher, letters);
  for (const { loop } of loops) pumps.add(of({ ...loop, least: 1 }));
  for (const one of kinds) for (const two of kinds) pumps.add(one === two ? one : one + two);
  const leads = new Set(["", ...loops.map(({ before }) => before)]);
  for (const { before } of loops) if (before !== "") pumps.add(before);
  pumps.delete("");
  const afters = new Set(["\u0000", "\n\u0000", ""]);
  for (const { loop } of loops)
    afters.add(letters.find((letter) => !matcher.matches(loop.body, letter)) ?? "");
  for (const pump of pumps) {
    for (const before of leads) {
      for (const after of afters) {
        const growth = grown(matcher, node, how, { before, pump, after });
        if (growth !== undefined) return { growth, before, pump, after };
      }
    }
  }
  return undefined;
}

/** Whether it can only match at the beginning. */
function isAnchored(node: Node): boolean {
  if (node.type === "place") return node.source === "^";
  if (node.type === "sequence") return node.parts.length > 0 && isAnchored(node.parts[0]!);
  return node.type === "choice" && node.options.every(isAnchored);
}

/** One letter for each way in which the sets of a pattern tell letters apart. */
function distinct(node: Node, matcher: Matcher, letters: readonly string[]): string[] {
  const sets: string[] = [];
  const collect = (each: Node): void => {
    if (each.type === "set") sets.push(each.source);
    if (each.type === "loop" || each.type === "ahead") collect(each.body);
    for (const part of each.type === "sequence" ? each.parts : []) collect(part);
    for (const option of each.type === "choice" ? each.options : []) collect(option);
  };
  collect(node);
  const known = new Map<string, string>();
  for (const letter of letters) {
    const key = sets.map((source) => (matcher.isIn(source, letter) ? "1" : "0")).join("");
    if (key.includes("1") && !known.has(key)) known.set(key, letter);
  }
  return [...known.values()].slice(0, 8);
}
