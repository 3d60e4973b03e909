// Hugging Face folders: damaged safetensors headers, configurations and tokenizer files, through whole runs.

import { type Random, seededRandom } from "../../formats/mutate.ts";
import { tinyFolder } from "../../tools/tiny-folder.ts";
import { applyJsonEdits, type JsonEdit, randomJsonEdit } from "../json-edits.ts";
import {
  applySegmentEdits,
  randomSegmentEdit,
  type Segment,
  type SegmentEdit,
} from "../segments.ts";
import type { FuzzTarget, Json } from "../target.ts";
import { type Files, runHere, runOpened } from "../whole-run.ts";

interface Input {
  base: string;
  /** By file; of a .safetensors file, its header. */
  json: { file: string; edit: JsonEdit }[];
  /** Of the weights: length of the header, header, data. */
  bytes: SegmentEdit[];
  opened?: boolean;
}

interface Base {
  /** Everything that is JSON, weights' header included. */
  json: Record<string, Json>;
  weights: string;
  data: Uint8Array;
}

const bases = new Map<string, Base>();
const small = { hidden: 32, heads: 2, kvHeads: 1, headDim: 16, feedForward: 32, layers: 1 };

function baseOf(files: Files): Base {
  const json: Record<string, Json> = {};
  let weights = "";
  let data = new Uint8Array(0);
  for (const [name, bytes] of Object.entries(files)) {
    if (name.endsWith(".json")) json[name] = JSON.parse(new TextDecoder().decode(bytes)) as Json;
    else {
      const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
      json[name] = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))) as Json;
      weights = name;
      data = bytes.slice(8 + length);
    }
  }
  return { json, weights, data };
}

/** The weights' file with this header, as fields. */
function segmentsOf(header: Json, data: Uint8Array): Segment[] {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(BigUint64Array.of(BigInt(text.length)).buffer);
  return [
    { kind: "number", bytes: length },
    { kind: "text", bytes: text },
    { kind: "data", bytes: data },
  ];
}

function filesOf(base: Base, input: Input): Files {
  const files: Record<string, Uint8Array<ArrayBuffer>> = {};
  for (const [name, document] of Object.entries(base.json)) {
    const edits = input.json.filter(({ file }) => file === name).map(({ edit }) => edit);
    const changed = applyJsonEdits(document, edits);
    files[name] =
      name === base.weights
        ? applySegmentEdits(segmentsOf(changed, base.data), input.bytes)
        : new TextEncoder().encode(JSON.stringify(changed));
  }
  return files;
}

function addEdit(input: Input, base: Base, random: Random): void {
  if (random.below(5) === 0) {
    const segments = segmentsOf(base.json[base.weights]!, base.data);
    input.bytes.push(randomSegmentEdit(segments, random));
  } else {
    const file = random.pick([...Object.keys(base.json), base.weights]);
    input.json.push({ file, edit: randomJsonEdit(base.json[file]!, random) });
  }
}

export const target: FuzzTarget = {
  name: "safetensors",
  describe: "damaged Hugging Face folders: safetensors headers, configurations, tokenizer files",
  prepare() {
    for (const modelType of ["llama", "qwen2", "qwen3"] as const) {
      const tokenizer = modelType === "llama" ? "byte-fallback" : "byte-level";
      bases.set(modelType, baseOf(tinyFolder({ modelType, tokenizer, size: small })));
    }
  },
  make(seed, from) {
    const random = seededRandom(seed);
    const before = from as unknown as Input | undefined;
    const name = before?.base ?? random.pick([...bases.keys()]);
    const input: Input = {
      base: name,
      json: [...(before?.json ?? [])],
      bytes: [...(before?.bytes ?? [])],
      ...(random.below(200) === 0 && { opened: true }),
    };
    for (let i = 1 + random.below(3); i > 0; i--) addEdit(input, bases.get(name)!, random);
    return input as unknown as Json;
  },
  async run(_seed, value) {
    const { base, json = [], bytes = [], opened } = value as unknown as Input;
    const found = bases.get(base);
    if (!found) return undefined;
    const files = filesOf(found, { base, json, bytes });
    const outcome = await runHere(files);
    if (opened) await runOpened(files); // takes a hundred times as long, and refuses the same
    return outcome;
  },
};
