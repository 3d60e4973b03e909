// All tokens of a vocabulary as a trie over their bytes, laid flat in depth-first order.
//
// Node n has its subtree at n + 1 ... end[n] - 1, so a walk that gives a subtree up continues at end[n]. Tokens without
// bytes (control tokens) are not in it: only a grammar's token literals reach them.

/** Flags of `info`: the node has children; several tokens have the node's bytes. */
export const INNER: number = 1 << 26;
export const SHARED: number = 1 << 27;

/** The result of trie-build.ts. */
export interface TrieParts
  extends Pick<TokenTrie, "vocabSize" | "endTokens" | "tokens" | "nodes" | "byte" | "info">,
    Pick<TokenTrie, "end" | "height" | "firstToken"> {
  readonly bytes: readonly (Uint8Array | undefined)[]; // [vocab]
}

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
  readonly #bytes: readonly (Uint8Array | undefined)[]; // [vocab]

  constructor(parts: TrieParts) {
    this.vocabSize = parts.vocabSize;
    this.maskWords = Math.ceil(this.vocabSize / 32);
    this.endTokens = parts.endTokens;
    this.#bytes = parts.bytes;
    this.nodes = parts.nodes;
    this.byte = parts.byte;
    this.info = parts.info;
    this.end = parts.end;
    this.height = parts.height;
    this.firstToken = parts.firstToken;
    this.tokens = parts.tokens;
    this.token = new Int32Array(this.nodes).fill(-1);
    for (let node = 0; node < this.nodes; node++) {
      const first = this.firstToken[node]!;
      const count = this.firstToken[node + 1]! - first;
      if (count > 0) this.token[node] = this.tokens[first]!;
      if (count > 1) this.info[node]! |= SHARED;
      if (this.height[node]! > 0) this.info[node]! |= INNER;
    }
  }

  /** Tokens without bytes, and tokens that end the generation. */
  get controlTokens(): readonly number[] {
    const ids: number[] = [];
    for (let id = 0; id < this.vocabSize; id++) if (this.#bytes[id] === undefined) ids.push(id);
    return ids;
  }

  /** The bytes of a token; undefined for one without, and for one that ends the generation. */
  bytesOf(token: number): Uint8Array | undefined {
    return this.#bytes[token];
  }
}
