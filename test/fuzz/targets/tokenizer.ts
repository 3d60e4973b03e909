// Tokenizers from damaged tokenizer.json files and GGUF vocabularies, on awkward texts.

import { tokenizerFromJson } from "../../../src/tokenizers/from-json.ts";
import { tokenizerFromMetadata } from "../../../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../../../src/tokenizers/tokenizer.ts";
import { type Random, seededRandom } from "../../formats/mutate.ts";
import { bpeRecord, spmRecord, wordPieceRecord } from "../../tokenizers/small-vocabularies.ts";
import { tinyFolder } from "../../tools/tiny-folder.ts";
import { awkwardStrings } from "../awkward.ts";
import { applyJsonEdits, type JsonEdit, randomJsonEdit } from "../json-edits.ts";
import { looseMetadata } from "../loose-metadata.ts";
import { type FuzzTarget, type Json, refusal } from "../target.ts";

interface Input {
  base: string;
  edits: JsonEdit[];
  texts: string[];
}

const pieces: readonly string[] = [
  ...awkwardStrings,
  "Hello, world! It's 12,345.67 o'clock.",
  "\r\n\t  \u00a0\u3000",
  "我想要一个苹果",
  "مرحبا",
  "👩‍👩‍👧‍👦🇩🇪",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
  "<|im_start|>user\n",
  "the and on in an",
];

const bases = new Map<string, Json>();
const steps: readonly Json[] = [
  { type: "NFKC" },
  { type: "Lowercase" },
  { type: "Replace", pattern: { String: " " }, content: "▁" },
  { type: "Replace", pattern: { Regex: "\\s+" }, content: " " },
  { type: "Prepend", prepend: "▁" },
  { type: "Strip", strip_left: true, strip_right: true },
  {
    type: "Split",
    pattern: { Regex: "\\p{N}{1,3}|\\s+(?!\\S)" },
    behavior: "Isolated",
    invert: false,
  },
  { type: "Split", pattern: { String: "a" }, behavior: "MergedWithPrevious", invert: true },
  { type: "Digits", individual_digits: true },
  { type: "Whitespace" },
  { type: "Punctuation", behavior: "Isolated" },
  { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true },
  { type: "ByteLevel", add_prefix_space: true, use_regex: true },
  { type: "ByteFallback" },
  { type: "Fuse" },
];

/** Now and then a known step in one of the pipeline's places: a damaged one is refused, a known one runs. */
function edit(document: Json, random: Random): JsonEdit {
  if (random.below(4) > 0) return randomJsonEdit(document, random);
  const at = [random.pick(["normalizer", "pre_tokenizer", "decoder"])];
  if (random.below(2) === 0) return { at, put: random.pick(steps) };
  const list = [random.pick(steps), random.pick(steps)];
  const field = { normalizer: "normalizers", pre_tokenizer: "pretokenizers", decoder: "decoders" };
  return { at, put: { type: "Sequence", [field[at[0] as "decoder"]]: list } };
}

function makeTokenizer(base: string, document: Json): Tokenizer {
  if (!base.startsWith("json")) return tokenizerFromMetadata(looseMetadata(document));
  const { tokenizer = null, config = null } = (document ?? {}) as Record<string, Json>;
  return tokenizerFromJson(tokenizer, config);
}

function use(tokenizer: Tokenizer, text: string): void {
  for (const parseSpecial of [true, false]) {
    const ids = tokenizer.encode(text, { parseSpecial });
    for (const id of ids) {
      if (!(Number.isInteger(id) && id >= 0 && id < tokenizer.vocabSize)) {
        throw new Error(`encode() gave id ${id} of ${tokenizer.vocabSize}`);
      }
    }
    const decoded = tokenizer.decode(ids);
    const stream = tokenizer.stream();
    const streamed = ids.map((id) => stream.push(id)).join("") + stream.end();
    if (streamed !== decoded) {
      throw new Error(`stream() and decode() differ: ${JSON.stringify([streamed, decoded])}`);
    }
  }
}

export const target: FuzzTarget = {
  name: "tokenizer",
  describe: "damaged tokenizer.json files and GGUF vocabularies, on awkward texts",
  prepare() {
    const parsed = (bytes: Uint8Array): Json => JSON.parse(new TextDecoder().decode(bytes)) as Json;
    for (const tokenizer of ["byte-level", "byte-fallback"] as const) {
      const files = tinyFolder({ tokenizer });
      bases.set(`json ${tokenizer}`, {
        tokenizer: parsed(files["tokenizer.json"]!),
        config: parsed(files["tokenizer_config.json"]!),
      });
    }
    bases.set("spm", spmRecord());
    bases.set("bpe", bpeRecord());
    bases.set("wordpiece", wordPieceRecord());
  },
  make(seed, from) {
    const random = seededRandom(seed);
    const before = from as unknown as Input | undefined;
    const base = before?.base ?? random.pick([...bases.keys()]);
    const document = bases.get(base)!;
    const edits = [...(before?.edits ?? [])];
    for (let i = random.below(4); i > 0; i--) {
      if (base.startsWith("json")) {
        const { tokenizer } = document as Record<string, Json>;
        const inner = edit(tokenizer!, random);
        edits.push({ ...inner, at: ["tokenizer", ...inner.at] });
      } else edits.push(randomJsonEdit(document, random));
    }
    const text = (): string =>
      Array.from({ length: 1 + random.below(5) }, () => random.pick(pieces)).join("");
    return { base, edits, texts: [text(), text()] } as unknown as Json;
  },
  run(_seed, value) {
    const { base, edits = [], texts = [] } = value as unknown as Input;
    const document = bases.get(base);
    if (document === undefined) return undefined;
    try {
      const tokenizer = makeTokenizer(base, applyJsonEdits(document, edits));
      for (const text of texts) use(tokenizer, text);
      return `${tokenizer.kind} works`;
    } catch (error) {
      return refusal(error);
    }
  },
};
