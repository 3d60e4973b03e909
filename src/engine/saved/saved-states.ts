// Saves and loads the state of an engine's sequences: finds the sequence of a text and writes it; checks a file and takes its
// sequence over, among those that the prefix cache keeps.

import type { ModelInfo } from "../../api/api.ts";
import type { Backend } from "../../backends/backend.ts";
import { UsageError } from "../../base/errors.ts";
import { type KvDType, kvTypeName } from "../../dtypes/kv-types.ts";
import type { Graph } from "../../graph/graph.ts";
import type { AdapterUse } from "../state/adapter-use.ts";
import type { RunningSequence, SequenceRequest } from "../state/running-sequence.ts";
import type { Sequence } from "../state/sequence.ts";
import type { StateCapacity } from "../state/state-capacity.ts";
import { rootKey } from "../tiers/keys.ts";
import { graphFacts } from "../tiers/open-tiers.ts";
import { ONLOOKER } from "../tiers/owners.ts";
import type { Crc32 } from "../tiers/segment.ts";
import { checkState, readState, type SavedStateParts, writeState } from "./saved-state.ts";
import type { StateSink, StateSource } from "./state-file.ts";

export interface SavedStatesParts {
  readonly backend: Backend;
  readonly graph: Graph;
  readonly kvType: KvDType;
  readonly room: StateCapacity;
  readonly info: ModelInfo;
  readonly isBidirectional: boolean;
  /** Names of the weights. */
  stateFacts(): Promise<readonly string[]>;
  begin(request: SequenceRequest): Promise<RunningSequence>;
  /** The adapters of state that is saved and loaded. */
  adapters(): AdapterUse;
  /** Takes over a sequence that has ended. */
  keep(sequence: Sequence): void;
  /** Copies its state out of the backend, if copies are kept. */
  mark(sequence: Sequence): void;
  /** Tells the user. */
  say(sentence: string): void;
}

export interface HowToSave {
  readonly crc32: Crc32;
  isAborted(): boolean;
}

/** Stands for no token: it follows tokens of which the last one need not be computed again. */
const NO_TOKEN = -1;

export class SavedStates {
  readonly #parts: SavedStatesParts;

  constructor(parts: SavedStatesParts) {
    this.#parts = parts;
  }

  /** Saves the state of the longest known prefix of these tokens. `open`: makes the sink for the given number of bytes. */
  async save(
    tokens: readonly number[],
    { crc32, isAborted }: HowToSave,
    open: (bytes: number) => Promise<StateSink>,
  ): Promise<{ tokens: number; bytes: number }> {
    const { begin, keep, room } = this.#parts;
    const adapters = this.#parts.adapters();
    const parts = await this.#stateParts(crc32, adapters);
    const asked = [...tokens, NO_TOKEN];
    const { sequence, promised } = await begin({
      tokens: asked,
      mayAdd: 0,
      isStored: true,
      owner: ONLOOKER,
      adapters,
      isAborted,
    });
    try {
      sequence.restore(sequence.restorable(sequence.commonPrefix(asked)));
      if (sequence.length === 0) {
        throw new UsageError(
          "saveState(): nothing of these tokens is in the KV cache or among its copies. Save a text right after it was computed",
        );
      }
      return { tokens: sequence.length, bytes: await writeState(parts, sequence, open) };
    } finally {
      keep(sequence);
      room.leave(promised);
    }
  }

  /** Takes over the state that save() wrote: a prompt that begins with these tokens computes only the new ones. */
  async load(source: StateSource, { crc32, isAborted }: HowToSave): Promise<Int32Array> {
    const { room, keep, mark } = this.#parts;
    const adapters = this.#parts.adapters();
    const parts = await this.#stateParts(crc32, adapters);
    // The whole file is checked before cached sequences make room for it.
    const { tokens, facts } = await checkState(parts, source, room.newSequence());
    const promised = await room.enter(room.demand(tokens.length), isAborted);
    const sequence = room.newSequence(adapters);
    try {
      const makeRoom = (length: number) => room.makeRoomToExtend(sequence, length);
      await readState(parts, source, sequence, makeRoom);
    } catch (error) {
      sequence.release();
      room.leave(promised);
      throw error;
    }
    const { computedBy } = parts.facts;
    if (facts.computedBy === computedBy) mark(sequence);
    else {
      sequence.isForeign = true;
      this.#parts.say(
        `saved state "${source.name}" was computed by ${facts.computedBy}, and this is ${computedBy}: a text that goes on from it may be rounded otherwise`,
      );
    }
    keep(sequence);
    room.leave(promised);
    return tokens;
  }

  async #stateParts(crc32: Crc32, { key }: AdapterUse): Promise<SavedStateParts> {
    const { backend, graph, info, isBidirectional } = this.#parts;
    if (!backend.transfer || isBidirectional) {
      const why = isBidirectional
        ? `${info.name} computes each text as a whole`
        : `backend "${backend.name}" keeps it to itself`;
      throw new UsageError(`state cannot be saved or loaded: ${why}`);
    }
    const kvType = kvTypeName(this.#parts.kvType);
    const { name, architecture, contextSize, vocabSize } = info;
    return {
      kinds: this.#parts.room.tierKinds,
      // Asked for each time: after growKv() a GPU's blocks lie in other buffers.
      get transfer() {
        return backend.transfer!;
      },
      identity: rootKey([
        ...(await this.#parts.stateFacts()),
        graphFacts(graph),
        kvType,
        ...(key === "" ? [] : [key]),
      ]),
      facts: { model: name, architecture, kvType, computedBy: computedBy(backend) },
      contextSize,
      vocabSize,
      crc32,
    };
  }
}

function computedBy(backend: Backend): string {
  const places = (backend.placement?.() ?? []).map((place) => `${place.backend} ${place.layers}`);
  return [backend.name, backend.kernels, backend.adapter, ...places].filter(Boolean).join(", ");
}
