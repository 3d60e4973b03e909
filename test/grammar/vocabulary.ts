// A small vocabulary for grammars: all bytes, and tokens that cross the borders of JSON and of characters. Without vitest,
// so that the fuzzer has it too.

import { Buffer } from "node:buffer";
import { GrammarCompiler } from "../../src/grammar/grammar.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";

/** Token 0 ends the generation, token 1 is a control token, tokens 2 to 257 are single bytes. */
export const END = 0;
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

export const tokens: readonly Uint8Array[] = vocabulary();

export const controlToken = 1;

/** Only what a grammar asks of a tokenizer. */
export const tokenizer = {
  vocabSize: tokens.length,
  tokenBytes: (id: number) => tokens[id]!,
  isEndOfGeneration: (id: number) => id === END,
  tokenId: (text: string) => (text === "<control>" ? controlToken : undefined),
  encode: (text: string) =>
    text === "<control>" ? [controlToken] : [...Buffer.from(text)].map((byte) => byte + 2),
} as unknown as Tokenizer;

export const compiler: GrammarCompiler = new GrammarCompiler(tokenizer);
