// Moves tokens of an engine's sequences to other positions (move-tokens.ts), if the model allows that: context shift, and prompts
// with a middle that is known at another position.

import type { Backend } from "../../backends/backend.ts";
import type { KvDType } from "../../dtypes/kv-types.ts";
import { type Graph, kvStates } from "../../graph/graph.ts";
import type { KeyRotations } from "./key-rotations.ts";
import { findMoves, type MoveParts, moveTokens, type TokenMove } from "./move-tokens.ts";
import type { Sequence } from "./sequence.ts";
import type { StateCapacity } from "./state-capacity.ts";

export interface TokenMoverParts {
  readonly backend: Pick<Backend, "name" | "transfer">;
  readonly graph: Graph;
  readonly kvType: KvDType;
  readonly room: StateCapacity;
  /** The rotations of keys; a string: why tokens of this model cannot move. */
  readonly rotations: KeyRotations | string;
}

/** Why tokens cannot move to other positions: a clause; undefined: they can. */
export function noShift(
  rotations: KeyRotations | string,
  { name, transfer }: TokenMoverParts["backend"],
): string | undefined {
  if (typeof rotations === "string") return rotations;
  return transfer ? undefined : `backend "${name}" keeps its state to itself`;
}

export class TokenMover {
  readonly #parts: TokenMoverParts;

  constructor(parts: TokenMoverParts) {
    this.#parts = parts;
  }

  /** Why tokens cannot move to other positions: a clause; undefined: they can. */
  get refusal(): string | undefined {
    return noShift(this.#parts.rotations, this.#parts.backend);
  }

  /** Drops `count` tokens after the first `keep`; later tokens move forward. */
  async drop(
    sequence: Sequence,
    keep: number,
    count: number,
    yieldThread: () => Promise<void>,
  ): Promise<void> {
    const { length } = sequence;
    const tokens = [...sequence.tokens(0, keep), ...sequence.tokens(keep + count, length)];
    const moves = [
      { from: 0, to: 0, count: keep },
      { from: keep + count, to: keep, count: length - keep - count },
    ];
    await moveTokens(this.#moveParts(yieldThread), sequence, tokens, moves);
    sequence.moveStarts(keep, count);
  }

  /**
   * Takes pieces of the prompt, of at least `least` tokens, that are known at other positions, after the prefix that the sequence
   * holds. Returns the number of tokens taken.
   */
  async take(sequence: Sequence, tokens: readonly number[], least: number): Promise<number> {
    // Tokens before and behind an adapter's first are not alike.
    if (this.refusal !== undefined || sequence.adapters.starts) return 0;
    const known = sequence.restorable(Math.min(sequence.commonPrefix(tokens), tokens.length - 1));
    sequence.restore(known);
    let best: { from: Sequence; moves: TokenMove[]; count: number } | undefined;
    for (const from of this.#parts.room.prefixes.all) {
      if (from.adapters.key !== sequence.adapters.key) continue;
      const moves = findMoves(from, tokens, known, least);
      const count = moves.reduce((sum, move) => sum + move.count, 0);
      if (count > (best?.count ?? 0)) best = { from, moves, count };
    }
    if (!best) return 0;
    const moves = [{ from: 0, to: 0, count: known }, ...best.moves];
    const parts = this.#moveParts(async () => {});
    await moveTokens(parts, sequence, tokens, moves, best.from.fork());
    return best.count;
  }

  #moveParts(yieldThread: () => Promise<void>): MoveParts {
    const { backend, graph, kvType, room, rotations } = this.#parts;
    return {
      states: kvStates(graph),
      rotations: rotations as KeyRotations,
      kvType,
      // Asked for each time: after growKv() a GPU's blocks lie in other buffers.
      get transfer() {
        return backend.transfer!;
      },
      makeRoom: (sequence, length) => room.makeRoomToExtend(sequence, length),
      yieldThread,
    };
  }
}
