// GGUF: small valid files with damaged fields (counts, lengths, types, offsets, values, text), through whole runs.

import { type Random, seededRandom } from "../../formats/mutate.ts";
import { countingTensor, ggufBytes } from "../../formats/support.ts";
import { tinyGguf } from "../../support/tiny-file.ts";
import {
  applySegmentEdits,
  gentleSegmentEdit,
  randomSegmentEdit,
  type Segment,
  type SegmentEdit,
  SegmentReader,
} from "../segments.ts";
import type { FuzzTarget, Json } from "../target.ts";
import { runHere, runOpened } from "../whole-run.ts";

interface Input {
  base: string;
  edits: SegmentEdit[];
  /** Through open(), too. */
  opened?: boolean;
}

const bases = new Map<string, Segment[]>();

/** Widths of GGUF's scalars by their number; 8 is a string, 9 a list. */
const widths: Readonly<Record<number, number>> = {
  0: 1,
  1: 1,
  2: 2,
  3: 2,
  4: 4,
  5: 4,
  6: 4,
  7: 1,
  10: 8,
  11: 8,
  12: 8,
};

/** A well-formed file as fields. */
export function ggufSegments(file: Uint8Array): Segment[] {
  const reader = new SegmentReader(file);
  const string = (): void => void reader.take("text", reader.number(8));
  const value = (type: number, kind: "value" | "item" = "value"): void => {
    if (type === 8) string();
    else if (type === 9) {
      const of = reader.number(4);
      const count = reader.number(8);
      for (let i = 0; i < count; i++) value(of, "item");
    } else reader.take(kind, widths[type]!);
  };
  reader.take("number", 4);
  reader.number(4);
  const tensors = reader.number(8);
  const entries = reader.number(8);
  for (let i = 0; i < entries; i++) {
    string();
    value(reader.number(4));
  }
  for (let i = 0; i < tensors; i++) {
    string();
    const dims = reader.number(4);
    for (let d = 0; d < dims; d++) reader.number(8);
    reader.number(4);
    reader.number(8);
  }
  reader.take("data", (32 - (reader.at % 32)) % 32);
  reader.rest();
  return reader.segments;
}

/** Fields of the header's beginning and of the tensor table are few among those of the vocabulary: they get their share. */
function edit(segments: readonly Segment[], random: Random): SegmentEdit {
  const change = randomSegmentEdit(segments, random);
  if (!("field" in change) || random.below(2) === 0) return change;
  const from = random.pick([0, Math.max(segments.length - 120, 0)]);
  const part = segments.slice(from, from + 120);
  const near = randomSegmentEdit(part, random);
  return "field" in near ? { ...near, field: near.field + from } : change;
}

export const target: FuzzTarget = {
  name: "gguf",
  describe: "damaged GGUF files: header, metadata, tensors, tokenizer, template, a few tokens",
  async prepare() {
    const entries = {
      "general.architecture": { type: "string", value: "llama" },
      "general.alignment": { type: "u32", value: 32 },
      "x.flags": { type: "array<bool>", value: [true, false] },
      "x.numbers": { type: "array<f64>", value: [1, 2] },
      "x.u64": { type: "u64", value: 2n ** 63n },
    };
    const tensors = [
      countingTensor("token_embd.weight", "f32", [4, 8]),
      countingTensor("blk.0.attn_q.weight", "q8_0", [2, 32]),
    ];
    bases.set("header", ggufSegments(await ggufBytes(entries, tensors)));
    for (const [architecture, weightType] of [
      ["llama", "f32"],
      ["qwen2", "q8_0"],
      ["qwen3", "q4_0"],
    ] as const) {
      bases.set(architecture, ggufSegments(await tinyGguf({ architecture, weightType })));
    }
  },
  make(seed, base) {
    const random = seededRandom(seed);
    const from = base as unknown as Input | undefined;
    const name = from?.base ?? random.pick([...bases.keys()]);
    const edits = [...(from?.edits ?? [])];
    const segments = bases.get(name)!;
    const change = random.below(2) === 0 ? gentleSegmentEdit : edit;
    for (let i = 1 + random.below(3); i > 0; i--) edits.push(change(segments, random));
    const input: Input = { base: name, edits, ...(random.below(200) === 0 && { opened: true }) };
    return input as unknown as Json;
  },
  async run(_seed, value) {
    const { base, edits, opened } = value as unknown as Input;
    const segments = bases.get(base);
    if (!segments || !Array.isArray(edits)) return undefined;
    const files = { "m.gguf": applySegmentEdits(segments, edits) };
    const outcome = await runHere(files, "m.gguf");
    if (opened) await runOpened(files); // takes a hundred times as long, and refuses the same
    return outcome;
  },
};
