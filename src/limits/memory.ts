// The memory of a sequence's state (KV cache, recurrent state) at any context, and the context that fits in a device's memory
// beside the weights. Activations are left out: they are small.
//
// State is not proportional to the context: a layer with a window holds only its window, and recurrent state has a constant
// size. So it is described by a StateSize, not by bytes per token.

import { kvParameters, type ModelShape } from "./shape.ts";

/** Bytes of one context as data. stateSize() of src/engine/state makes it from a graph, shapeState() from a shape. */
export interface StateSize {
  /** KV caches, one for each window. */
  readonly kv: readonly KvSize[];
  /** The same at any length. */
  readonly recurrentBytes: number;
}

export interface KvSize {
  /** In all layers of this window. */
  readonly bytesPerToken: number;
  /** Tokens of a block: the unit of allocation. */
  readonly blockTokens: number;
  /** Most tokens that are held, in whole blocks; undefined: all. */
  readonly mostTokens?: number | undefined;
}

/** Bytes of a context of `tokens` tokens. */
export function stateBytes({ kv, recurrentBytes }: StateSize, tokens: number): number {
  return kv.reduce((sum, { bytesPerToken, blockTokens, mostTokens = Infinity }) => {
    const held = Math.min(Math.ceil(tokens / blockTokens) * blockTokens, mostTokens);
    return sum + held * bytesPerToken;
  }, recurrentBytes);
}

/** Bytes that a token adds while no window is full. */
export function kvBytesPerToken({ kv }: StateSize): number {
  return kv.reduce((sum, { bytesPerToken }) => sum + bytesPerToken, 0);
}

/** Tokens that fit beside the weights; undefined if the weights alone do not fit; Infinity if the state stops growing before that. */
export function tokensThatFit(
  memoryBytes: number,
  weightBytes: number,
  state: StateSize,
): number | undefined {
  const left = memoryBytes - weightBytes;
  if (left < 0) return undefined;
  const endless = { ...state, kv: state.kv.filter(({ mostTokens }) => mostTokens === undefined) };
  const windows = Math.max(0, ...state.kv.map(({ mostTokens = 0 }) => mostTokens));
  const growth = kvBytesPerToken(endless);
  if (growth === 0 && stateBytes(state, windows) <= left) return Infinity;
  // Binary search: bytes never shrink as tokens grow.
  let fits = 0;
  let over = 1 + (growth === 0 ? windows : Math.max(0, Math.floor(left / growth)));
  while (over - fits > 1) {
    const middle = Math.floor((fits + over) / 2);
    if (stateBytes(state, middle) <= left) fits = middle;
    else over = middle;
  }
  return fits;
}

/** The state of a shape whose KV cache has `kvBits` bits per value. Every layer attends to all tokens. */
export function shapeState(shape: ModelShape, kvBits: number): StateSize {
  const bytesPerToken = (kvParameters(shape) * kvBits) / 8;
  return { kv: [{ bytesPerToken, blockTokens: 1 }], recurrentBytes: 0 };
}

/** The same state with `factor` times the bytes of keys and values, for another width or number of KV heads. */
export function withKvTimes({ kv, recurrentBytes }: StateSize, factor: number): StateSize {
  return {
    kv: kv.map((part) => ({ ...part, bytesPerToken: part.bytesPerToken * factor })),
    recurrentBytes,
  };
}
