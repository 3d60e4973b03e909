// Saves the state of a sequence and loads it again: moves its state in the backend, unit by unit, between StateTransfer and a file
// (state-file.ts). The engine finds the sequence, and takes over the loaded one.

import type { StateTransfer } from "../../backends/backend.ts";
import type { Sequence } from "../state/sequence.ts";
import type { Crc32 } from "../tiers/segment.ts";
import type { TierKind } from "../tiers/state-tiers.ts";
import {
  damaged,
  headBytes,
  readHead,
  readUnit,
  type StateFacts,
  type StateHead,
  type StateSink,
  type StateSource,
  type StateUnit,
  stateFileBytes,
  unitHead,
} from "./state-file.ts";

/** The parts of the model that saving and loading use. */
export interface SavedStateParts {
  readonly kinds: readonly TierKind[];
  readonly transfer: StateTransfer;
  readonly identity: string;
  readonly facts: StateFacts;
  readonly contextSize: number;
  readonly vocabSize: number;
  readonly crc32: Crc32;
}

/** Writes the whole sequence, which must not be computed meanwhile. `open`: makes the sink for the given number of bytes. */
export async function writeState(
  { kinds, transfer, identity, facts, crc32 }: SavedStateParts,
  sequence: Sequence,
  open: (bytes: number) => Promise<StateSink>,
): Promise<number> {
  const { length } = sequence;
  const units = unitsOf(kinds, sequence, length);
  const head: StateHead = { identity, facts, tokens: sequence.tokens(0, length) };
  const bytes = stateFileBytes(head, units);
  const sink = await open(bytes);
  await sink.write(headBytes(head, units, crc32));
  const data = buffers(kinds);
  for (const unit of units) {
    const number = sequence.states[unit.kind]!.unitAt(unit.length);
    if (number === undefined) throw new Error("state to be saved is not held");
    const target = data[unit.kind]!;
    const { group } = kinds[unit.kind]!;
    if (group !== undefined) await transfer.readBlock(group, number, target);
    else await transfer.readSlot(number, new Float32Array(target.buffer));
    await sink.write(unitHead(unit, target, crc32));
    await sink.write(target);
  }
  return bytes;
}

/** Reads all of a file and checks it; nothing is changed. `empty`: any sequence of the model. */
export async function checkState(
  parts: SavedStateParts,
  source: StateSource,
  empty: Sequence,
): Promise<StateHead> {
  const { kinds, crc32 } = parts;
  const head = await readHead(source, parts, crc32);
  const units = unitsOf(kinds, empty, head.tokens.length);
  if (units.length !== head.unitCount) throw damaged(source, "the number of its units");
  const data = buffers(kinds);
  let at = head.end;
  for (const unit of units) at = await readUnit(source, at, unit, data[unit.kind]!, crc32);
  if (at !== source.size) throw damaged(source, "what follows its last unit");
  return head;
}

/** Fills an empty sequence from a checked file. `makeRoom` is called before anything is taken from the pools. */
export async function readState(
  parts: SavedStateParts,
  source: StateSource,
  sequence: Sequence,
  makeRoom: (length: number) => void,
): Promise<StateHead> {
  const { kinds, transfer, crc32 } = parts;
  const head = await readHead(source, parts, crc32); // once more: a file may change while it is read
  const { length } = head.tokens;
  makeRoom(length);
  const taken = sequence.extend(head.tokens, length);
  const data = buffers(kinds);
  let at = head.end;
  for (const unit of unitsOf(kinds, sequence, length)) {
    const bytes = data[unit.kind]!;
    at = await readUnit(source, at, unit, bytes, crc32);
    const number = taken[unit.kind]!.get(unit.length)!;
    const { group } = kinds[unit.kind]!;
    if (group !== undefined) transfer.writeBlock(group, number, bytes);
    else transfer.writeSlot(number, new Float32Array(bytes.buffer));
  }
  return head;
}

/** All units that continuing at `length` takes. */
function unitsOf(kinds: readonly TierKind[], { states }: Sequence, length: number): StateUnit[] {
  return kinds.flatMap(({ unitBytes: bytes }, kind) =>
    states[kind]!.unitsFor(length).map((at) => ({ kind, length: at, bytes })),
  );
}

/** One for each kind. */
function buffers(kinds: readonly TierKind[]): Uint8Array<ArrayBuffer>[] {
  return kinds.map(({ unitBytes }) => new Uint8Array(unitBytes));
}
