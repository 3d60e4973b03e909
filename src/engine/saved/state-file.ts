// The format of saved state: one sequence: its tokens and the state that the model computed of them. Everything is little-endian.
//
//   head    0 magic "LANTSTAT"    8 version         12 bytes of facts    16 tokens       20 units
//           24 bytes of the file (8)                32 identity (16)     48 CRC-32 of bytes 0 to 47, facts and tokens
//           52 zeros to 64, then facts (JSON, for messages), then the tokens (4 bytes each)
//   units   0 state kind          4 length          8 bytes              12 CRC-32 of the data, then the data
//
// The identity names the weights, the computation with them and the type of the KV cache: state of another identity is refused. A
// file is checked from end to end before anything of it is used.

import { type LanternError, SourceError } from "../../base/errors.ts";
import type { Crc32 } from "../tiers/segment.ts";

const MAGIC = "LANTSTAT";
const VERSION = 1;
const HEAD_BYTES = 64;
const IDENTITY_BYTES = 16;
const UNIT_HEAD_BYTES = 16;
const MOST_FACT_BYTES = 65_536;
/** More than any model has: a head that claims more is refused before allocation. */
const MOST_TOKENS: number = 1 << 24;

/** The mark of a file of saved state: only such a file is replaced by a new one. */
export const savedStateFiles: {
  readonly what: string;
  readonly bytes: number;
  isOwn(first: Uint8Array): boolean;
} = {
  what: "saved state of Lantern",
  bytes: MAGIC.length,
  isOwn: (first) => text(first) === MAGIC,
};

/** The sink that saved state is written to. */
export interface StateSink {
  write(bytes: Uint8Array): Promise<void>;
}

/** The source that it is read from: a ByteSource. */
export interface StateSource {
  /** Its name, for messages. */
  readonly name: string;
  readonly size: number;
  /** A range beyond `size`, or a short read, is an error. */
  readInto(offset: number, target: Uint8Array): Promise<void>;
}

/** The facts that a file states about itself, for messages only. */
export interface StateFacts {
  readonly model: string;
  readonly architecture: string;
  readonly kvType: string;
  /** The backend that computed it: values of another backend, or of other kernels, are rounded differently. */
  readonly computedBy: string;
}

export interface StateHead {
  /** 32 hexadecimal digits. */
  readonly identity: string;
  readonly facts: StateFacts;
  readonly tokens: Int32Array;
}

/** A block of one group of KV states, or a slot of recurrent state, that holds the state up to `length`. */
export interface StateUnit {
  readonly kind: number;
  readonly length: number;
  readonly bytes: number;
}

/** The size of a file with this content. */
export function stateFileBytes({ facts, tokens }: StateHead, units: readonly StateUnit[]): number {
  const before = HEAD_BYTES + factBytes(facts).length + tokens.length * 4;
  return units.reduce((sum, { bytes }) => sum + UNIT_HEAD_BYTES + bytes, before);
}

export function headBytes(
  head: StateHead,
  units: readonly StateUnit[],
  crc32: Crc32,
): Uint8Array<ArrayBuffer> {
  const facts = factBytes(head.facts);
  const bytes = new Uint8Array(HEAD_BYTES + facts.length + head.tokens.length * 4);
  const view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode(MAGIC));
  view.setUint32(8, VERSION, true);
  view.setUint32(12, facts.length, true);
  view.setUint32(16, head.tokens.length, true);
  view.setUint32(20, units.length, true);
  view.setBigUint64(24, BigInt(stateFileBytes(head, units)), true);
  for (let i = 0; i < IDENTITY_BYTES; i++) {
    bytes[32 + i] = Number.parseInt(head.identity.slice(i * 2, i * 2 + 2), 16);
  }
  bytes.set(facts, HEAD_BYTES);
  const at = HEAD_BYTES + facts.length;
  head.tokens.forEach((token, i) => {
    view.setInt32(at + i * 4, token, true);
  });
  view.setUint32(48, headCrc(bytes, crc32), true);
  return bytes;
}

export function unitHead(unit: StateUnit, data: Uint8Array, crc32: Crc32): Uint8Array {
  const bytes = new Uint8Array(UNIT_HEAD_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, unit.kind, true);
  view.setUint32(4, unit.length, true);
  view.setUint32(8, unit.bytes, true);
  view.setUint32(12, crc32(data), true);
  return bytes;
}

/** The largest state that this model can take. */
export interface StateLimits {
  readonly identity: string;
  readonly facts: StateFacts;
  readonly contextSize: number;
  readonly vocabSize: number;
}

/** The checked head, and where the units begin. */
export async function readHead(
  source: StateSource,
  limits: StateLimits,
  crc32: Crc32,
): Promise<StateHead & { unitCount: number; end: number }> {
  const start = new Uint8Array(HEAD_BYTES);
  if (source.size < HEAD_BYTES) throw refused(source, "it is no saved state: it is too short");
  await source.readInto(0, start);
  const view = new DataView(start.buffer);
  if (text(start.subarray(0, MAGIC.length)) !== MAGIC) {
    throw refused(source, "it is no saved state of Lantern");
  }
  const version = view.getUint32(8, true);
  if (version !== VERSION) {
    const what = `it has version ${version} of the format, and this Lantern reads version ${VERSION}`;
    throw refused(source, `${what}. Save the state again`);
  }
  const size = Number(view.getBigUint64(24, true));
  if (size !== source.size) {
    const what = size > source.size ? "truncated" : "damaged";
    throw refused(source, `it is ${what}: it has ${source.size} bytes, and its head says ${size}`);
  }
  const factCount = view.getUint32(12, true);
  const tokenCount = view.getUint32(16, true);
  const end = HEAD_BYTES + factCount + tokenCount * 4;
  if (factCount > MOST_FACT_BYTES || tokenCount > MOST_TOKENS || end > source.size) {
    throw damaged(source, "its head");
  }
  const all = new Uint8Array(end);
  await source.readInto(0, all);
  if (headCrc(all, crc32) !== view.getUint32(48, true)) throw damaged(source, "its head");
  const head = {
    identity: [...start.subarray(32, 32 + IDENTITY_BYTES)]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join(""),
    facts: readFacts(source, all.subarray(HEAD_BYTES, HEAD_BYTES + factCount)),
    tokens: readTokens(all, HEAD_BYTES + factCount, tokenCount),
  };
  checkFits(source, head, limits);
  return { ...head, unitCount: view.getUint32(20, true), end };
}

function checkFits(source: StateSource, head: StateHead, limits: StateLimits): void {
  const { facts, tokens } = head;
  if (head.identity !== limits.identity) {
    throw refused(
      source,
      `it belongs to another model: it was saved with ${described(facts)}, and this is ${described(limits.facts)}`,
    );
  }
  if (tokens.length === 0 || tokens.some((id) => id < 0 || id >= limits.vocabSize)) {
    throw damaged(source, "its tokens");
  }
  if (tokens.length > limits.contextSize) {
    throw refused(
      source,
      `it has ${tokens.length} tokens, and the context holds ${limits.contextSize}. Use a larger contextSize`,
    );
  }
}

function described({ model, architecture, kvType }: StateFacts): string {
  return `${JSON.stringify(model)} (${architecture}, KV cache ${kvType})`;
}

/** Reads the data of the unit at `offset` into `target`, and checks it; returns where the next one is. */
export async function readUnit(
  source: StateSource,
  offset: number,
  expected: StateUnit,
  target: Uint8Array,
  crc32: Crc32,
): Promise<number> {
  const what = `the state of its first ${expected.length} tokens`;
  const head = new Uint8Array(UNIT_HEAD_BYTES);
  if (offset + UNIT_HEAD_BYTES + expected.bytes > source.size) throw damaged(source, what);
  await source.readInto(offset, head);
  const view = new DataView(head.buffer);
  const isExpected =
    view.getUint32(0, true) === expected.kind &&
    view.getUint32(4, true) === expected.length &&
    view.getUint32(8, true) === expected.bytes;
  if (!isExpected) throw damaged(source, what);
  await source.readInto(offset + UNIT_HEAD_BYTES, target);
  if (crc32(target) !== view.getUint32(12, true)) throw damaged(source, what);
  return offset + UNIT_HEAD_BYTES + expected.bytes;
}

export function damaged(source: StateSource, what: string): LanternError {
  return refused(source, `it is damaged: ${what} cannot be right`);
}

function refused({ name }: StateSource, why: string): LanternError {
  return new SourceError(`saved state "${name}" is not used: ${why}`);
}

function headCrc(head: Uint8Array, crc32: Crc32): number {
  const covered = new Uint8Array(48 + head.length - HEAD_BYTES);
  covered.set(head.subarray(0, 48));
  covered.set(head.subarray(HEAD_BYTES), 48);
  return crc32(covered);
}

function factBytes(facts: StateFacts): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(facts));
}

function readFacts(source: StateSource, bytes: Uint8Array): StateFacts {
  try {
    const read = JSON.parse(text(bytes)) as Partial<Record<keyof StateFacts, unknown>>;
    const of = (name: keyof StateFacts) => String(read[name] ?? "").slice(0, 200);
    return {
      model: of("model"),
      architecture: of("architecture"),
      kvType: of("kvType"),
      computedBy: of("computedBy"),
    };
  } catch {
    throw damaged(source, "its head");
  }
}

function readTokens(bytes: Uint8Array, at: number, count: number): Int32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  return Int32Array.from({ length: count }, (_, i) => view.getInt32(at + i * 4, true));
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
