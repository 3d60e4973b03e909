// Moves tokens of a sequence to other positions without computing them again: a full context that drops its oldest half, or a
// prompt with a middle that is known from another position. Values stay as they are; keys are rotated by the distance that they
// move. In quantized caches they are dequantized, rotated and quantized again, as in llama.cpp.
//
// The state then differs from a computation of these tokens: it remembers tokens that are gone (Sequence.exactTokens). The move
// happens in the host's memory, through StateTransfer, so that it is the same for every backend.

import type { StateTransfer } from "../../backends/backend.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import { type KvDType, kvPair, kvQuantizer } from "../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { KvState } from "../../graph/graph.ts";
import type { KeyRotation, KeyRotations } from "./key-rotations.ts";
import type { Sequence } from "./sequence.ts";

/** Tokens from position `from` on go to position `to`. */
export interface TokenMove {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

export interface MoveParts {
  readonly states: readonly KvState[];
  readonly rotations: KeyRotations;
  readonly kvType: KvDType;
  readonly transfer: StateTransfer;
  /** Before Sequence.extend(). */
  makeRoom(sequence: Sequence, length: number): void;
  /** Lets messages in. */
  yieldThread(): Promise<void>;
}

/**
 * Makes the sequence hold the first tokens of `tokens`. Moves are in order of `to` and without gaps; the first one begins at 0, and
 * its tokens stay where they are. The others come from `source`, which may be another sequence: it is released.
 */
export async function moveTokens(
  parts: MoveParts,
  sequence: Sequence,
  tokens: ArrayLike<number>,
  moves: readonly TokenMove[],
  source?: Sequence,
): Promise<void> {
  const stays = moves[0]!.count;
  const { to, count } = moves.at(-1)!;
  const length = to + count;
  const whole = Math.floor(stays / KV_BLOCK_TOKENS);
  const own = new BlockMover(parts, sequence);
  const other = source ? new BlockMover(parts, source) : own;
  const blocks: Uint8Array[] = [];
  try {
    for (let block = whole; block * KV_BLOCK_TOKENS < length; block++) {
      const target = new Uint8Array(own.blockBytes);
      for (const move of moves) {
        await (move === moves[0] ? own : other).copy(move, target, block * KV_BLOCK_TOKENS);
      }
      blocks.push(target);
      await parts.yieldThread();
    }
  } finally {
    source?.release();
  }
  // No await from here on: the given up blocks must be the ones that are taken again.
  const exact = Math.min(stays, sequence.exactTokens);
  sequence.restore(whole * KV_BLOCK_TOKENS);
  parts.makeRoom(sequence, length);
  const [taken] = sequence.extend(tokens, length);
  for (const [end, number] of taken!) {
    const block = Math.ceil(end / KV_BLOCK_TOKENS) - 1;
    parts.transfer.writeBlock(0, number, blocks[block - whole]!);
  }
  sequence.exactTokens = exact;
}

/** Copies rows out of the blocks of a sequence. */
class BlockMover {
  /** The bytes of a block, over all states. */
  readonly blockBytes: number;
  readonly #parts: MoveParts;
  readonly #sequence: Sequence;
  /** The block that was read last, and its number in the sequence. */
  readonly #read: Uint8Array;
  #readBlock = -1;
  /** Cosines, then sines: [2, dims / 2], by rotation and distance. */
  readonly #turns = new Map<KeyRotation, Map<number, Float32Array>>();
  #floats = new Float32Array();

  constructor(parts: MoveParts, sequence: Sequence) {
    this.#parts = parts;
    this.#sequence = sequence;
    const { k, v } = kvPair(parts.kvType);
    this.blockBytes = parts.states.reduce(
      (sum, { kCols, vCols }) => sum + KV_BLOCK_TOKENS * (bytesFor(k, kCols) + bytesFor(v, vCols)),
      0,
    );
    this.#read = new Uint8Array(this.blockBytes);
  }

  /** Copies a move's rows of the block that begins at `begin`: for each state, keys [32, kCols], then values [32, vCols]. */
  async copy({ from, to, count }: TokenMove, target: Uint8Array, begin: number): Promise<void> {
    const last = Math.min(begin + KV_BLOCK_TOKENS, to + count);
    for (let row = Math.max(begin, to); row < last; ) {
      const source = row - to + from;
      const block = Math.floor(source / KV_BLOCK_TOKENS);
      const rows = Math.min(last - row, (block + 1) * KV_BLOCK_TOKENS - source);
      await this.#bring(block);
      this.#copyRows(source - block * KV_BLOCK_TOKENS, target, row - begin, rows, to - from);
      row += rows;
    }
  }

  async #bring(block: number): Promise<void> {
    if (block === this.#readBlock) return;
    const { states, length } = this.#sequence;
    const number = states[0]!.unitAt(Math.min(length, (block + 1) * KV_BLOCK_TOKENS));
    if (number === undefined) throw new Error(`block ${block} of a sequence is not held`);
    await this.#parts.transfer.readBlock(0, number, this.#read);
    this.#readBlock = block;
  }

  /** Copies rows of all states from the block that was read, and rotates their keys. */
  #copyRows(from: number, target: Uint8Array, to: number, rows: number, distance: number): void {
    const { k, v } = kvPair(this.#parts.kvType);
    let at = 0;
    const copy = (rowBytes: number): number => {
      const begin = at + to * rowBytes;
      target.set(this.#read.subarray(at + from * rowBytes, at + (from + rows) * rowBytes), begin);
      at += KV_BLOCK_TOKENS * rowBytes;
      return begin;
    };
    this.#parts.states.forEach(({ kCols, vCols }, i) => {
      const keys = copy(bytesFor(k, kCols));
      copy(bytesFor(v, vCols));
      const rotation = this.#parts.rotations[i];
      if (rotation && distance !== 0) {
        this.#rotate(target, keys, rows * kCols, rotation, distance);
      }
    });
  }

  /** Rotates the keys of `count` values from byte `at` on. */
  #rotate(
    target: Uint8Array,
    at: number,
    count: number,
    rotation: KeyRotation,
    distance: number,
  ): void {
    const { k } = kvPair(this.#parts.kvType);
    if (this.#floats.length < count) this.#floats = new Float32Array(count);
    const floats = this.#floats;
    const blocks = count / k.blockElems;
    k.dequantize(target, at, floats, 0, blocks);
    const { headDim, rope } = rotation;
    const pairs = rope.dims / 2;
    const turns = this.#turnsOf(rotation, distance);
    const [stride, apart] = rope.layout === "interleaved" ? [2, 1] : [1, pairs];
    for (let head = 0; head < count; head += headDim) {
      for (let pair = 0; pair < pairs; pair++) {
        const cos = turns[pair]!;
        const sin = turns[pairs + pair]!;
        const one = head + pair * stride;
        const a = floats[one]!;
        const b = floats[one + apart]!;
        floats[one] = Math.fround(a * cos) - Math.fround(b * sin);
        floats[one + apart] = Math.fround(a * sin) + Math.fround(b * cos);
      }
    }
    kvQuantizer(k)(floats, 0, target, at, blocks);
  }

  /** The magnitude is in the keys already. */
  #turnsOf(rotation: KeyRotation, distance: number): Float32Array {
    const known = this.#turns.get(rotation) ?? new Map<number, Float32Array>();
    this.#turns.set(rotation, known);
    const there = known.get(distance);
    if (there) return there;
    const { rope, factors } = rotation;
    const pairs = rope.dims / 2;
    const turns = new Float32Array(2 * pairs);
    for (let pair = 0; pair < pairs; pair++) {
      const angle = Math.fround(distance * rope.frequencies[pair]!) / (factors?.[pair] ?? 1);
      turns[pair] = Math.cos(Math.fround(angle));
      turns[pairs + pair] = Math.sin(Math.fround(angle));
    }
    known.set(distance, turns);
    return turns;
  }
}

/**
 * The pieces of `tokens` that this sequence holds at other positions, of at least `least` tokens each; the first `known` tokens are
 * there already.
 */
export function findMoves(
  sequence: Sequence,
  tokens: readonly number[],
  known: number,
  least: number,
): TokenMove[] {
  const moves: TokenMove[] = [];
  const most = tokens.length - 1; // the last token is always computed
  let from = Math.min(known, sequence.commonPrefix(tokens));
  let to = known;
  while (from < sequence.length && to < most) {
    let count = 0;
    while (
      from + count < sequence.length &&
      to + count < most &&
      sequence.token(from + count) === tokens[to + count]
    ) {
      count++;
    }
    if (count >= least) {
      moves.push({ from, to, count });
      from += count;
      to += count;
    } else from++;
  }
  return moves;
}
