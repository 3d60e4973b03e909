// Opens a model of any format: a table of formats, which are tried in order.
//
// A file is recognised by its name or first bytes, a folder by its files. A new format is one file and one line here.

import { FormatError } from "../base/errors.ts";
import type { ByteSource, ModelSource } from "../platform/platform.ts";
import { ggufMagic, powerInferMagic } from "./gguf/header.ts";
import { openGguf } from "./gguf/open-gguf.ts";
import { openHuggingFace } from "./huggingface.ts";
import { looksLikeLlama2c, openLlama2c } from "./llama2c.ts";
import type { ModelFile } from "./model-file.ts";
import { safetensorsIndex } from "./safetensors.ts";

const zipMagic = 0x0403_4b50;
const ggufMagics: readonly number[] = [ggufMagic, powerInferMagic];

interface Format {
  /** The name of the file that this format needs, for the error. */
  readonly looksFor: string;
  /** Whether the named file is (part of) a model of this format. */
  matchesFile(file: string, bytes: ByteSource): Promise<boolean> | boolean;
  /** The file to open in a folder; undefined if the folder has none, a FormatError if it has several. */
  findInFolder(
    source: ModelSource,
    files: readonly string[] | undefined,
  ): Promise<string | undefined>;
  open(source: ModelSource, file: string): Promise<ModelFile>;
}

/**
 * Tried in this order. A folder with both safetensors and GGUF weights is a Hugging Face folder; a GGUF in it can be
 * opened by its own path. llama2.c is last because it has no magic number.
 */
const formats: readonly Format[] = [
  {
    looksFor: "a Hugging Face folder (config.json, tokenizer.json and .safetensors files)",
    matchesFile: (file) => /\.safetensors$|^config\.json$|\.safetensors\.index\.json$/.test(file),
    findInFolder: async (source, files) =>
      (await isHuggingFaceFolder(source, files)) ? "config.json" : undefined,
    open: async (source) => await openHuggingFace(source),
  },
  {
    looksFor: 'a GGUF file (first bytes "GGUF")',
    matchesFile: async (file, bytes) =>
      file.endsWith(".gguf") || ggufMagics.includes((await firstU32(bytes)) ?? 0),
    findInFolder: async (source, files = []) =>
      only(
        source,
        files.filter(
          (file) => file.endsWith(".gguf") && !/-(?!00001)\d{5}-of-\d{5}\.gguf$/.test(file),
        ),
      ),
    open: openGguf,
  },
  {
    looksFor: "a llama2.c checkpoint (.bin with seven int32 that fit the file's size)",
    // A PyTorch .bin is a zip archive.
    matchesFile: async (file, bytes) =>
      (file.endsWith(".bin") && (await firstU32(bytes)) !== zipMagic) ||
      (await looksLikeLlama2c(bytes)),
    findInFolder: async (source, files = []) =>
      only(
        source,
        files.filter((file) => file.endsWith(".bin") && !file.startsWith("tok")),
      ),
    open: openLlama2c,
  },
];

export async function openModelFile(source: ModelSource): Promise<ModelFile> {
  return source.main === undefined ? await openFolder(source) : await openFile(source, source.main);
}

async function openFile(source: ModelSource, file: string): Promise<ModelFile> {
  const bytes = await source.open(file);
  let first: Uint8Array;
  try {
    for (const format of formats) {
      if (await format.matchesFile(file, bytes)) return await format.open(source, file);
    }
    first = await bytes.read(0, Math.min(8, bytes.size));
  } finally {
    await bytes.close();
  }
  throw new FormatError("model", { file, field: "format", got: first, expected: lookedFor() });
}

async function openFolder(source: ModelSource): Promise<ModelFile> {
  const files = await source.list();
  for (const format of formats) {
    const file = await format.findInFolder(source, files);
    if (file !== undefined) return await format.open(source, file);
  }
  const got = files === undefined ? "nothing of that at this address" : describeFiles(files);
  throw new FormatError("model", { file: source.name, field: "files", got, expected: lookedFor() });
}

/** Folders of GGUF files often have a config.json too: without safetensors, it does not make a Hugging Face folder. */
async function isHuggingFaceFolder(
  source: ModelSource,
  files: readonly string[] | undefined,
): Promise<boolean> {
  if (!(await source.has("config.json"))) return false;
  if (files) return files.some((file) => file.endsWith(".safetensors"));
  return (await source.has("model.safetensors")) || (await source.has(safetensorsIndex));
}

/** The only candidate; undefined if there is none, an error if the user must choose. */
function only(source: ModelSource, files: readonly string[]): string | undefined {
  if (files.length <= 1) return files[0];
  throw new FormatError("model", {
    file: source.name,
    field: "files",
    got: describeFiles(files),
    expected: "one model; name the file to open",
  });
}

async function firstU32(bytes: ByteSource): Promise<number | undefined> {
  if (bytes.size < 4) return undefined;
  return new DataView((await bytes.read(0, 4)).buffer).getUint32(0, true);
}

function describeFiles(files: readonly string[]): string {
  const shown = files.slice(0, 6).join(", ");
  return files.length > 6 ? `${shown} and ${files.length - 6} more` : shown || "no files";
}

function lookedFor(): string {
  return `one of: ${formats.map((format) => format.looksFor).join("; ")}`;
}
