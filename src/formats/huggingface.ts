// Opens a Hugging Face folder (config.json, the tokenizer's files, safetensors weights) and presents it like a GGUF
// file, with GGUF's tensor names and keys. The translation is data in huggingface-families.ts; huggingface-metadata.ts
// makes the metadata.

import { FormatError } from "../base/errors.ts";
import type { ByteSource, ModelSource } from "../platform/platform.ts";
import { type Presented, rowGroups, wrongTensor } from "./huggingface-changes.ts";
import { ExpertTensors } from "./huggingface-experts.ts";
import {
  architectureOf,
  type HuggingFaceFiles,
  huggingFaceMetadata,
} from "./huggingface-metadata.ts";
import { type HuggingFaceArchitecture, presented, textConfig } from "./huggingface-names.ts";
import { placeOf, textName } from "./huggingface-place.ts";
import { type ChangedTensor, withChanges } from "./huggingface-read.ts";
import { decodeText, describe, field, isObject, type JsonObject, readJsonFile } from "./json.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";
import { closeAll, openedModelFile } from "./opened-model-file.ts";
import { packedBytes } from "./packed-bytes.ts";
import { openSafetensorsFile, openSafetensorsIndex, safetensorsIndex } from "./safetensors.ts";
import { arrayEntry, type MetadataEntry } from "./typed-metadata.ts";

const longestConfig = 16 << 20;
const longestTokenizer = 128 << 20;
const longestTemplate = 4 << 20;

const embedding = "token_embd.weight";
const output = "output.weight";

export async function openHuggingFace(source: ModelSource): Promise<ModelFile> {
  const found = await readFiles(source);
  const name = modelName(source, found.config);
  const own: JsonObject = { ...found.config, _name_or_path: name };
  const read = { ...found, config: own };
  const architecture = architectureOf(read.config);
  const config = { ...architecture.defaults, ...textConfig(read.config) };
  const files = { ...read, config: { ...config, model_type: read.config.model_type } };
  const opened = new Map<string, ByteSource>();
  try {
    const table = await openWeights(source, opened);
    const listed = await readListed(table, architecture, opened);
    const metadata = huggingFaceMetadata(files, name, listed);
    const { tensors, changes } = ggufTensors(table, architecture, files.config);
    addLabels(tensors, files, architecture);
    tieEmbeddings(tensors, files.config);
    const file = openedModelFile({
      format: "safetensors",
      name: source.name,
      metadata,
      tensors,
      tokenizer: { kind: "json", tokenizer: files.tokenizer, config: files.tokenizerConfig },
      sources: opened,
    });
    return withChanges(file, changes);
  } catch (error) {
    await closeAll(opened.values());
    throw error;
  }
}

async function readFiles(source: ModelSource): Promise<HuggingFaceFiles> {
  const optional = async (file: string): Promise<JsonObject> =>
    (await source.has(file)) ? await readJson(source, file, longestConfig) : {};
  const specialTokensMap = await optional("special_tokens_map.json");
  const tokenizerConfig = await optional("tokenizer_config.json");
  const set = Object.entries(tokenizerConfig).filter(([, value]) => value !== null);
  return {
    config: await readJson(source, "config.json", longestConfig),
    generationConfig: await optional("generation_config.json"),
    tokenizerConfig: { ...specialTokensMap, ...Object.fromEntries(set) },
    tokenizer: await readJson(source, "tokenizer.json", longestTokenizer),
    chatTemplate: await readTemplate(source),
  };
}

async function readJson(source: ModelSource, file: string, mostBytes: number): Promise<JsonObject> {
  if (!(await source.has(file))) {
    throw folderError(source, file, "no such file", `${file} in a Hugging Face folder`);
  }
  const bytes = await source.open(file);
  try {
    return await readJsonFile(bytes, mostBytes, "huggingface");
  } finally {
    await bytes.close();
  }
}

async function readTemplate(source: ModelSource): Promise<string | undefined> {
  const file = "chat_template.jinja";
  if (!(await source.has(file))) return undefined;
  const bytes = await source.open(file);
  try {
    if (bytes.size > longestTemplate) {
      throw folderError(source, `${file} size`, bytes.size, `at most ${longestTemplate} bytes`);
    }
    const text = await bytes.read(0, bytes.size);
    return decodeText(text, { format: "huggingface", file, field: "text" });
  } finally {
    await bytes.close();
  }
}

/** The named weights file, all files of an index, model.safetensors, or the only .safetensors file. */
async function openWeights(
  source: ModelSource,
  opened: Map<string, ByteSource>,
): Promise<Map<string, TensorInfo>> {
  const { main } = source;
  const isPart = /-\d{5}-of-\d{5}\.safetensors$/.test(main ?? "");
  if (main?.endsWith(".safetensors") && !isPart)
    return await openSafetensorsFile(source, main, opened);
  if (await source.has(safetensorsIndex)) return await openSafetensorsIndex(source, opened);
  const usual = "model.safetensors";
  if (await source.has(usual)) return await openSafetensorsFile(source, usual, opened);
  const others = (await source.list())?.filter((file) => file.endsWith(".safetensors")) ?? [];
  if (others.length === 1) return await openSafetensorsFile(source, others[0]!, opened);
  throw folderError(
    source,
    "weights",
    others.length === 0
      ? "no .safetensors file"
      : `${others.length} .safetensors files and no index`,
    `${safetensorsIndex}, ${usual} or one other .safetensors file`,
  );
}

/** Single values of the layers, as lists of numbers. */
async function readListed(
  table: ReadonlyMap<string, TensorInfo>,
  { listed = {} }: HuggingFaceArchitecture,
  opened: ReadonlyMap<string, ByteSource>,
): Promise<Map<string, MetadataEntry>> {
  const lists = new Map<string, number[]>();
  const keys = new Map(Object.entries(listed).map(([key, name]) => [name, key]));
  for (const tensor of keys.size === 0 ? [] : table.values()) {
    const { layer, rest } = placeOf(tensor.name);
    const key = keys.get(rest);
    if (key === undefined || layer === undefined) continue;
    if (tensor.byteLength !== tensor.dtype.blockBytes || tensor.dtype === packedBytes) {
      throw wrongTensor(tensor, `${tensor.dtype.name} [${tensor.shape}]`, "a single float");
    }
    const bytes = await opened.get(tensor.file)!.read(tensor.offset, tensor.byteLength);
    const value = new Float32Array(1);
    tensor.dtype.dequantize(bytes, 0, value, 0, 1);
    const list = lists.get(key) ?? [];
    lists.set(key, list);
    list[layer] = value[0]!;
  }
  // A layer without its value leaves a hole, which the architecture refuses as a list of another length.
  return new Map(
    Array.from(lists, ([key, list]) => [
      key,
      arrayEntry(
        "f32",
        list.filter((value) => value !== undefined),
      ),
    ]),
  );
}

/** The folder's tensors as GGUF has them, and how some are computed. */
function ggufTensors(
  table: ReadonlyMap<string, TensorInfo>,
  { tensors: names, constants }: HuggingFaceArchitecture,
  config: JsonObject,
): { tensors: Map<string, TensorInfo>; changes: Map<string, ChangedTensor> } {
  const tensors = new Map<string, TensorInfo>();
  const changes = new Map<string, ChangedTensor>();
  const put = (own: TensorInfo, { name, tensor, change, stored }: Presented) => {
    if (tensors.has(name)) throw wrongTensor(own, `a second tensor for ${name}`, "one");
    if (tensor.dtype === packedBytes) throw wrongTensor(own, "U8", "F32, F16 or BF16");
    tensors.set(name, { ...tensor, name });
    if (change) changes.set(name, { stored: stored ?? own, change });
  };
  const experts = names.experts && new ExpertTensors(names.experts);
  for (const tensor of table.values()) {
    if (experts?.add({ ...tensor, name: textName(tensor.name) })) continue;
    for (const each of presented(names, tensor, config, table)) put(tensor, each);
  }
  for (const [name, tensor] of experts?.tensors() ?? []) put(tensor, { name, tensor });
  for (const each of constants?.(config) ?? []) put(each.tensor, each);
  return { tensors, changes };
}

/** The classifier of a reranker that is a language model: the rows of its labels, instead of the output matrix. */
function addLabels(
  tensors: Map<string, TensorInfo>,
  { tokenizer }: HuggingFaceFiles,
  { labels }: HuggingFaceArchitecture,
): void {
  const matrix = tensors.get(output) ?? tensors.get(embedding);
  if (!labels || matrix?.shape.length !== 2) return;
  const model = field(tokenizer, "model");
  const vocabulary = isObject(model) ? field(model, "vocab") : undefined;
  const starts = labels.map((label) => {
    const id = isObject(vocabulary) ? field(vocabulary, label) : undefined;
    if (Number.isInteger(id) && Number(id) >= 0 && Number(id) < matrix.shape[0]!) return Number(id);
    throw new FormatError("huggingface", {
      file: "tokenizer.json",
      field: `model.vocab: ${JSON.stringify(label)}`,
      got: describe(id),
      expected: `the id of that token, from 0 to ${matrix.shape[0]! - 1}: a reranker answers with it`,
    });
  });
  const name = "cls.output.weight";
  tensors.set(name, { ...rowGroups(matrix, starts, 1, [starts.length]), name });
  tensors.delete(output);
}

/** A tied model has one matrix under either name. Here it is the embedding, and there is no output matrix. */
function tieEmbeddings(tensors: Map<string, TensorInfo>, config: JsonObject): void {
  if (field(config, "tie_word_embeddings") !== true) return;
  const stored = tensors.get(embedding) ?? tensors.get(output);
  if (!stored) return;
  tensors.set(embedding, { ...stored, name: embedding });
  tensors.delete(output);
}

function modelName(source: ModelSource, config: JsonObject): string {
  const named = field(config, "_name_or_path");
  if (typeof named === "string" && named !== "") return named;
  const folder =
    source.main === undefined ? source.name : source.name.slice(0, -source.main.length);
  return folder.split(/[/\\]/).findLast((part) => part !== "") ?? source.name;
}

function folderError(
  source: ModelSource,
  what: string,
  got: unknown,
  expected: string,
): FormatError {
  return new FormatError("huggingface", { file: source.name, field: what, got, expected });
}
