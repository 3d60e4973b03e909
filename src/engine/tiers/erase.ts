// Erases the state of conversations from a disk: every unit without another owner is overwritten with zeros in place, in the files of
// all processes. Units that others own as well stay, under another owner's name.
//
// It reads only files, so no model need be open. A process that is killed meanwhile has erased a part: the next call finds the rest,
// because a unit's bytes are erased before its header, which names their owner.

import type { BlockFolder, BlockReader, BlockWriter } from "../../platform/block-files.ts";
import { unitId } from "./keys.ts";
import { NOBODY, type Owner } from "./owners.ts";
import {
  type Crc32,
  headerOf,
  isOldSegment,
  RECORD_HEADER_BYTES,
  type RecordFacts,
  readRecordHeader,
  SEGMENT_EXTENSION,
  SEGMENT_HEADER_BYTES,
  segmentRefusal,
} from "./segment.ts";

/** The segment that this process appends to. */
export interface OpenSegment {
  readonly name: string;
  readonly writer: BlockWriter;
  readonly size: number;
}

interface FoundRecord extends RecordFacts {
  readonly at: number;
  /** Whether all of its bytes are there. */
  readonly isWhole: boolean;
}

interface FoundSegment {
  readonly name: string;
  readonly records: readonly FoundRecord[];
  /** The offset from which records are unreadable; undefined: all are readable. */
  readonly damagedAt: number | undefined;
}

const zeros: Uint8Array = new Uint8Array(2 ** 18);

/** Erases the units in a folder that only these owners have; returns the names of units that are gone. */
export async function eraseOwners(
  folder: BlockFolder,
  root: string,
  owners: readonly Owner[],
  crc32: Crc32,
  own?: OpenSegment,
): Promise<Set<string>> {
  const gone = new Set(owners);
  const segments = await findSegments(folder, root, crc32, own);
  const others = new Map<string, Owner>();
  for (const { records } of segments) {
    for (const { role, owner, key, kind } of records) {
      if (role !== "erased" && !gone.has(owner)) others.set(unitId(key, kind), owner);
    }
  }
  const erased = new Set<string>();
  for (const segment of segments) {
    const { name, records, damagedAt } = segment;
    const theirs = records.filter(({ role, owner }) => role !== "erased" && gone.has(owner));
    if (theirs.length === 0 && damagedAt === undefined) continue;
    for (const one of theirs) {
      const id = unitId(one.key, one.kind);
      if (one.role === "unit" && !others.has(id)) erased.add(id);
    }
    const isOwn = name === own?.name;
    const stays = (one: FoundRecord): boolean =>
      one.role === "unit" && others.has(unitId(one.key, one.kind));
    const rest = records.filter((one) => one.role !== "erased");
    if (!isOwn && rest.every((one) => gone.has(one.owner) && !stays(one))) {
      // Overwritten as well: a process may have it open, and freed bytes stay on the disk until they are used again.
      await overwrite(folder, segment, theirs, () => undefined, crc32);
      await folder.remove(name);
      continue;
    }
    const heir = (one: FoundRecord): Owner | undefined =>
      stays(one) ? others.get(unitId(one.key, one.kind)) : undefined;
    await overwrite(folder, segment, theirs, heir, crc32, isOwn ? own : undefined);
  }
  return erased;
}

/** All records of all segments. Files of earlier versions, which do not name owners, are removed. */
async function findSegments(
  folder: BlockFolder,
  root: string,
  crc32: Crc32,
  own: OpenSegment | undefined,
): Promise<FoundSegment[]> {
  const found: FoundSegment[] = [];
  for (const { name, bytes } of await folder.list()) {
    if (!name.endsWith(SEGMENT_EXTENSION)) continue;
    const isOwn = name === own?.name;
    const reader = isOwn ? own.writer : await folder.open(name);
    if (!reader) continue;
    try {
      const start = new Uint8Array(SEGMENT_HEADER_BYTES);
      const read = start.subarray(0, await reader.read(0, start));
      if (isOldSegment(read)) await folder.remove(name);
      else if (!segmentRefusal(read, root)) {
        found.push(await findRecords(name, reader, isOwn ? own.size : bytes, crc32));
      }
    } finally {
      if (!isOwn) await reader.close().catch(() => undefined);
    }
  }
  return found;
}

async function findRecords(
  name: string,
  reader: BlockReader,
  bytes: number,
  crc32: Crc32,
): Promise<FoundSegment> {
  const records: FoundRecord[] = [];
  const header = new Uint8Array(RECORD_HEADER_BYTES);
  for (let at = SEGMENT_HEADER_BYTES; at + RECORD_HEADER_BYTES <= bytes; ) {
    if ((await reader.read(at, header)) < RECORD_HEADER_BYTES) break;
    const record = readRecordHeader(header, crc32);
    if (!record) return { name, records, damagedAt: at };
    const next = at + RECORD_HEADER_BYTES + record.bytes;
    records.push({ ...record, at, isWhole: next <= bytes });
    at = next;
  }
  return { name, records, damagedAt: undefined };
}

/** `heir`: the new owner; undefined: it is erased. Bytes after damage have no owner and are cut off. */
async function overwrite(
  folder: BlockFolder,
  { name, damagedAt }: FoundSegment,
  records: readonly FoundRecord[],
  heir: (record: FoundRecord) => Owner | undefined,
  crc32: Crc32,
  own?: OpenSegment,
): Promise<void> {
  const writer = own?.writer ?? (await folder.change(name));
  if (!writer) return; // it is gone
  try {
    if (damagedAt !== undefined) await writer.truncate(damagedAt);
    for (const record of records) {
      const { at, bytes, isWhole } = record;
      const owner = heir(record);
      if (owner !== undefined) {
        await writer.write(at, headerOf({ ...record, owner }, crc32));
      } else if (isWhole) {
        const end = at + RECORD_HEADER_BYTES + bytes;
        for (let from = at + RECORD_HEADER_BYTES; from < end; from += zeros.length) {
          await writer.write(from, zeros.subarray(0, end - from));
        }
        await writer.write(at, headerOf(emptied(record), crc32));
      } else await writer.truncate(at); // its writer died
    }
    await writer.sync?.();
  } finally {
    if (!own) await writer.close().catch(() => undefined);
  }
}

/** The remains of an erased record: its size. */
function emptied({ kind, bytes }: RecordFacts): RecordFacts {
  const none = "0".repeat(32);
  const text = { key: none, parent: none, tokens: 1, length: 0 };
  return { ...text, kind, bytes, role: "erased", owner: NOBODY, crc: 0 };
}
