// The tiny random model as a real GGUF file, with a byte-fallback vocabulary and a chat template: for tests that go
// through open(). It talks nonsense, but the same nonsense every time.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import { type MetadataValue, type TinyOptions, tinyMetadata, tinyModel } from "./tiny-engine.ts";

const controls = ["<unk>", "<s>", "</s>"];
const bytes = Array.from({ length: 256 }, (_, i) => byteToken(i));
const words = ["▁", "▁the", "▁cat", "▁sat", "e", "a"];
const tokens = [...controls, ...bytes, ...words];
const tokenTypes = [2, 3, 3, ...bytes.map(() => 6), ...words.map(() => 1)];

const template =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/** The number of tokens of such a file. */
export const tinyFileVocab: number = tokens.length;

export interface TinyFileOptions extends TinyOptions {
  /** Control tokens after the others. */
  moreControls?: readonly string[];
  /** Keys besides the usual ones, or in their place. */
  more?: readonly [string, GgufValue][];
  /** The file's name without .gguf (default "tiny"). */
  name?: string;
  /** Without a chat template, as a model that only continues texts. */
  noTemplate?: boolean;
}

export async function tinyGguf(options: TinyFileOptions = {}): Promise<Uint8Array> {
  const { moreControls = [] } = options;
  const texts = [...tokens, ...moreControls];
  const types = [...tokenTypes, ...moreControls.map(() => 3)];
  const architecture = options.architecture ?? "llama";
  const model = options.model ?? tinyModel({ vocab: texts.length, ...options });
  const { feedForward, layers } = options;
  const entries = Object.entries(tinyMetadata(architecture, feedForward, layers)).map(
    ([key, value]): [string, GgufValue] => [key, { type: typeOf(value), value }],
  );
  entries.push(
    ["general.name", { type: "string", value: "tiny" }],
    ["tokenizer.ggml.model", { type: "string", value: "llama" }],
    ["tokenizer.ggml.tokens", { type: "array<string>", value: texts }],
    ["tokenizer.ggml.scores", { type: "array<f32>", value: texts.map((_, i) => -i) }],
    ["tokenizer.ggml.token_type", { type: "array<i32>", value: types }],
    ["tokenizer.ggml.bos_token_id", { type: "u32", value: 1 }],
    ["tokenizer.ggml.eos_token_id", { type: "u32", value: 2 }],
  );
  if (!options.noTemplate) {
    entries.push(["tokenizer.chat_template", { type: "string", value: template }]);
  }
  const { more = [] } = options;
  const all = [...entries.filter(([key]) => !more.some(([other]) => other === key)), ...more];
  const parts: Uint8Array[] = [];
  await writeGguf(
    { write: async (part) => void parts.push(part.slice()) },
    all,
    [...model.tensors.values()].map(({ name, dtype, shape }) => ({
      name,
      dtype,
      shape,
      data: () => [model.bytes.get(name)!],
    })),
  );
  return Buffer.concat(parts);
}

/** Writes it to a folder of its own; `remove` deletes that. */
export async function tinyFile(
  options: TinyFileOptions = {},
): Promise<{ path: string; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-tiny-"));
  const path = join(folder, `${options.name ?? "tiny"}.gguf`);
  writeFileSync(path, await tinyGguf(options));
  return { path, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

function byteToken(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

function typeOf(value: MetadataValue): string {
  if (typeof value === "string") return "string";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "object") return "array<f32>";
  return Number.isInteger(value) ? "u32" : "f32";
}
