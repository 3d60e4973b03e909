// The format of a segment: a file to which one process appends records. A record is a unit of stored state with the key that it is found by,
// and its owner (owners.ts). It has no text: keys are hashes. Everything is little-endian.
//
//   segment  magic "LANTERNS" (8), version (4), root key (16), zeros to 64 bytes
//   record   a header of 256 bytes, then the unit's bytes
//   header   0 magic "LKVR"      4 CRC-32 of bytes 8 to 255    8 CRC-32 of the unit    12 state kind
//            16 bytes of unit    20 tokens in this piece       24 length of the text   28 role
//            32 key (16)         48 key before it (16)         64 owner (16)           80 zeros
//
//   role     0 a unit    1 no bytes follow: the unit of this key has this owner as well    2 it was erased: its bytes are zeros
//
// A process that dies leaves half a record at the end, or none: it is found by its checksum and left out. Records are erased in place
// (erase.ts), and nothing else in a segment ever changes. Files of version 1 had the tokens in their headers and no owners: they are removed.

import { crc32 as ownCrc32 } from "../../base/crc32.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { KEY_BYTES, keyBytes, keyFrom, type StateKey } from "./keys.ts";
import { type Owner, ownerBytes, ownerFrom } from "./owners.ts";

/** The extension of segments' file names. */
export const SEGMENT_EXTENSION = ".state";
export const SEGMENT_HEADER_BYTES = 64;
export const RECORD_HEADER_BYTES = 256;
const SEGMENT_VERSION = 2;
const SEGMENT_MAGIC = "LANTERNS";
const RECORD_MAGIC = 0x52564b4c; // "LKVR"

/** A unit of stored state, and where its text ends. */
export interface UnitFacts {
  /** Which of the model's kinds of state: state-kinds.ts. */
  readonly kind: number;
  readonly key: StateKey;
  /** The key at the block boundary before it. */
  readonly parent: StateKey;
  /** Tokens since that boundary: a block, or fewer at the end of a text. */
  readonly tokens: number;
  /** Tokens of the whole text. */
  readonly length: number;
}

const recordRoles = ["unit", "owner", "erased"] as const;
type RecordRole = (typeof recordRoles)[number];

export interface RecordFacts extends UnitFacts {
  readonly role: RecordRole;
  readonly owner: Owner;
  readonly bytes: number;
  readonly crc: number;
}

/** `before`: the checksum of the bytes before these. */
export type Crc32 = (bytes: Uint8Array, before?: number) => number;

export const defaultCrc32: Crc32 = ownCrc32;

export function segmentHeader(root: StateKey): Uint8Array {
  const bytes = new Uint8Array(SEGMENT_HEADER_BYTES);
  bytes.set(new TextEncoder().encode(SEGMENT_MAGIC));
  new DataView(bytes.buffer).setUint32(8, SEGMENT_VERSION, true);
  bytes.set(keyBytes(root), 12);
  return bytes;
}

/** The version of a segment by its first bytes; undefined: it is none. */
function segmentVersion(bytes: Uint8Array): number | undefined {
  if (bytes.length < SEGMENT_HEADER_BYTES) return undefined;
  const magic = new TextDecoder().decode(bytes.subarray(0, SEGMENT_MAGIC.length));
  if (magic !== SEGMENT_MAGIC) return undefined;
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(8, true);
}

/** Whether an earlier version wrote it, which recorded no owners. */
export function isOldSegment(bytes: Uint8Array): boolean {
  return (segmentVersion(bytes) ?? SEGMENT_VERSION) < SEGMENT_VERSION;
}

/** Why a file is not a segment that can be read here; undefined: it is one. */
export function segmentRefusal(bytes: Uint8Array, root: StateKey): string | undefined {
  if (bytes.length < SEGMENT_HEADER_BYTES) return "it is too short";
  const version = segmentVersion(bytes);
  if (version === undefined) return "it is no file of stored state";
  if (version !== SEGMENT_VERSION) {
    return `it has version ${version} of the format, and this Lantern reads version ${SEGMENT_VERSION}`;
  }
  return keyFrom(bytes.subarray(12)) === root ? undefined : "it belongs to another model";
}

/** The header of the record of a unit and its bytes. */
export function recordHeader(
  unit: UnitFacts,
  data: Uint8Array,
  owner: Owner,
  crc32: Crc32,
): Uint8Array {
  const facts = { ...unit, owner, bytes: data.length, crc: crc32(data) };
  return headerOf({ ...facts, role: "unit" }, crc32);
}

/** A record without bytes: the unit has this owner as well. */
export function ownerRecord(unit: UnitFacts, owner: Owner, crc32: Crc32): Uint8Array {
  return headerOf({ ...unit, role: "owner", owner, bytes: 0, crc: 0 }, crc32);
}

export function headerOf(record: RecordFacts, crc32: Crc32): Uint8Array {
  const bytes = new Uint8Array(RECORD_HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, RECORD_MAGIC, true);
  view.setUint32(8, record.crc, true);
  view.setUint32(12, record.kind, true);
  view.setUint32(16, record.bytes, true);
  view.setUint32(20, record.tokens, true);
  view.setUint32(24, record.length, true);
  view.setUint32(28, recordRoles.indexOf(record.role), true);
  bytes.set(keyBytes(record.key), 32);
  bytes.set(keyBytes(record.parent), 32 + KEY_BYTES);
  bytes.set(ownerBytes(record.owner), 32 + 2 * KEY_BYTES);
  view.setUint32(4, crc32(bytes.subarray(8)), true);
  return bytes;
}

/** undefined: it is not the header of a record, or it is damaged. */
export function readRecordHeader(bytes: Uint8Array, crc32: Crc32): RecordFacts | undefined {
  if (bytes.length < RECORD_HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, RECORD_HEADER_BYTES);
  if (view.getUint32(0, true) !== RECORD_MAGIC) return undefined;
  if (view.getUint32(4, true) !== crc32(bytes.subarray(8, RECORD_HEADER_BYTES))) return undefined;
  const tokens = view.getUint32(20, true);
  const role = recordRoles[view.getUint32(28, true)];
  if (tokens === 0 || tokens > KV_BLOCK_TOKENS || !role) return undefined;
  return {
    role,
    tokens,
    crc: view.getUint32(8, true),
    kind: view.getUint32(12, true),
    bytes: view.getUint32(16, true),
    length: view.getUint32(24, true),
    key: keyFrom(bytes.subarray(32)),
    parent: keyFrom(bytes.subarray(32 + KEY_BYTES)),
    owner: ownerFrom(bytes.subarray(32 + 2 * KEY_BYTES)),
  };
}
