// Metadata for tokenizer tests: from a plain record, or from a GGUF file.

import { readFileSync } from "node:fs";
import type { Metadata, MetadataPreview } from "../../src/base/metadata.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { nodePlatform } from "../../src/platform/node.ts";

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
    booleans: (key) => get<boolean[]>(key, Array.isArray)?.slice(),
    preview: (): MetadataPreview | undefined => undefined,
  };
}

export async function ggufMetadata(path: string): Promise<Metadata> {
  const source = await nodePlatform.openModelSource({ kind: "path", path });
  return (await openGguf(source, source.main!)).metadata;
}

export function readJson(path: string | URL): unknown {
  return JSON.parse(readFileSync(path, "utf8"));
}
