// Reads parsed JSON of unknown shape: checks every field, and names a wrong one with its path.

import { FormatError, ModelError } from "../../base/errors.ts";

export type JsonRecord = Readonly<Record<string, unknown>>;

const FILE = "tokenizer.json";

export function failField(field: string, got: unknown, expected: string): never {
  throw new FormatError("tokenizer", { file: FILE, field, got, expected });
}

export function asRecord(value: unknown, field: string): JsonRecord {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as JsonRecord;
  }
  return failField(field, value, "an object");
}

export function asArray(value: unknown, field: string): readonly unknown[] {
  return Array.isArray(value) ? value : failField(field, value, "an array");
}

export function asString(value: unknown, field: string): string {
  return typeof value === "string" ? value : failField(field, value, "a string");
}

/** A token id; the limit keeps a hostile file from requesting a vocabulary of billions. */
export function asTokenId(value: unknown, field: string): number {
  const isId = typeof value === "number" && Number.isInteger(value) && value >= 0;
  return isId && value < 1 << 22 ? value : failField(field, value, "a token id below 4194304");
}

export function booleanOr(value: unknown, fallback: boolean, field: string): boolean {
  if (value === undefined || value === null) return fallback;
  return typeof value === "boolean" ? value : failField(field, value, "true or false");
}

export function stringOr(value: unknown, fallback: string, field: string): string {
  return value === undefined || value === null ? fallback : asString(value, field);
}

export type Maker<T> = (piece: JsonRecord) => T;

/** Makes a pipeline step from a table by its "type"; the error for an unknown type names it and the known ones. */
export function makePiece<T>(
  role: string,
  table: Readonly<Record<string, Maker<T>>>,
  value: unknown,
): T {
  const piece = asRecord(value, role);
  const type = asString(piece.type, `${role}.type`);
  const make = Object.hasOwn(table, type) ? table[type] : undefined;
  if (make) return make(piece);
  throw new ModelError(
    `tokenizer.json: the ${role} ${JSON.stringify(type)} is not supported. Supported: ${Object.keys(table).join(", ")}`,
  );
}
