// The tiny files of ../shared/archs whose architecture is in the table, loaded as any model is, and held against llama.cpp's logits
// for every position of two prompts and the 24 tokens that follow: prompts in large batches and token by token, three sequences
// at once, and after a fork and a rollback in the middle.

import { readdirSync, readFileSync } from "node:fs";
import { expect } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine, type RunningSequence } from "../../src/engine/engine.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { allArchs } from "../../src/models/table.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import { memorySource } from "../formats/support.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { type EncoderCase, expectEncoder } from "./encoder-golden.ts";

interface GoldenCase {
  readonly tokens: readonly number[];
  readonly positions: readonly { readonly top: readonly (readonly [number, number])[] }[];
  readonly greedy: readonly number[];
}

type Golden =
  | { readonly kind: "decoder"; readonly cases: readonly GoldenCase[] }
  | { readonly kind: "encoder"; readonly cases: readonly EncoderCase[] }
  | { readonly kind: "diffusion"; readonly cases: readonly Omit<GoldenCase, "greedy">[] }
  | { readonly kind: "encoder-decoder" };

/** Within this, logits are llama.cpp's (../shared/archs/README.md). */
const TOLERANCE = 2e-3;

function readGolden(name: string): Golden {
  return JSON.parse(readFileSync(sharedPath(`archs/${name}.json`), "utf8")) as Golden;
}

/** Prompts of a decoder, and llama.cpp's greedy tokens after them; none: it is no decoder. */
export function goldenCases(name: string): readonly GoldenCase[] {
  const golden = readGolden(name);
  return golden.kind === "decoder" ? golden.cases : [];
}

async function openArch(name: string): Promise<ModelFile> {
  const bytes = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
  return await openGguf(memorySource({ "tiny.gguf": bytes }), "tiny.gguf");
}

/** The general.architecture of a file, from the list of its keys. */
function architectureOf(name: string): string {
  const text = readFileSync(sharedPath(`archs/${name}.txt`), "utf8");
  return /^general\.architecture str (\S+)$/m.exec(text)![1]!;
}

const kinds: ReadonlySet<Golden["kind"]> = new Set(["decoder", "encoder", "diffusion"]);

/** All files of ../shared/archs: those whose architecture is in the table, and the others. */
export function archFiles(): { supported: string[]; others: string[] } {
  if (!hasShared("archs")) return { supported: [], others: [] };
  const names = readdirSync(sharedPath("archs"))
    .filter((file) => file.endsWith(".gguf"))
    .map((file) => file.slice(0, -".gguf".length));
  const known = new Set(allArchs().flatMap((arch) => arch.names));
  const isSupported = (name: string) =>
    known.has(architectureOf(name)) && kinds.has(readGolden(name).kind);
  return {
    supported: names.filter(isSupported),
    others: names.filter((name) => !isSupported(name)),
  };
}

/**
 * Where two experts' scores are a few roundings apart, at this token of the long prompt: from there on, only the reference, which adds
 * up in llama.cpp's order, must choose the same.
 */
const routerTies: Readonly<Record<string, number>> = { step35: 29 };

/** Tensors in another form, by name. */
export type Reshape = (tensors: Map<string, PlainTensor>) => void;

export interface PlainTensor {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** `reshape`: the same model as a file could have it otherwise. */
export async function loadArch(
  name: string,
  backend: Backend,
  reshape: Reshape = () => {},
): Promise<Engine> {
  const file = await openArch(name);
  const plain = new Map<string, PlainTensor>();
  for (const [tensor, of] of file.tensors) {
    const values = new Float32Array(of.shape.reduce((all, dim) => all * dim, 1));
    await file.readTensor(of, new Uint8Array(values.buffer), 0);
    plain.set(tensor, { shape: of.shape, values });
  }
  reshape(plain);
  const dtype = dtypeByName("f32")!;
  return await Engine.load(
    {
      name,
      format: file.format,
      metadata: file.metadata,
      tensors: new Map([...plain].map(([own, { shape }]) => [own, { name: own, shape, dtype }])),
      readTensor: async (tensor, target, offset) => {
        const { values } = plain.get(tensor)!;
        target.set(new Uint8Array(values.buffer, offset, target.length));
      },
      tokenizer: tokenizerFromMetadata(file.metadata),
      template: undefined,
      backend,
    },
    { contextSize: 128, kvType: dtypeByName("f32")!, parallel: 4 },
    { progress: () => {}, check: () => {} },
  );
}

/** How much is held against llama.cpp: both prompts in all ways, or the long one in one batch and what follows it. */
export type Extent = "all" | "brief";

/** Everything that a backend computes of a file is llama.cpp's. */
export async function expectArch(
  name: string,
  backend: Backend,
  extent: Extent = "all",
  reshape?: Reshape,
): Promise<void> {
  const golden = readGolden(name);
  const engine = await loadArch(name, backend, reshape);
  try {
    if (golden.kind === "encoder") await expectEncoder(engine, golden.cases, name);
    else if (golden.kind === "decoder") {
      const tie = backend instanceof ReferenceBackend ? undefined : routerTies[name];
      await expectDecoder(engine, golden.cases, name, extent, tie);
    } else if (golden.kind === "diffusion") await expectWhole(engine, golden.cases, name);
  } finally {
    engine.dispose();
  }
}

async function expectDecoder(
  engine: Engine,
  cases: readonly GoldenCase[],
  name: string,
  extent: Extent,
  tie: number | undefined,
): Promise<void> {
  const [short, whole] = cases as [GoldenCase, GoldenCase];
  const long = tie === undefined ? whole : upTo(whole, tie);
  await expectPrompt(engine, long, { perBatch: 40, what: `${name}, a prompt and what follows` });
  if (extent === "brief") return;
  await expectPrompt(engine, short, { perBatch: 1, what: `${name}, token by token` });
  await expectPrompt(engine, long, { perBatch: 1, greedy: 0, what: `${name}, token by token` });
  await Promise.all(
    [long, short, long].map((one, i) => {
      const what = `${name}, sequence ${i} of three`;
      return expectPrompt(engine, one, { perBatch: 5 + i, greedy: 4, what });
    }),
  );
  await expectForked(engine, long, name);
}

/** The first tokens of a prompt, without what follows. */
function upTo({ tokens, positions }: GoldenCase, count: number): GoldenCase {
  return { tokens: tokens.slice(0, count), positions, greedy: [] };
}

/** The logits of every position, of several texts at once: none of them is continued. */
async function expectWhole(
  engine: Engine,
  cases: readonly Omit<GoldenCase, "greedy">[],
  name: string,
): Promise<void> {
  await Promise.all(
    [...cases, ...cases].map(async (one) => {
      const options = { perBatch: one.tokens.length, greedy: 0, what: `${name}, whole texts` };
      await expectPrompt(engine, { ...one, greedy: [] }, options);
    }),
  );
}

interface PromptOptions {
  readonly perBatch: number;
  /** Tokens that follow. Default: all. */
  readonly greedy?: number;
  readonly what: string;
}

/** The logits of every position, and the tokens that follow. */
async function expectPrompt(
  engine: Engine,
  { tokens, positions, greedy }: GoldenCase,
  { perBatch, greedy: most = greedy.length, what }: PromptOptions,
): Promise<void> {
  const count = Math.min(most, greedy.length);
  const running = await newSequence(engine, tokens.length + count);
  try {
    let last: Float32Array = new Float32Array();
    for (let at = 0; at < tokens.length; at += perBatch) {
      const rows = await advance(engine, running, tokens.slice(at, at + perBatch));
      rows.forEach((row, i) => {
        expect(furthest(row, positions[at + i]!.top), `${what}, position ${at + i}`).toBeLessThan(
          TOLERANCE,
        );
      });
      last = rows.at(-1)!;
    }
    const found: number[] = [];
    while (found.length < count) {
      found.push(last.reduce((best, logit, id) => (logit > last[best]! ? id : best), 0));
      if (found.length < count) last = (await advance(engine, running, [found.at(-1)!]))[0]!;
    }
    expect(found, what).toEqual(greedy.slice(0, count));
  } finally {
    engine.close(running);
  }
}

/** A fork in the middle goes on with the prompt, while the other goes astray, is rolled back, and then goes on, too. */
async function expectForked(
  engine: Engine,
  { tokens, positions }: GoldenCase,
  name: string,
): Promise<void> {
  const middle = 25;
  const astray = tokens.slice(3, 10);
  const one = await newSequence(engine, tokens.length);
  const room = await newSequence(engine, tokens.length);
  const expectRest = async (running: RunningSequence, from: number, what: string) => {
    const rows = await advance(engine, running, tokens.slice(from));
    rows.forEach((row, i) => {
      const top = positions[from + i]!.top;
      expect(furthest(row, top), `${name}, ${what}, position ${from + i}`).toBeLessThan(TOLERANCE);
    });
  };
  await advance(engine, one, tokens.slice(0, middle));
  const fork = { sequence: one.sequence.fork(), promised: room.promised };
  room.sequence.release();
  await advance(engine, one, astray);
  await expectRest(fork, middle, "forked");
  const back = one.sequence.restorable(middle - 2);
  one.sequence.restore(back);
  await expectRest(one, back, "rolled back");
  for (const running of [one, fork]) engine.close(running);
}

export async function newSequence(engine: Engine, mayAdd: number): Promise<RunningSequence> {
  return await engine.open({ tokens: [], mayAdd, isAborted: () => false });
}

/** Computes tokens, and returns the logits of each. */
export async function advance(
  engine: Engine,
  running: RunningSequence,
  tokens: readonly number[],
): Promise<Float32Array[]> {
  const rows: Float32Array[] = [];
  for (let done = 0; done < tokens.length; ) {
    done += await engine.advance(running, tokens, done, {
      wants: () => true,
      onOutput: async (_, read) => {
        const row = new Float32Array(engine.vocabSize);
        await read("logits", row);
        rows.push(row);
      },
      stop: () => false,
    });
  }
  return rows;
}

/** How far logits are from the ten that llama.cpp gives. */
function furthest(row: Float32Array, top: readonly (readonly [number, number])[]): number {
  return top.reduce((most, [id, logit]) => {
    const apart = Math.abs(row[id]! - logit);
    return apart >= most || Number.isNaN(apart) ? apart : most;
  }, 0);
}
