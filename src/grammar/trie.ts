// All tokens of a vocabulary as a trie over their bytes, laid flat in depth-first order.
//
// Node n has its subtree at n + 1 ... end[n] - 1, so a walk that gives a subtree up continues at end[n]. Tokens without
// bytes (control tokens) are not in it: only a grammar's token literals reach them.

import type { Tokenizer } from "../tokenizers/tokenizer.ts";

/** Of `info`: the node has children; several tokens have the node's bytes. */
export const INNER: number = 1 << 26;
export const SHARED: number = 1 << 27;

export class TokenTrie {
  readonly vocabSize: number;
  /** Words of 32 bits in a mask. */
  readonly maskWords: number;
  readonly nodes: number;
  readonly byte: Uint8Array; // [nodes]
  /** [nodes]: the byte, the depth of the parent << 8, INNER and SHARED: all that a walk asks of most nodes. */
  readonly info: Int32Array;
  readonly token: Int32Array; // [nodes]: the first of the node's tokens, -1 without one
  readonly end: Int32Array; // [nodes]: the first node after the subtree
  readonly height: Uint8Array; // [nodes]: bytes below the node, 255 for more
  readonly firstToken: Int32Array; // [nodes + 1]: where the node's tokens begin in `tokens`
  readonly tokens: Int32Array; // token ids in the order of their nodes
  readonly endTokens: readonly number[];
  readonly #bytes: (Uint8Array | undefined)[];

  constructor(tokenizer: Tokenizer) {
    this.vocabSize = tokenizer.vocabSize;
    this.maskWords = Math.ceil(this.vocabSize / 32);
    const bytes: (Uint8Array | undefined)[] = [];
    const ends: number[] = [];
    const ids: number[] = [];
    for (let id = 0; id < this.vocabSize; id++) {
      const isEnd = tokenizer.isEndOfGeneration(id);
      if (isEnd) ends.push(id);
      const text = tokenizer.tokenBytes(id);
      const isText = text.length > 0 && !isEnd;
      bytes.push(isText ? text : undefined);
      if (isText) ids.push(id);
    }
    this.endTokens = ends;
    this.#bytes = bytes;
    ids.sort((a, b) => compareBytes(bytes[a]!, bytes[b]!) || a - b);
    const flat = flatten(
      ids.map((id) => bytes[id]!),
      ids,
    );
    this.nodes = flat.nodes;
    this.byte = flat.byte;
    this.info = flat.info;
    this.end = flat.end;
    this.height = flat.height;
    this.firstToken = flat.firstToken;
    this.tokens = Int32Array.from(ids);
    this.token = new Int32Array(this.nodes).fill(-1);
    for (let node = 0; node < this.nodes; node++) {
      const first = this.firstToken[node]!;
      const count = this.firstToken[node + 1]! - first;
      if (count > 0) this.token[node] = this.tokens[first]!;
      if (count > 1) this.info[node]! |= SHARED;
      if (this.height[node]! > 0) this.info[node]! |= INNER;
    }
  }

  /** The bytes of a token; undefined for one without, and for one that ends the generation. */
  bytesOf(token: number): Uint8Array | undefined {
    return this.#bytes[token];
  }
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}

/** Node 0 is the root; the texts are sorted, so that nodes come out in depth-first order. */
function flatten(
  texts: readonly Uint8Array[],
  ids: readonly number[],
): Pick<TokenTrie, "nodes" | "byte" | "info" | "end" | "height" | "firstToken"> {
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
