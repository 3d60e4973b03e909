// Damage to a binary file whose structure is known: the file is a list of named fields, an edit changes one of them, and the
// rest moves along, so that a mutant gets past the checks that random bytes end at.

import { awkward, type Random } from "../formats/mutate.ts";

export interface Segment {
  /**
   * "number": a count, length, type or offset, on which the rest of the file depends. "value": a number of its own; "item": one
   * of a list. "text" and "data" are bytes.
   */
  kind: "number" | "value" | "item" | "text" | "data";
  bytes: Uint8Array;
}

export type SegmentEdit =
  /** A field with other bytes (hex). */
  | { field: number; hex: string }
  /** The fields from..to (excluded) once more, or left out. */
  | { again: [number, number] }
  | { without: [number, number] }
  /** The file ends here, in bytes from its end. */
  | { cut: number }
  /** A bit of the whole file. */
  | { flip: [byte: number, bit: number] };

const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

export function randomSegmentEdit(segments: readonly Segment[], random: Random): SegmentEdit {
  // The fields of the header are what matters; the last one is the tensors' data.
  const field = random.below(segments.length);
  const { kind, bytes } = segments[field]!;
  const span = (): [number, number] => [
    field,
    Math.min(segments.length, field + 1 + random.below(6)),
  ];
  switch (random.below(10)) {
    case 0:
      return { again: span() };
    case 1:
      return { without: span() };
    case 2:
      return { cut: random.below(Math.min(sizeOf(segments), 1 << random.below(20))) };
    case 3:
      return { flip: [random.below(sizeOf(segments)), random.below(8)] };
    default:
      return { field, hex: toHex(otherBytes(kind, bytes, random)) };
  }
}

/** An edit after which the file can still be read as far as its structure goes: what comes after the reader sees it, too. */
export function gentleSegmentEdit(segments: readonly Segment[], random: Random): SegmentEdit {
  const wanted = random.pick(["value", "value", "value", "item", "text", "data"] as const);
  const fields = [...segments.keys()].filter((i) => segments[i]!.kind === wanted);
  if (fields.length === 0) return randomSegmentEdit(segments, random);
  const field = random.pick(fields);
  const { kind, bytes } = segments[field]!;
  if (kind === "data") {
    // Weights of any bits: NaN and infinities among them.
    const offset = random.below(Math.max(bytes.length, 1));
    const before = segments.slice(0, field).reduce((sum, part) => sum + part.bytes.length, 0);
    return { flip: [before + offset, random.below(8)] };
  }
  if (kind === "text") {
    const letters = Uint8Array.from(bytes, (byte) => (random.below(3) === 0 ? 97 : byte));
    return { field, hex: toHex(letters.slice(0, 400)) };
  }
  const small = [0, 1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 127, 255];
  const value = bytes.slice();
  if (random.below(4) > 0) value.fill(0)[0] = random.pick(small);
  else value.set(otherBytes("number", bytes, random));
  return { field, hex: toHex(value) };
}

function otherBytes(kind: Segment["kind"], bytes: Uint8Array, random: Random): Uint8Array {
  if (kind !== "text" && kind !== "data") {
    const wide = new Uint8Array(BigUint64Array.of(random.pick(awkward)).buffer);
    if (random.below(3) > 0) return wide.slice(0, bytes.length);
    const near = bytes.slice();
    if (near.length > 0) near[0]! += random.pick([1, 255, 2, 254, 8]);
    return near;
  }
  const changed = bytes.slice(0, 400);
  for (let i = random.below(4); i >= 0 && changed.length > 0; i--) {
    changed[random.below(changed.length)] = random.pick([
      10,
      27,
      34,
      65,
      95,
      97,
      32,
      random.pick([0, 128, 255]),
    ]);
  }
  return changed;
}

function sizeOf(segments: readonly Segment[]): number {
  return segments.reduce((sum, { bytes }) => sum + bytes.length, 0);
}

export function applySegmentEdits(
  segments: readonly Segment[],
  edits: readonly SegmentEdit[],
): Uint8Array<ArrayBuffer> {
  let parts = segments.map(({ bytes }) => bytes);
  const late: SegmentEdit[] = [];
  for (const edit of edits) {
    if (typeof edit !== "object" || edit === null) continue;
    if ("field" in edit && edit.field < parts.length) {
      parts = parts.with(edit.field, Buffer.from(String(edit.hex ?? ""), "hex"));
    } else if ("again" in edit) {
      const [from = 0, to = 0] = edit.again ?? [];
      parts = parts.toSpliced(to, 0, ...parts.slice(from, to));
    } else if ("without" in edit) {
      const [from = 0, to = 0] = edit.without ?? [];
      parts = parts.toSpliced(from, Math.max(to - from, 0));
    } else late.push(edit);
  }
  let file: Uint8Array<ArrayBuffer> = new Uint8Array(Buffer.concat(parts));
  for (const edit of late) {
    if ("cut" in edit) file = file.slice(0, Math.max(file.length - Number(edit.cut), 0));
    else if ("flip" in edit) {
      const [byte = 0, bit = 0] = edit.flip ?? [];
      if (byte < file.length) file[byte]! ^= 1 << bit;
    }
  }
  return file;
}

/** Reads a well-formed file into segments. */
export class SegmentReader {
  readonly segments: Segment[] = [];
  readonly #file: Uint8Array;
  #at = 0;

  constructor(file: Uint8Array) {
    this.#file = new Uint8Array(file); // a Buffer's slices would share its memory
  }

  get at(): number {
    return this.#at;
  }

  take(kind: Segment["kind"], length: number): Uint8Array {
    const bytes = this.#file.slice(this.#at, this.#at + length);
    this.#at += length;
    this.segments.push({ kind, bytes });
    return bytes;
  }

  /** A little-endian number of 4 or 8 bytes. */
  number(width: 4 | 8): number {
    const bytes = this.take("number", width);
    const view = new DataView(bytes.buffer, bytes.byteOffset, width);
    return width === 4 ? view.getUint32(0, true) : Number(view.getBigUint64(0, true));
  }

  rest(): void {
    this.take("data", this.#file.length - this.#at);
  }
}
