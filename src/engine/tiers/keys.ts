// Keys of stored state: a unit (a cache block of one group, or a slot of recurrent state) is found by the tokens it was computed from. The
// key of a length of a text is a hash of the key before it and of the tokens since; the first key names the model and everything else that
// the numbers depend on. So equal keys mean equal state, from any process at any time.

import { hex, sha256 } from "../../base/sha256.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";

/** 128 bits, in hexadecimal. */
export type StateKey = string;

export const KEY_BYTES = 16;

/** A unit's name: its key, and its kind. */
export const unitId = (key: StateKey, kind: number): string => `${key}.${kind}`;

/** Stored state of another version is not read: its layout, or the meaning of its keys, was different. */
const LAYOUT_VERSION = 1;

/**
 * The version of the kernels' rounding. Raise it with every change of a kernel after which some result differs in its last bits: earlier
 * state is then not used any more. test/engine/tiers/rounding.test.ts notices changed kernels in WebAssembly; changed machine code shows in
 * the hashes of kernels only.
 */
export const ROUNDING_VERSION = 2;

/** The key before the first token. `facts`: all that state depends on besides tokens, in a fixed order. */
export function rootKey(facts: readonly (string | number)[]): StateKey {
  const text = JSON.stringify(["lantern state", LAYOUT_VERSION, ...facts]);
  return keyOf(new TextEncoder().encode(text));
}

/** The key after `tokens`, at most a block, behind the text of `parent`. */
export function nextKey(parent: StateKey, tokens: ArrayLike<number>): StateKey {
  const bytes = new Uint8Array(KEY_BYTES + tokens.length * 4);
  bytes.set(keyBytes(parent));
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < tokens.length; i++) view.setInt32(KEY_BYTES + i * 4, tokens[i]!, true);
  return keyOf(bytes);
}

/** Keys of all whole blocks of `tokens` up to `length`, in order. */
export function blockKeys(root: StateKey, tokens: ArrayLike<number>, length: number): StateKey[] {
  const keys: StateKey[] = [];
  let key = root;
  for (let end = KV_BLOCK_TOKENS; end <= length; end += KV_BLOCK_TOKENS) {
    key = nextKey(key, slice(tokens, end - KV_BLOCK_TOKENS, end));
    keys.push(key);
  }
  return keys;
}

/** The part of a Sequence that keys are computed from. */
interface KeyedSequence {
  readonly keys: StateKey[];
  readonly length: number;
  tokens(from: number, to: number): Int32Array;
}

/** Brings sequence.keys up to date: one key for each of its whole blocks. */
export function sequenceKeys(root: StateKey, sequence: KeyedSequence): readonly StateKey[] {
  const { keys } = sequence;
  const whole = Math.floor(sequence.length / KV_BLOCK_TOKENS);
  while (keys.length < whole) {
    const from = keys.length * KV_BLOCK_TOKENS;
    keys.push(nextKey(keys.at(-1) ?? root, sequence.tokens(from, from + KV_BLOCK_TOKENS)));
  }
  return keys;
}

export function keyBytes(key: StateKey): Uint8Array {
  const bytes = new Uint8Array(KEY_BYTES);
  for (let i = 0; i < KEY_BYTES; i++) bytes[i] = Number.parseInt(key.slice(i * 2, i * 2 + 2), 16);
  return bytes;
}

export function keyFrom(bytes: Uint8Array): StateKey {
  return hex(bytes.subarray(0, KEY_BYTES));
}

function keyOf(bytes: Uint8Array): StateKey {
  return keyFrom(sha256(bytes));
}

function slice(tokens: ArrayLike<number>, from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => tokens[from + i]!);
}
