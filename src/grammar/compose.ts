// Grammars of parts: one after the other, one of several, repeated; texts with control tokens in them, and free text.
//
// A control token has no bytes, so a text reaches it only by its id: where the vocabulary has a control token for a piece of a
// literal, the literal has that token there. A piece that ends the generation is left out: the text ends before it.

import type { ComposedSource, GrammarSource } from "../api/grammar-source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { either, inOrder, literal, type Node, repeat, sequence } from "./nodes.ts";
import { complement, utf8 } from "./regex/code-points.ts";
import type { Expressions } from "./regex/expressions.ts";

/** The control tokens of a vocabulary by their text. */
export class ControlTokens {
  readonly #ids: Map<string, number> = new Map();
  readonly #ends: Set<string> = new Set();
  readonly #starts: Set<string> = new Set(); // first characters
  #longest = 0;

  /** `candidates`: the tokens without bytes and those that end a text, if they are known. Default: all tokens are looked at. */
  constructor(tokenizer: Tokenizer, candidates?: readonly number[]) {
    const count = candidates?.length ?? tokenizer.vocabSize;
    for (let i = 0; i < count; i++) {
      const id = candidates?.[i] ?? i;
      const isEnd = tokenizer.isEndOfGeneration(id);
      if (!isEnd && tokenizer.tokenBytes(id).length > 0) continue;
      const text = new TextDecoder().decode(tokenizer.tokenBytes(id, { special: true }));
      if (text === "") continue;
      if (isEnd) this.#ends.add(text);
      else this.#ids.set(text, id);
      this.#starts.add(text[0]!);
      this.#longest = Math.max(this.#longest, text.length);
    }
  }

  /** The text in pieces: plain ones, and control tokens. */
  split(text: string): (string | number)[] {
    const pieces: (string | number)[] = [];
    let plain = "";
    for (let at = 0; at < text.length; ) {
      const found = this.#starts.has(text[at]!) ? this.#longestAt(text, at) : "";
      if (found === "") {
        plain += text[at++];
        continue;
      }
      if (plain !== "") pieces.push(plain);
      plain = "";
      const id = this.#ids.get(found);
      if (id !== undefined) pieces.push(id);
      at += found.length;
    }
    if (plain !== "") pieces.push(plain);
    return pieces;
  }

  #longestAt(text: string, at: number): string {
    for (let length = Math.min(this.#longest, text.length - at); length > 0; length--) {
      const piece = text.slice(at, at + length);
      if (this.#ids.has(piece) || this.#ends.has(piece)) return piece;
    }
    return "";
  }

  /** All tokens but those that begin one of these texts. */
  others(texts: readonly string[]): number[] {
    const not = new Set(texts.map((text) => this.split(text)[0]));
    return [...this.#ids.values()].filter((id) => !not.has(id));
  }
}

export function addComposed(
  source: ComposedSource,
  of: Expressions,
  controls: ControlTokens,
  read: (source: GrammarSource) => Node,
): Node {
  if ("sequence" in source) return inOrder(source.sequence.map(read));
  if ("either" in source) return either(source.either.map(read));
  if ("repeat" in source) {
    return repeat(read(source.repeat), source.low, source.high ?? Number.POSITIVE_INFINITY);
  }
  if ("literal" in source) {
    const pieces = controls
      .split(source.literal)
      .map((piece): Node => (typeof piece === "string" ? literal(of, piece) : oneToken([piece])));
    return pieces.length === 0 ? literal(of, "") : inOrder(pieces);
  }
  const encode = (value: string): Uint8Array => new TextEncoder().encode(value);
  const anything = of.star(utf8(of, complement([])));
  const stops = source.without.map((text) => of.literal(encode(text)));
  const free =
    stops.length === 0
      ? anything
      : of.and(anything, of.not(of.sequence(anything, of.any(stops), anything)));
  const text: Node = { kind: "lexeme", expression: free };
  const ids = controls.others(source.without);
  if (ids.length === 0) return text;
  return sequence(text, repeat(sequence(oneToken(ids), text), 0, Number.POSITIVE_INFINITY));
}

const oneToken = (ids: readonly number[]): Node => ({ kind: "token", ids, except: false });

export function isComposed(source: GrammarSource): source is ComposedSource {
  return ["sequence", "either", "repeat", "literal", "without"].some((kind) =>
    Object.hasOwn(source, kind),
  );
}
