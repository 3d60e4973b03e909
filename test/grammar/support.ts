// What grammar tests ask of a grammar: which texts it takes, and whether its masks are exact.

import { Buffer } from "node:buffer";
import { expect } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import type { Grammar } from "../../src/grammar/grammar.ts";
import type { GrammarState } from "../../src/grammar/state.ts";
import { compiler, END, tokens } from "./vocabulary.ts";

export { compiler, controlToken } from "./vocabulary.ts";

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
