// Opens a GGUF model: one file, or all parts of a split one (name-00001-of-0000N.gguf).
//
// A split model is named by any of its parts. The model's metadata is that of the first part. Every part must state
// the same number of parts and its own index, and together they must hold the stated number of tensors.

import { FormatError } from "../../base/errors.ts";
import type { ByteSource, ModelSource } from "../../platform/platform.ts";
import type { ModelFile, TensorInfo } from "../model-file.ts";
import { closeAll, openedModelFile } from "../opened-model-file.ts";
import { type GgufHeader, powerInferMagic, readGgufHeader } from "./header.ts";
import { asUsualModel } from "./powerinfer.ts";

const splitCountKey = "split.count";
const splitNumberKey = "split.no";
const splitTensorsKey = "split.tensors.count";

const splitName = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;

export async function openGguf(source: ModelSource, name: string): Promise<ModelFile> {
  const opened = new Map<string, ByteSource>();
  try {
    const headers = await openParts(source, name, opened);
    const tensors = collectTensors(headers);
    checkTensorCount(headers, tensors);
    const file = openedModelFile({
      format: "gguf",
      name: headers.keys().next().value!,
      metadata: headers.values().next().value!.metadata,
      tensors,
      tokenizer: { kind: "gguf" },
      sources: opened,
    });
    const { magic } = headers.values().next().value!;
    return magic === powerInferMagic ? asUsualModel(file) : file;
  } catch (error) {
    await closeAll(opened.values());
    throw error;
  }
}

/** Headers by file name, in the order of the parts; the files stay open in `opened`. */
async function openParts(
  source: ModelSource,
  file: string,
  opened: Map<string, ByteSource>,
): Promise<Map<string, GgufHeader>> {
  const headers = new Map<string, GgufHeader>();
  const openPart = async (part: string): Promise<GgufHeader> => {
    const bytes = await source.open(part);
    opened.set(part, bytes);
    return await readGgufHeader(bytes, part);
  };
  const named = await openPart(file);
  const count = named.metadata.number(splitCountKey) ?? 1;
  if (count <= 1) return headers.set(file, named);

  const parts = partNames(file, count);
  for (const [index, part] of parts.entries()) {
    if (part !== file && !(await source.has(part))) {
      throw splitError(file, `part ${index + 1} of ${count}`, "no such file", `${part} beside it`);
    }
    const header = part === file ? named : await openPart(part);
    checkPart(part, header, index, count);
    headers.set(part, header);
  }
  return headers;
}

/** The names of all parts, from the name of one of them. */
function partNames(file: string, count: number): string[] {
  const match = splitName.exec(file);
  if (!match) {
    throw splitError(
      file,
      "file name",
      file,
      `NAME-00001-of-${fiveDigits(count)}.gguf: it is part of a split model`,
    );
  }
  if (Number(match[3]) !== count) {
    throw splitError(file, splitCountKey, count, `${Number(match[3])}, as in the file's name`);
  }
  return Array.from(
    { length: count },
    (_, i) => `${match[1]}-${fiveDigits(i + 1)}-of-${match[3]}.gguf`,
  );
}

function checkPart(part: string, header: GgufHeader, index: number, count: number): void {
  const partCount = header.metadata.number(splitCountKey);
  if (partCount !== count) throw splitError(part, splitCountKey, partCount, String(count));
  const number = header.metadata.number(splitNumberKey);
  if (number !== index)
    throw splitError(part, splitNumberKey, number, `${index}, by its file name`);
}

function collectTensors(headers: ReadonlyMap<string, GgufHeader>): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const [file, header] of headers) {
    for (const tensor of header.tensors) {
      const other = tensors.get(tensor.name);
      if (other) {
        throw splitError(
          file,
          `tensor ${JSON.stringify(tensor.name)}`,
          `also in ${other.file}`,
          "one place",
        );
      }
      tensors.set(tensor.name, tensor);
    }
  }
  return tensors;
}

function checkTensorCount(
  headers: ReadonlyMap<string, GgufHeader>,
  tensors: ReadonlyMap<string, TensorInfo>,
): void {
  if (headers.size === 1) return;
  for (const [file, header] of headers) {
    const promised = header.metadata.number(splitTensorsKey) ?? tensors.size;
    if (promised === tensors.size) continue;
    throw splitError(file, splitTensorsKey, promised, `${tensors.size}, the tensors of all parts`);
  }
}

function fiveDigits(value: number): string {
  return String(value).padStart(5, "0");
}

function splitError(file: string, field: string, got: unknown, expected: string): FormatError {
  return new FormatError("gguf", { file, field, got, expected });
}
