// The header of a model's file, derived from its config.json alone: the metadata, and the name and shape of every weight, without any of
// the bytes. The limits of a model that was not downloaded are counted from it; it cannot be used to load a model.

import { FormatError } from "../../base/errors.ts";
import type { Metadata } from "../../base/metadata.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import { architectureOf, huggingFaceMetadata } from "../../formats/huggingface-metadata.ts";
import { type HuggingFaceArchitecture, textConfig } from "../../formats/huggingface-names.ts";
import { field, type JsonObject } from "../../formats/json.ts";
import { arrayEntry } from "../../formats/typed-metadata.ts";
import type { Weight } from "../../graph/graph.ts";
import type { ModelHeader, WeightSpec } from "../../models/arch.ts";
import { archNamed } from "../../models/table.ts";

/** Bits of every weight of a header that is made here. */
export const configBits = 16;
/** Vectors are floats in every file. */
const [matrixType, vectorType] = [dtypeByName("f16")!, dtypeByName("f32")!];

/** Numbers that a folder has as tensors, one for each layer: only their presence matters here, not their values. */
const anyNumber = 1;

/** The header of a Hugging Face folder of which only config.json is known. Its matrices are F16. */
export function headerOfConfig(given: JsonObject, name: string): ModelHeader {
  const family = architectureOf(given);
  // A folder's quantization does not affect its shape.
  const { quantization_config: _, ...text } = { ...family.defaults, ...textConfig(given) };
  const config: JsonObject = { ...text, model_type: field(given, "model_type") };
  const listed = Object.keys(family.listed ?? {}).map((key) => {
    const layers = Number(field(config, "num_hidden_layers"));
    const values = new Array<number>(Number.isInteger(layers) ? Math.min(layers, 1024) : 0);
    return [key, arrayEntry("f32", values.fill(anyNumber))] as const;
  });
  const files = { config, generationConfig: {}, tokenizerConfig: {}, tokenizer: {} };
  const metadata = huggingFaceMetadata(
    { ...files, chatTemplate: undefined },
    name,
    new Map(listed),
  );
  return { metadata, tensors: tensorsOf(metadata, config, family) };
}

/**
 * The architecture asks for some tensors before it says which it has: it gets the table of embeddings and the ones that the family names.
 */
function tensorsOf(
  metadata: Metadata,
  config: JsonObject,
  family: HuggingFaceArchitecture,
): Map<string, Weight> {
  const arch = archNamed(family.name);
  const table = "token_embd.weight";
  const [rows, cols] = ["vocab_size", "embedding_length"].map((key) =>
    metadata.number(`${family.name}.${key}`),
  );
  if (rows === undefined || rows < 1) {
    throw new FormatError("huggingface", {
      file: "config.json",
      field: "vocab_size",
      got: rows ?? "nothing",
      expected: "a whole number above 0",
    });
  }
  const asked = new Set(family.present?.(config));
  const has = ({ name, optional }: WeightSpec): boolean =>
    !optional ||
    asked.has(name) ||
    (name === "output.weight" && field(config, "tie_word_embeddings") !== true) ||
    (/\.attn_[qkv]\.bias$/.test(name) && hasBias(config));
  const seen = new Map<string, Weight>([
    [table, weight(table, [rows, cols ?? 1])],
    ...[...asked].map((each) => [each, weight(each, [1, 1])] as const),
  ]);
  const specs = arch.weights(arch.config({ metadata, tensors: seen }));
  return new Map(specs.filter(has).map(({ name, shape }) => [name, weight(name, shape)]));
}

function weight(name: string, shape: readonly number[]): Weight {
  return { name, dtype: shape.length > 1 ? matrixType : vectorType, shape };
}

/** Whether queries, keys and values have biases. */
function hasBias(config: JsonObject): boolean {
  return ["attention_bias", "qkv_bias", "use_qkv_bias"].some((key) => field(config, key) === true);
}
