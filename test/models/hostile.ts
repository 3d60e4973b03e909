// Hostile headers of every architecture: each key that it reads, and each of its tensors, with values that no real model has. A case
// goes through everything that loads a model and computes tokens, on the reference backend. It must be refused with a
// LanternError, or load and give finite logits.

import { readFileSync } from "node:fs";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { LanternError } from "../../src/base/errors.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeEmbeddings } from "../../src/engine/embedding.ts";
import { Engine } from "../../src/engine/engine.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import {
  arrayEntry,
  type MetadataEntry,
  type Scalar,
  type ScalarType,
  TypedMetadata,
} from "../../src/formats/typed-metadata.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { memorySource } from "../formats/support.ts";
import { sharedPath } from "../support/shared.ts";
import {
  letterTokenizer,
  type MetadataValue,
  tinyMetadata,
  tinyModel,
} from "../support/tiny-engine.ts";

/** A model that loads, as what it consists of. */
export interface Base {
  readonly name: string;
  readonly entries: ReadonlyMap<string, MetadataEntry>;
  readonly tensors: ReadonlyMap<string, Weight>;
  readonly bytes: ReadonlyMap<string, Uint8Array>;
}

/** One change to a base. */
export interface Change {
  /** "block_count = NaN". */
  readonly what: string;
  readonly key?: string;
  /** undefined: the key is removed. */
  readonly entry?: MetadataEntry | undefined;
  readonly tensor?: string;
  /** undefined: the tensor is removed. */
  readonly weight?: Weight | undefined;
  /** Made when the case is run: there are thousands. */
  readonly bytes?: () => Uint8Array;
}

export interface Outcome {
  readonly ms: number;
  /** "computed", or the message of what was thrown. */
  readonly text: string;
  readonly isRefused: boolean;
  /** What was thrown, where it is not a LanternError. */
  readonly bug?: unknown;
}

/** A file of ../shared/archs. */
export async function sharedBase(name: string): Promise<Base> {
  const whole = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
  const file = await openGguf(memorySource({ "tiny.gguf": whole }), "tiny.gguf");
  const entries = new Map<string, MetadataEntry>();
  for (const key of file.metadata.keys()) {
    const { type, value, length } = file.metadata.preview(key, Number.POSITIVE_INFINITY)!;
    const isArray = length !== undefined;
    const element = (isArray ? type.slice("array<".length, -1) : type) as ScalarType;
    entries.set(
      key,
      isArray ? arrayEntry(element, value as Scalar[]) : { type: element, value: value as Scalar },
    );
  }
  const tensors = new Map<string, Weight>();
  const bytes = new Map<string, Uint8Array>();
  for (const tensor of file.tensors.values()) {
    const { dtype, shape } = tensor;
    tensors.set(tensor.name, { name: tensor.name, dtype, shape });
    const content = new Uint8Array(tensor.byteLength);
    await file.readTensor(tensor, content, 0);
    bytes.set(tensor.name, content);
  }
  return { name, entries, tensors, bytes };
}

/** A small random model that the tests make. */
export function madeBase(architecture: string): Base {
  const { tensors, bytes } = tinyModel({ architecture });
  const entries = Object.entries(tinyMetadata(architecture)).map(
    ([key, value]) => [key, entryOf(value)] as const,
  );
  return { name: architecture, entries: new Map(entries), tensors, bytes };
}

function entryOf(value: MetadataValue): MetadataEntry {
  if (typeof value === "object") return arrayEntry("u32", value);
  if (typeof value === "string") return { type: "string", value };
  if (typeof value === "boolean") return { type: "bool", value };
  return { type: Number.isInteger(value) ? "u32" : "f32", value };
}

/** Loads the changed model and computes a few tokens. */
export async function attempt(
  base: Base,
  change?: Change,
  availableBytes = 500e6,
): Promise<Outcome> {
  const began = performance.now();
  const outcome = (text: string, isRefused: boolean, bug?: unknown): Outcome => ({
    ms: performance.now() - began,
    text,
    isRefused,
    ...(bug !== undefined && { bug }),
  });
  try {
    await computeTokens(changed(base, change), availableBytes);
    return outcome("computed", false);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return outcome(text, true, error instanceof LanternError ? undefined : error);
  }
}

function changed(base: Base, change: Change | undefined): Base {
  if (!change) return base;
  const { key, entry, tensor, weight, bytes } = change;
  return {
    name: base.name,
    entries: key === undefined ? base.entries : withEntry(base.entries, key, entry),
    tensors: tensor === undefined ? base.tensors : withEntry(base.tensors, tensor, weight),
    bytes: tensor === undefined ? base.bytes : withEntry(base.bytes, tensor, bytes?.()),
  };
}

function withEntry<V>(map: ReadonlyMap<string, V>, key: string, value: V | undefined) {
  const copy = new Map(map);
  if (value === undefined) copy.delete(key);
  else copy.set(key, value);
  return copy;
}

async function computeTokens(
  { name, entries, tensors, bytes }: Base,
  availableBytes = 500e6,
): Promise<void> {
  const engine = await Engine.load(
    {
      name,
      format: "memory",
      metadata: new TypedMetadata("gguf", name, entries),
      tensors,
      readTensor: async (tensor, target, offset) => {
        target.set(bytes.get(tensor)!.subarray(offset, offset + target.length));
      },
      tokenizer: letterTokenizer,
      template: undefined,
      backend: new ReferenceBackend(),
    },
    { contextSize: 64, kvType: dtypeByName("f32")!, availableBytes },
    { progress: () => {}, check: () => {} },
  );
  try {
    const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
    const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
    const tokens = [5, 6, 7];
    if (engine.isBidirectional || !engine.graph.outputs.logits) {
      const request = { texts: [tokens], pooling: "mean" } as const;
      const [vector] = await computeEmbeddings(engine, request, control);
      if (!vector!.every(Number.isFinite)) throw new Error("an embedding holds NaN");
      return;
    }
    const options = { temperature: 0, maxTokens: 3 };
    await generate(engine, { tokens, options }, control, () => {});
  } finally {
    engine.dispose();
  }
}

/** The keys that the architecture looks for, whether the model has them or not. */
export async function keysRead(base: Base): Promise<string[]> {
  const seen = new Set<string>();
  const entries = new Map(base.entries);
  const watched = {
    get: (key: string) => (seen.add(key) ? base.entries.get(key) : undefined),
    has: (key: string) => (seen.add(key) ? base.entries.has(key) : false),
    keys: () => entries.keys(),
  } as unknown as ReadonlyMap<string, MetadataEntry>;
  await computeTokens({ ...base, entries: watched });
  return [...seen].filter((key) => !/^(tokenizer|general)\./.test(key));
}

/** Never decoded: whoever looks into it fails. */
function unread(elementType: ScalarType, length: number): MetadataEntry {
  const decode = (limit: number): Scalar[] => {
    if (limit === 0) return [];
    throw new Error(`an array of ${length} values was decoded`);
  };
  return { type: "array", elementType, length, decode };
}

const hostileNumbers: readonly [ScalarType, Scalar][] = [
  ...[0, 1, 2, 3, 7, 64, 1 << 20, 2 ** 31, 2 ** 32 - 1].map((n): [ScalarType, Scalar] => [
    "u32",
    n,
  ]),
  ...[-1, -(2 ** 31)].map((n): [ScalarType, Scalar] => ["i32", n]),
  ["u64", 2 ** 53 - 1],
  ["u64", 2n ** 63n],
  ...[0.5, -0.5, 1e-45, 1e38, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map(
    (n): [ScalarType, Scalar] => ["f32", n],
  ),
  ["f64", 1e300],
];

/** Hostile values of a key. */
export function* keyChanges({ entries }: Pick<Base, "entries">, key: string): Generator<Change> {
  const found = entries.get(key);
  const set = (what: string, entry: MetadataEntry | undefined): Change => ({
    what: `${key} = ${what}`,
    key,
    entry,
  });
  if (found) yield set("nothing", undefined);
  for (const [type, value] of hostileNumbers) yield set(`${type} ${value}`, { type, value });
  yield set("a string", { type: "string", value: "x" });
  yield set("an empty string", { type: "string", value: "" });
  yield set("a bool", { type: "bool", value: true });
  yield set("an empty array", arrayEntry("u32", []));
  yield set("an array of one", arrayEntry("u32", [1]));
  yield set("an array of a string", arrayEntry("string", ["x"]));
  for (const type of ["u32", "bool", "string"] as const) {
    yield set(`2^40 of ${type}`, unread(type, 2 ** 40));
  }
  if (found?.type !== "array") {
    const value = typeof found?.value === "number" ? found.value : undefined;
    if (value !== undefined && found) {
      for (const other of [value + 1, value - 1, value * 2, value / 2, -value]) {
        yield set(`${other}`, { type: Number.isInteger(other) ? "i32" : "f32", value: other });
      }
    }
    return;
  }
  const values = found.decode(found.length);
  const { elementType: type } = found;
  yield set("one value less", arrayEntry(type, values.slice(1)));
  yield set("one value more", arrayEntry(type, [...values, values[0]!]));
  if (type === "string") return;
  for (const at of new Set([0, values.length - 1])) {
    if (type === "bool") {
      yield set(`[${at}] turned`, arrayEntry(type, values.with(at, !values[at])));
      continue;
    }
    for (const [other, value] of hostileNumbers) {
      if (typeof value === "bigint") continue;
      yield set(`${other} ${value} at ${at}`, arrayEntry(other, values.with(at, value)));
    }
  }
}

/** Hostile shapes, types and values of a tensor. */
export function* tensorChanges({ tensors, bytes }: Base, tensor: string): Generator<Change> {
  const found = tensors.get(tensor)!;
  const content = bytes.get(tensor)!;
  const { shape } = found;
  const elems = shape.reduce((a, b) => a * b, 1);
  const as = (what: string, facts: Partial<Weight>): Change => ({
    what: `${tensor}: ${what}`,
    tensor,
    weight: { ...found, ...facts },
    bytes: () => content,
  });
  yield { what: `${tensor}: missing`, tensor };
  const shapes = [
    shape.toReversed(),
    shape.with(0, shape[0]! + 1),
    shape.with(0, shape[0]! - 1),
    shape.with(-1, shape.at(-1)! * 2),
    shape.map(() => 0),
    shape.map(() => 1),
    shape.map(() => 2 ** 31),
    [elems],
    [1, ...shape],
    [...shape, 1],
    [2, ...shape],
    [2, ...shape.with(0, shape[0]! / 2)],
    [],
  ];
  for (const other of shapes) yield as(`[${other}]`, { shape: other });
  for (const type of ["q8_0", "f16"]) {
    const dtype = dtypeByName(type)!;
    if (shape.at(-1)! % dtype.blockElems !== 0) continue;
    const bytes = () => new Uint8Array(bytesFor(dtype, elems)).fill(0x3c);
    yield { ...as(type, { dtype }), bytes };
  }
  if (found.dtype.name !== "f32") return;
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 3e38, 0]) {
    for (const all of [false, true]) {
      const filled = () => {
        const floats = new Float32Array(content.slice().buffer);
        if (all) floats.fill(value);
        else floats[floats.length >> 1] = value;
        return new Uint8Array(floats.buffer);
      };
      yield { ...as(`${all ? "all" : "one"} ${value}`, {}), bytes: filled };
    }
  }
}
