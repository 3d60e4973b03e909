// The pooling that a model file asks for, which turns the hidden states of a text into one vector, and the labels of its
// classifier.

import type { Metadata } from "../base/metadata.ts";
import { ConfigReader } from "./config-reader.ts";

type Pooling = "none" | "mean" | "cls" | "last" | "rank";

/** The ways of pooling in the order of the key's numbers, which are llama.cpp's. */
const poolings: readonly Pooling[] = ["none", "mean", "cls", "last", "rank"];

/** The key pooling_type; undefined: the file has none. */
export function filePooling(metadata: Metadata): Pooling | undefined {
  const read = readerOf(metadata);
  const key = "pooling_type";
  const number = read.number(key);
  if (number === undefined) return undefined;
  return poolings[number] ?? read.fail(key, number, "an integer from 0 to 4");
}

/** The most labels that a classifier may have: each is a row of a matrix. */
const MOST_LABELS = 1 << 16;

/** The meaning of a classifier's scores: one text for each, or none if the file names none. */
export function classifierLabels(metadata: Metadata): string[] {
  const read = readerOf(metadata);
  const key = "classifier.output_labels";
  const full = `${read.architecture}.${key}`;
  if (!metadata.has(full)) return [];
  const count = metadata.arrayLength(full);
  if (count === undefined || count < 1 || count > MOST_LABELS) {
    read.fail(key, `${count ?? "no"} values`, `1 to ${MOST_LABELS} texts`);
  }
  return metadata.strings(full) ?? read.fail(key, "other values", "texts");
}

function readerOf(metadata: Metadata): ConfigReader {
  return new ConfigReader(metadata, metadata.string("general.architecture") ?? "");
}
