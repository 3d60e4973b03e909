// A small vocabulary for grammar tests: all bytes, and tokens that cross the borders of JSON and of characters.

import { Buffer } from "node:buffer";
import { expect } from "vitest";
import { type Grammar, GrammarCompiler } from "../../src/grammar/grammar.ts";
import type { GrammarSource } from "../../src/grammar/source.ts";
import type { GrammarState } from "../../src/grammar/state.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";

/** Token 0 ends the generation, token 1 is a control token, tokens 2 to 257 are single bytes. */
const END = 0;
const TEXTS = [
  '{"',
  '":',
  '": "',
  '", "',
  '"}',
  '"}}',
  "}]}",
  "]]",
  ", ",
  ": ",
  "12",
  "123",
  "true",
  "false",
  "null",
  "nu",
  "name",
  "ab",
  "abc",
  "hello",
  "  ",
  "\n  ",
  '\\"',
  "é",
  "日本",
  "😀",
  '日"',
  "<tool>",
  "</tool>",
  "aaaaaaaa",
];

function vocabulary(): Uint8Array[] {
  const tokens = [new Uint8Array(0), new Uint8Array(0)];
  for (let byte = 0; byte < 256; byte++) tokens.push(Uint8Array.of(byte));
  for (const text of TEXTS) tokens.push(Buffer.from(text));
  tokens.push(Uint8Array.of(0xe6, 0x97), Uint8Array.of(0xa5, 0x22), Uint8Array.of(0x22, 0xe6)); // parts of 日
  return tokens;
}

const tokens: readonly Uint8Array[] = vocabulary();

export const controlToken = 1;

/** Only what a grammar asks of a tokenizer. */
const tokenizer = {
  vocabSize: tokens.length,
  tokenBytes: (id: number) => tokens[id]!,
  isEndOfGeneration: (id: number) => id === END,
  tokenId: (text: string) => (text === "<control>" ? controlToken : undefined),
  encode: (text: string) =>
    text === "<control>" ? [controlToken] : [...Buffer.from(text)].map((byte) => byte + 2),
} as unknown as Tokenizer;

export const compiler: GrammarCompiler = new GrammarCompiler(tokenizer);

export function compile(source: GrammarSource): Grammar {
  return compiler.compile(source);
}

export function takes(grammar: Grammar, text: string): boolean {
  const state = grammar.start();
  for (const byte of Buffer.from(text)) if (!state.accept(byte + 2)) return false;
  return state.isComplete;
}

/** What the source takes of `texts`. */
export function taken(source: GrammarSource, texts: readonly string[]): string[] {
  const grammar = compile(source);
  return texts.filter((text) => takes(grammar, text));
}

/** The mask of a state must allow exactly the tokens that it accepts. */
export function expectExactMask(grammar: Grammar, state: GrammarState): number[] {
  const bits = new Uint32Array(grammar.maskWords).fill(0xffffffff);
  state.mask(bits);
  const allowed: number[] = [];
  const accepted: number[] = [];
  for (let token = 0; token < tokens.length; token++) {
    if ((bits[token >> 5]! >>> (token & 31)) & 1) allowed.push(token);
    if (state.clone().accept(token)) accepted.push(token);
  }
  expect(allowed).toEqual(accepted);
  return allowed;
}

/** Generates with a fixed choice among the allowed tokens, checking every mask; the bytes so far, and whether it ended. */
export function generate(grammar: Grammar, seed: number, most: number): string {
  const state = grammar.start();
  const bytes: number[] = [];
  let random = seed;
  for (let i = 0; i < most; i++) {
    const allowed = expectExactMask(grammar, state);
    expect(allowed.length).toBeGreaterThan(0);
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
    const token = allowed[(random >>> 8) % allowed.length]!;
    if (token === END) break;
    expect(state.accept(token)).toBe(true);
    bytes.push(...tokens[token]!);
  }
  return Buffer.from(bytes).toString();
}
