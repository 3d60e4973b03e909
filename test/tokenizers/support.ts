// Metadata for tokenizer tests: from a plain record, or from a GGUF file read by Hugging Face's parser (not ours, so that
// these tests do not depend on src/formats).

import { readFileSync } from "node:fs";
import { gguf } from "@huggingface/gguf";
import type { Metadata, MetadataPreview } from "../../src/base/metadata.ts";

export type MetadataRecord = Record<string, string | number | boolean | string[] | number[]>;

export function metadataOf(record: MetadataRecord): Metadata {
  const get = <T>(key: string, is: (value: unknown) => boolean): T | undefined => {
    const value: unknown = record[key];
    if (value === undefined) return undefined;
    if (!is(value)) throw new TypeError(`${key} is of another type`);
    return value as T;
  };
  return {
    keys: () => Object.keys(record).values(),
    has: (key) => key in record,
    string: (key) => get<string>(key, (value) => typeof value === "string"),
    number: (key) => get<number>(key, (value) => typeof value === "number"),
    boolean: (key) => get<boolean>(key, (value) => typeof value === "boolean"),
    arrayLength: (key) => get<unknown[]>(key, Array.isArray)?.length,
    strings: (key) => get<string[]>(key, Array.isArray)?.slice(),
    numbers: (key) => get<number[]>(key, Array.isArray)?.slice(),
    preview: (): MetadataPreview | undefined => undefined,
  };
}

export async function ggufMetadata(path: string): Promise<Metadata> {
  const { metadata } = await gguf(path, { allowLocalFile: true });
  const record: MetadataRecord = {};
  for (const [key, value] of Object.entries(metadata)) {
    record[key] = typeof value === "bigint" ? Number(value) : (value as string);
  }
  return metadataOf(record);
}

export function readJson(path: string | URL): unknown {
  return JSON.parse(readFileSync(path, "utf8"));
}
