// Builds the trie of a vocabulary, in pieces: most of a second for 128k tokens, and the engine's thread has batches to compute.

import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { TokenTrie, type TrieParts } from "./trie.ts";

/** Tokens at a time: a millisecond or two. */
const AT_ONCE = 1000;

export function* buildTrie(tokenizer: Tokenizer): Generator<void, TokenTrie> {
  const { vocabSize } = tokenizer;
  const bytes: (Uint8Array | undefined)[] = [];
  const endTokens: number[] = [];
  /** Tokens by their first two bytes: an array is not sorted in pieces, but these are short. */
  const alike = new Map<number, number[]>();
  for (let id = 0; id < vocabSize; id++) {
    if (id % AT_ONCE === AT_ONCE - 1) yield;
    const isEnd = tokenizer.isEndOfGeneration(id);
    if (isEnd) endTokens.push(id);
    const text = tokenizer.tokenBytes(id);
    const isText = text.length > 0 && !isEnd;
    bytes.push(isText ? text : undefined);
    if (!isText) continue;
    const key = text[0]! * 257 + (text.length === 1 ? 0 : text[1]! + 1);
    const list = alike.get(key);
    if (list) list.push(id);
    else alike.set(key, [id]);
  }
  const ids: number[] = [];
  let unsorted = 0;
  for (const key of [...alike.keys()].sort((a, b) => a - b)) {
    const list = alike.get(key)!;
    unsorted += list.length;
    if (unsorted > AT_ONCE) {
      unsorted = 0;
      yield;
    }
    for (const id of list.sort((a, b) => compareBytes(bytes[a]!, bytes[b]!) || a - b)) ids.push(id);
  }
  yield;
  const flat = yield* flatten(
    ids.map((id) => bytes[id]!),
    ids,
  );
  return new TokenTrie({ vocabSize, endTokens, bytes, tokens: Int32Array.from(ids), ...flat });
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}

/** Node 0 is the root; the texts are sorted, so that nodes come out in depth-first order. */
function* flatten(
  texts: readonly Uint8Array[],
  ids: readonly number[],
): Generator<void, Pick<TrieParts, "nodes" | "byte" | "info" | "end" | "height" | "firstToken">> {
  let most = 1;
  for (const text of texts) most += text.length;
  const byte = new Uint8Array(most);
  const info = new Int32Array(most);
  const end = new Int32Array(most);
  const height = new Uint8Array(most);
  const firstToken = new Int32Array(most + 1);
  const path: number[] = [0]; // the nodes of the text before, by depth
  let nodes = 1;
  let before: Uint8Array = new Uint8Array(0);
  const close = (depth: number): void => {
    while (path.length - 1 > depth) {
      const node = path.pop()!;
      end[node] = nodes;
      const parent = path[path.length - 1]!;
      height[parent] = Math.max(height[parent]!, Math.min(255, height[node]! + 1));
    }
  };
  for (let i = 0; i < ids.length; i++) {
    if (i % AT_ONCE === AT_ONCE - 1) yield;
    const text = texts[i]!;
    let common = 0;
    while (common < text.length && text[common] === before[common]) common++;
    if (common < text.length || i === 0) close(common);
    for (let depth = common; depth < text.length; depth++) {
      byte[nodes] = text[depth]!;
      info[nodes] = text[depth]! | (depth << 8);
      firstToken[nodes] = i;
      path.push(nodes++);
    }
    before = text;
  }
  close(0);
  end[0] = nodes;
  firstToken[nodes] = ids.length;
  return {
    nodes,
    byte: byte.slice(0, nodes),
    info: info.slice(0, nodes),
    end: end.slice(0, nodes),
    height: height.slice(0, nodes),
    firstToken: firstToken.slice(0, nodes + 1),
  };
}
