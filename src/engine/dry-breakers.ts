// Turns DRY's sequence breakers (texts) into tokens: every token that contains such a text, and every token that ends
// with the start of one, with the tokens that would complete it. As in llama.cpp.
//
// The search reads all tokens of the vocabulary, which takes some milliseconds per text. Results are cached, and a
// long search yields to other work.

import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import type { DryBreaker } from "./dry.ts";

/** llama.cpp's limits: bytes of a text, and tokens that complete it. */
const MAX_BYTES = 40;
const MAX_TAIL = 20;
/** Number of texts whose tokens are cached. */
const MAX_KNOWN = 64;
/** Tokens searched before yielding. */
const SLICE = 8192;

const known = new WeakMap<Tokenizer, Map<string, readonly DryBreaker[]>>();
const utf8 = new TextEncoder();

/** Yields to other work. */
interface Turn {
  yieldThread(): Promise<void>;
}

export async function findBreakers(
  tokenizer: Tokenizer,
  texts: readonly string[],
  turn: Turn,
): Promise<DryBreaker[]> {
  const found: DryBreaker[] = [];
  let remembered = known.get(tokenizer);
  if (!remembered) {
    remembered = new Map();
    known.set(tokenizer, remembered);
  }
  for (const text of texts) {
    let breakers = remembered.get(text);
    if (!breakers) {
      breakers = await search(tokenizer, text, turn);
      if (remembered.size >= MAX_KNOWN) remembered.clear();
      remembered.set(text, breakers);
    }
    for (const breaker of breakers) found.push(breaker);
  }
  return found;
}

async function search(tokenizer: Tokenizer, text: string, turn: Turn): Promise<DryBreaker[]> {
  const sought = byteString(utf8.encode(text).subarray(0, MAX_BYTES));
  const found: DryBreaker[] = [];
  for (let id = 0; id < tokenizer.vocabSize; id++) {
    if (id % SLICE === SLICE - 1) await turn.yieldThread();
    const word = byteString(tokenizer.tokenBytes(id, { special: true }));
    if (word.includes(sought)) found.push({ head: id, tail: [] });
    else for (const tail of tailsOf(tokenizer, word, sought)) found.push({ head: id, tail });
  }
  return found;
}

/** For each way in which the word ends with a start of the text: the tokens of the rest. */
function tailsOf(tokenizer: Tokenizer, word: string, sought: string): number[][] {
  const tails: number[][] = [];
  const first = sought[0]!;
  for (let at = word.indexOf(first); at >= 0; at = word.indexOf(first, at + 1)) {
    const begun = word.slice(at);
    if (!sought.startsWith(begun)) continue;
    const rest = textOf(sought.slice(begun.length));
    const tail = tokenizer.encode(rest, { addSpecial: false, parseSpecial: false });
    tail.length = Math.min(tail.length, MAX_TAIL);
    if (!tails.some((other) => other.join() === tail.join())) tails.push(tail);
  }
  return tails;
}

/** One character per byte, so that bytes can be searched as a string. */
function byteString(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += String.fromCharCode(bytes[i]!);
  return text;
}

function textOf(bytes: string): string {
  return new TextDecoder().decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)));
}
