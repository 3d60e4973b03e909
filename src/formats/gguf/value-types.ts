// GGUF's metadata value types: one line each, used by the reader and the writer. Arrays (id 9) are not in the table:
// they are a count and an element type around these.

import type { Scalar, ScalarType } from "../typed-metadata.ts";

/** The metadata value type that holds a list: u32 element type, u64 count, then the elements. */
export const arrayTypeId = 9;

export interface ValueType {
  readonly name: ScalarType;
  /** The type's number in the file. */
  readonly id: number;
  /** Bytes of a value; for a string, of its length field, which comes before its bytes. */
  readonly bytes: number;
  /** The value at a position whose bytes are in memory; undefined if these bytes are not a valid value. */
  read(view: DataView, position: number): Scalar | undefined;
  /** Writes a value (already checked by `accepts`). */
  write(view: DataView, position: number, value: Scalar): void;
  /** Whether the type can hold this value exactly (floats round). */
  accepts(value: Scalar): boolean;
}

export const valueTypes: readonly ValueType[] = [
  integer("u8", 0, 1, 0, 0xff, "Uint8"),
  integer("i8", 1, 1, -0x80, 0x7f, "Int8"),
  integer("u16", 2, 2, 0, 0xffff, "Uint16"),
  integer("i16", 3, 2, -0x8000, 0x7fff, "Int16"),
  integer("u32", 4, 4, 0, 0xffff_ffff, "Uint32"),
  integer("i32", 5, 4, -0x8000_0000, 0x7fff_ffff, "Int32"),
  float("f32", 6, 4, "Float32"),
  {
    name: "bool",
    id: 7,
    bytes: 1,
    read: (view, position) => [false, true][view.getUint8(position)],
    write: (view, position, value) => view.setUint8(position, value ? 1 : 0),
    accepts: (value) => typeof value === "boolean",
  },
  {
    name: "string",
    id: 8,
    bytes: 8,
    // Strings have no fixed size: HeaderCursor.string() reads them, HeaderBuilder.string() writes them.
    read: () => undefined,
    write: () => undefined,
    accepts: (value) => typeof value === "string",
  },
  integer64("u64", 10, 0n, 2n ** 64n - 1n, "BigUint64"),
  integer64("i64", 11, -(2n ** 63n), 2n ** 63n - 1n, "BigInt64"),
  float("f64", 12, 8, "Float64"),
];

const byId = new Map(valueTypes.map((type) => [type.id, type]));
const byName = new Map<string, ValueType>(valueTypes.map((type) => [type.name, type]));

export function valueTypeById(id: number): ValueType | undefined {
  return byId.get(id);
}

export function valueTypeByName(name: string): ValueType | undefined {
  return byName.get(name);
}

function integer(
  name: ScalarType,
  id: number,
  bytes: number,
  lowest: number,
  highest: number,
  method: "Uint8" | "Int8" | "Uint16" | "Int16" | "Uint32" | "Int32",
): ValueType {
  return {
    name,
    id,
    bytes,
    read: (view, position) => view[`get${method}`](position, true),
    write: (view, position, value) => view[`set${method}`](position, Number(value), true),
    accepts: (value) =>
      typeof value === "number" && Number.isInteger(value) && value >= lowest && value <= highest,
  };
}

function integer64(
  name: ScalarType,
  id: number,
  lowest: bigint,
  highest: bigint,
  method: "BigUint64" | "BigInt64",
): ValueType {
  return {
    name,
    id,
    bytes: 8,
    read: (view, position) => exactNumber(view[`get${method}`](position, true)),
    write: (view, position, value) =>
      view[`set${method}`](position, BigInt(value as number | bigint), true),
    accepts: (value) =>
      (typeof value === "bigint" || Number.isSafeInteger(value)) &&
      BigInt(value) >= lowest &&
      BigInt(value) <= highest,
  };
}

function float(
  name: ScalarType,
  id: number,
  bytes: number,
  method: "Float32" | "Float64",
): ValueType {
  return {
    name,
    id,
    bytes,
    read: (view, position) => view[`get${method}`](position, true),
    write: (view, position, value) => view[`set${method}`](position, Number(value), true),
    accepts: (value) => typeof value === "number",
  };
}

/** A number if it is exact, otherwise (beyond 2^53) the bigint. */
function exactNumber(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
