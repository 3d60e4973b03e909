// Opens the files of adapters beside their model's file, so that a reader of the model's tensors reads theirs as well.

import { FormatError } from "../base/errors.ts";
import { type AdapterPart, adapterTensor } from "../engine/engine-parts.ts";
import type { OpenRequest } from "../engine/protocol.ts";
import { weightsFingerprint } from "../formats/fingerprint.ts";
import { openGguf } from "../formats/gguf/open-gguf.ts";
import type { ModelFile, TensorInfo } from "../formats/model-file.ts";
import { currentPlatform } from "../platform/current.ts";
import type { ModelSource } from "../platform/platform.ts";

export interface OpenedAdapter {
  readonly file: ModelFile;
  readonly part: AdapterPart;
}

/** Samples of an adapter that name its weights. */
const SAMPLES = 100;

/** Opens all files, or none: after an error, none stays open. */
export async function openAdapterFiles({ adapters = [] }: OpenRequest): Promise<OpenedAdapter[]> {
  const platform = await currentPlatform();
  const opened: OpenedAdapter[] = [];
  try {
    for (const { spec, path, scale } of adapters) {
      const file = await openAdapterFile(await platform.openModelSource(spec));
      const { name, metadata, tensors } = file;
      const part = { name, path, metadata, tensors, scale, fingerprint: "" };
      opened.push({ file, part });
      Object.assign(part, { fingerprint: await weightsFingerprint(file, SAMPLES) });
    }
    return opened;
  } catch (error) {
    for (const { file } of opened) await file.close();
    throw error;
  }
}

async function openAdapterFile(source: ModelSource): Promise<ModelFile> {
  if (source.main !== undefined) return await openGguf(source, source.main);
  throw new FormatError("adapter", {
    ...{ file: source.name, field: "path", got: "a folder" },
    expected:
      "a GGUF file with an adapter (llama.cpp's convert_lora_to_gguf.py makes one of a PEFT folder)",
  });
}

/** The model's file with the tensors of its adapters, which are read from theirs. */
export function withAdapters(model: ModelFile, adapters: readonly OpenedAdapter[]): ModelFile {
  return withTensorsOf(
    model,
    adapters.map(({ file }, i) => ({ file, nameOf: (tensor: string) => adapterTensor(i, tensor) })),
  );
}

/** The model's file with the tensors of others, under other names; they are read from theirs. */
export function withTensorsOf(
  model: ModelFile,
  others: readonly { readonly file: ModelFile; nameOf(tensor: string): string }[],
): ModelFile {
  if (others.length === 0) return model;
  const tensors = new Map(model.tensors);
  const owners = new Map<string, { file: ModelFile; own: TensorInfo }>();
  for (const { file, nameOf } of others) {
    for (const own of file.tensors.values()) {
      const name = nameOf(own.name);
      tensors.set(name, { ...own, name });
      owners.set(name, { file, own });
    }
  }
  return {
    format: model.format,
    name: model.name,
    metadata: model.metadata,
    tensors,
    tokenizer: model.tokenizer,
    totalBytes: model.totalBytes,
    readTensor: (tensor, target, byteOffset) => {
      const owner = owners.get(tensor.name);
      return owner
        ? owner.file.readTensor(owner.own, target, byteOffset)
        : model.readTensor(tensor, target, byteOffset);
    },
    filePartsOf: (tensor) => {
      const owner = owners.get(tensor.name);
      return owner ? owner.file.filePartsOf(owner.own) : model.filePartsOf(tensor);
    },
    close: () => model.close(),
  };
}
