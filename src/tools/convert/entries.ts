// Metadata under construction: a map in the order of the file, and short names for the value types.

import {
  arrayEntry,
  type MetadataEntry,
  type ScalarType,
  TypedMetadata,
} from "../../formats/typed-metadata.ts";

export type Entries = Map<string, MetadataEntry>;

const scalar =
  (type: ScalarType) =>
  (value: string | number | boolean): MetadataEntry => ({ type, value });

export const text: (value: string) => MetadataEntry = scalar("string");
export const u32: (value: number) => MetadataEntry = scalar("u32");
export const bool: (value: boolean) => MetadataEntry = scalar("bool");
export const texts = (values: readonly string[]): MetadataEntry => arrayEntry("string", values);
export const f32s = (values: readonly number[]): MetadataEntry => arrayEntry("f32", values);
export const i32s = (values: readonly number[]): MetadataEntry => arrayEntry("i32", values);

/** The same entries as a reader of the file sees them. */
export function asMetadata(entries: Entries): TypedMetadata {
  return new TypedMetadata("convert", "(being written)", entries);
}
