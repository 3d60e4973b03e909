// The implementation of base/metadata.ts for all formats: typed entries behind typed getters.
//
// The GGUF reader fills it with values from its header (arrays are decoded when first asked for). The Hugging Face and
// llama2.c readers fill it with translated values. The type names are GGUF's.

import { FormatError } from "../base/errors.ts";
import type { Metadata, MetadataPreview } from "../base/metadata.ts";

export type ScalarType =
  | "u8"
  | "i8"
  | "u16"
  | "i16"
  | "u32"
  | "i32"
  | "f32"
  | "bool"
  | "string"
  | "u64"
  | "i64"
  | "f64";

/** 64-bit integers are numbers up to 2^53, where numbers are exact, and bigints beyond. */
export type Scalar = string | number | bigint | boolean;

export interface ScalarEntry {
  readonly type: ScalarType;
  readonly value: Scalar;
}

export interface ArrayEntry {
  readonly type: "array";
  readonly elementType: ScalarType;
  readonly length: number;
  /** The first `limit` elements; invalid bytes in them are a FormatError. */
  decode(limit: number): Scalar[];
}

export type MetadataEntry = ScalarEntry | ArrayEntry;

export class TypedMetadata implements Metadata {
  readonly #format: string;
  readonly #file: string;
  readonly #entries: ReadonlyMap<string, MetadataEntry>;

  /** `format` and `file` are for error messages. */
  constructor(format: string, file: string, entries: ReadonlyMap<string, MetadataEntry>) {
    this.#format = format;
    this.#file = file;
    this.#entries = entries;
  }

  keys(): IterableIterator<string> {
    return this.#entries.keys();
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  string(key: string): string | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.type === "string") return entry.value as string;
    throw this.#wrongType(key, entry, "a string");
  }

  number(key: string): number | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.type !== "array" && typeof entry.value === "number") return entry.value;
    if (entry.type !== "array" && typeof entry.value === "bigint") {
      throw this.#error(key, entry.value, "an integer of at most 2^53 - 1");
    }
    throw this.#wrongType(key, entry, "a number");
  }

  boolean(key: string): boolean | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.type === "bool") return entry.value as boolean;
    throw this.#wrongType(key, entry, "a bool");
  }

  arrayLength(key: string): number | undefined {
    return this.#array(key, "an array")?.length;
  }

  strings(key: string): string[] | undefined {
    const entry = this.#array(key, "an array of strings");
    if (entry === undefined) return undefined;
    if (entry.elementType === "string") return entry.decode(entry.length) as string[];
    throw this.#wrongType(key, entry, "an array of strings");
  }

  numbers(key: string): number[] | undefined {
    const entry = this.#array(key, "an array of numbers");
    if (entry === undefined) return undefined;
    if (entry.elementType === "string" || entry.elementType === "bool") {
      throw this.#wrongType(key, entry, "an array of numbers");
    }
    const values = entry.decode(entry.length);
    const unsafe = values.findIndex((value) => typeof value === "bigint");
    if (unsafe < 0) return values as number[];
    throw this.#error(
      `${key}[${unsafe}]`,
      values[unsafe],
      "integers of at most 2^53 - 1 in the array",
    );
  }

  booleans(key: string): boolean[] | undefined {
    const entry = this.#array(key, "an array of bools");
    if (entry === undefined) return undefined;
    if (entry.elementType === "bool") return entry.decode(entry.length) as boolean[];
    throw this.#wrongType(key, entry, "an array of bools");
  }

  preview(key: string, limit = 8): MetadataPreview | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.type !== "array") return { type: entry.type, value: entry.value };
    const value = entry.decode(Math.min(limit, entry.length));
    return { type: `array<${entry.elementType}>`, value, length: entry.length };
  }

  #array(key: string, expected: string): ArrayEntry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.type === "array") return entry;
    throw this.#wrongType(key, entry, expected);
  }

  #wrongType(key: string, entry: MetadataEntry, expected: string): FormatError {
    const got = entry.type === "array" ? `array of ${entry.elementType}` : entry.type;
    return this.#error(key, got, expected);
  }

  #error(key: string, got: unknown, expected: string): FormatError {
    const field = `metadata ${JSON.stringify(key)}`;
    return new FormatError(this.#format, { file: this.#file, field, got, expected });
  }
}

/** An array entry with elements that are already in memory. */
export function arrayEntry(elementType: ScalarType, values: readonly Scalar[]): ArrayEntry {
  return {
    type: "array",
    elementType,
    length: values.length,
    decode: (limit) => values.slice(0, limit),
  };
}
