// The files of MaskBench (guidance-ai/jsonschemabench, maskbench/data: one schema with instances each) and of JSON-Schema-Test-Suite
// (tests/draft2020-12: a list of schemas with tests each), with instances as Python writes them, which MaskBench does.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { median, quantile } from "../src/base/measure.ts";
import { tokenizerFromMetadata } from "../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../src/tokenizers/tokenizer.ts";
import { ggufMetadata } from "../test/tokenizers/support.ts";
import { sum } from "./harness.ts";

const shared =
  process.env.LANTERN_SHARED ?? fileURLToPath(new URL("../../shared", import.meta.url));
/** Llama 3's. */
export const vocabulary: string = `${shared}/vocab/ggml-vocab-llama-bpe.gguf`;

export async function tokenizerOf(path: string): Promise<Tokenizer> {
  return tokenizerFromMetadata(await ggufMetadata(path));
}

export interface Case {
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

/** `only`: files whose name has this text; `every`: the first of so many. */
export function* cases(
  folder: string,
  { only, every }: { only?: string | undefined; every: number },
): Generator<Case> {
  const files = readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .sort();
  for (const [i, file] of files.entries()) {
    if (i % every !== 0 || (only !== undefined && !file.includes(only))) continue;
    const path = `${folder}/${file}`;
    if (!statSync(path).isFile()) continue;
    const content = parse(readFileSync(path, "utf8")) as Case | (Case & { description: string })[];
    if (!Array.isArray(content)) yield { ...content, name: file };
    else for (const one of content) yield { ...one, name: `${file}: ${one.description}` };
  }
}

/** 5.0 and numbers beyond 2^53 are not what they are in JavaScript: their text is kept until the instance is written. */
class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Only instances keep the text of their numbers; schemas are ordinary values. */
function parse(text: string): unknown {
  const plain = JSON.parse(text) as unknown;
  const kept = JSON.parse(text, function (
    this: unknown,
    _key,
    value: unknown,
    context?: { source?: string },
  ) {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || source === String(value)) return value;
    return new NumberText(pythonNumber(source, value));
  } as Parameters<typeof JSON.parse>[1]) as unknown;
  const withInstances = (one: Case, other: Case): Case => ({
    ...one,
    tests: one.tests.map((test, i) => ({ ...test, data: other.tests[i]!.data })),
  });
  if (!Array.isArray(plain)) return withInstances(plain as Case, kept as Case);
  return plain.map((one, i) => withInstances(one as Case, (kept as Case[])[i]!));
}

/** As Python reads and writes it: integers are exact, and everything else is a float with a point or an exponent. */
function pythonNumber(source: string, value: number): string {
  if (!/[.eE]/.test(source)) return source;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e16 || size < 1e-4)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** As Python's json.dumps writes it. */
export function dump(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map(dump).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const pairs = Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${dump(item)}`);
  return `{${pairs.join(", ")}}`;
}

/** The mean, and what so large shares of the times do not exceed. */
export function summary(times: readonly number[]): Record<string, number> {
  const shares = { p90: 0.9, p99: 0.99, "p99.9": 0.999, most: 1 };
  const found = Object.entries(shares).map(([name, share]) => [name, quantile(times, share)]);
  const all = { mean: sum(times) / times.length, p50: median(times), ...Object.fromEntries(found) };
  const numbers = Object.entries(all as Record<string, number>).map(([name, value]) => [
    name,
    Number((value || 0).toFixed(1)),
  ]);
  return { count: times.length, ...Object.fromEntries(numbers) };
}
