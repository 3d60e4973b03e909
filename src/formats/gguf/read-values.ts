// Metadata values of a GGUF header. Scalars are read immediately. An array is only skipped, with its extent and every
// length in it checked; it is decoded from the header's bytes when it is first asked for.
//
// Arrays of arrays, which the format allows and no model uses, are refused.

import type { ArrayEntry, MetadataEntry, Scalar } from "../typed-metadata.ts";
import { type HeaderCursor, u64At } from "./header-cursor.ts";
import { arrayTypeId, type ValueType, valueTypeById, valueTypes } from "./value-types.ts";

/** The longest arrays are merges: some hundred thousand in real models. Decoding takes memory for each element. */
const mostElements = 1 << 23;

export async function readValue(cursor: HeaderCursor, key: string): Promise<MetadataEntry> {
  const field = `metadata ${JSON.stringify(key)}`;
  const id = await cursor.u32(`${field} type`);
  if (id === arrayTypeId) return await readArray(cursor, field);
  const type = valueTypeById(id);
  if (!type)
    throw cursor.error(`${field} type`, id, `one of ${listTypes()}, array (${arrayTypeId})`);
  if (type.name === "string") return { type: type.name, value: await cursor.string(field) };
  await cursor.need(type.bytes, field);
  const value = type.read(cursor.view, cursor.position);
  if (value === undefined) {
    throw cursor.error(field, cursor.view.getUint8(cursor.position), "a boolean, 0 or 1");
  }
  cursor.position += type.bytes;
  return { type: type.name, value };
}

async function readArray(cursor: HeaderCursor, field: string): Promise<ArrayEntry> {
  const id = await cursor.u32(`${field} element type`);
  const type = valueTypeById(id);
  if (!type) {
    const got = id === arrayTypeId ? "array (an array of arrays)" : id;
    throw cursor.error(`${field} element type`, got, `one of ${listTypes()}`);
  }
  const length = await cursor.count(`${field} count`, type.bytes, mostElements);
  const start = cursor.position;
  if (type.name === "string") await skipStrings(cursor, length, field);
  else {
    await cursor.need(length * type.bytes, field);
    cursor.position += length * type.bytes;
  }
  const decode = type.name === "string" ? decodeStrings : decodeFixed;
  return {
    type: "array",
    elementType: type.name,
    length,
    decode: (limit) => decode(cursor, type, start, Math.min(limit, length), field),
  };
}

/** Skips strings without decoding them: only their lengths are read. */
async function skipStrings(cursor: HeaderCursor, count: number, field: string): Promise<void> {
  for (let i = 0; i < count; i++) {
    if (!cursor.has(8)) await cursor.need(8, `${field}[${i}] length`);
    const length = u64At(cursor.view, cursor.position);
    cursor.position += 8;
    if (!cursor.has(length)) {
      if (length > cursor.remaining) {
        throw cursor.error(`${field}[${i}] length`, length, `at most ${cursor.remaining}`);
      }
      await cursor.need(length, `${field}[${i}]`);
    }
    cursor.position += length;
  }
}

function decodeStrings(
  cursor: HeaderCursor,
  _type: ValueType,
  start: number,
  count: number,
  field: string,
): string[] {
  const texts: string[] = [];
  let position = start;
  for (let i = 0; i < count; i++) {
    const length = u64At(cursor.view, position);
    texts.push(cursor.text(position + 8, length, `${field}[${i}]`));
    position += 8 + length;
  }
  return texts;
}

function decodeFixed(
  cursor: HeaderCursor,
  type: ValueType,
  start: number,
  count: number,
  field: string,
): Scalar[] {
  const values: Scalar[] = [];
  for (let i = 0; i < count; i++) {
    const position = start + i * type.bytes;
    const value = type.read(cursor.view, position);
    if (value === undefined) {
      throw cursor.error(`${field}[${i}]`, cursor.view.getUint8(position), "a boolean, 0 or 1");
    }
    values.push(value);
  }
  return values;
}

function listTypes(): string {
  return valueTypes.map((type) => `${type.name} (${type.id})`).join(", ");
}
