// A model file with other values of some metadata, as llama.cpp's --override-kv and --rope-... flags ask for: "KEY=TYPE:VALUE". A key that
// begins with a dot is one of the file's architecture: ".rope.freq_base" is "llama.rope.freq_base" of a Llama. Tensors stay as they are.

import { UsageError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";
import { show } from "../base/show.ts";
import { f32 } from "./huggingface-keys.ts";
import type { ModelFile } from "./model-file.ts";
import { type MetadataEntry, TypedMetadata } from "./typed-metadata.ts";

export function withOverrides(
  file: ModelFile,
  overrides: readonly string[] | undefined,
): ModelFile {
  if (!overrides || overrides.length === 0) return file;
  const architecture = file.metadata.string("general.architecture") ?? "";
  const entries = new Map(
    overrides.map((one) => {
      const [key, entry] = entryOf(one);
      return [key.startsWith(".") ? architecture + key : key, entry] as const;
    }),
  );
  stretchContext(entries, architecture, file.metadata);
  const metadata = layered(new TypedMetadata(file.format, file.name, entries), file.metadata);
  return new Proxy(file, {
    get: (target, name) => {
      if (name === "metadata") return metadata;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

function entryOf(text: string): [key: string, entry: MetadataEntry] {
  const [, key, type, value] = /^([\w.-]+)=(int|float|bool|str):(.*)$/s.exec(text) ?? [];
  const wrong = (expected: string) =>
    new UsageError(`overrideKv: got ${show(text)}, expected ${expected}`);
  if (key === undefined || value === undefined) {
    throw wrong("KEY=TYPE:VALUE with the type int, float, bool or str");
  }
  if (type === "str") return [key, { type: "string", value }];
  if (type === "bool") {
    if (value !== "true" && value !== "false") throw wrong("true or false after bool:");
    return [key, { type: "bool", value: value === "true" }];
  }
  const isInteger = type === "int";
  const number = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(value) ? Number(value) : Number.NaN;
  const fits = isInteger ? Number.isSafeInteger(number) : Number.isFinite(number);
  if (!fits) throw wrong(`${isInteger ? "a whole number after int:" : "a number after float:"}`);
  return [key, isInteger ? { type: "i64", value: number } : f32(number)];
}

/** A rotation that is stretched is meant for a longer context: unless that is overridden as well, it grows by the factor. */
function stretchContext(
  entries: Map<string, MetadataEntry>,
  architecture: string,
  metadata: Metadata,
): void {
  const [factorKey, contextKey, originalKey] = [
    "rope.scaling.factor",
    "context_length",
    "rope.scaling.original_context_length",
  ].map((name) => `${architecture}.${name}`) as [string, string, string];
  const factor = entries.get(factorKey);
  const trained = metadata.number(originalKey) ?? metadata.number(contextKey);
  if (!factor || factor.type === "array" || trained === undefined || entries.has(contextKey))
    return;
  const original = entries.get(originalKey);
  const from = original && original.type !== "array" ? Number(original.value) : trained;
  if (Number(factor.value) < 1) return;
  entries.set(contextKey, { type: "i64", value: Math.floor(from * Number(factor.value)) });
  if (!original) entries.set(originalKey, { type: "i64", value: from });
}

function layered(own: Metadata, below: Metadata): Metadata {
  const of = (key: string): Metadata => (own.has(key) ? own : below);
  return {
    keys: () => new Set([...below.keys(), ...own.keys()]).values(),
    has: (key) => own.has(key) || below.has(key),
    string: (key) => of(key).string(key),
    number: (key) => of(key).number(key),
    boolean: (key) => of(key).boolean(key),
    arrayLength: (key) => of(key).arrayLength(key),
    strings: (key) => of(key).strings(key),
    numbers: (key) => of(key).numbers(key),
    booleans: (key) => of(key).booleans(key),
    preview: (key, limit) => of(key).preview(key, limit),
  };
}
