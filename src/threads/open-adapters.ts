// Opens the files of adapters beside that of their model, so that whoever reads the model's tensors reads theirs as well.

import { type AdapterPart, adapterTensor } from "../engine/engine-parts.ts";
import type { OpenRequest } from "../engine/protocol.ts";
import { weightsFingerprint } from "../formats/fingerprint.ts";
import type { ModelFile, TensorInfo } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import { currentPlatform } from "../platform/current.ts";

export interface OpenedAdapter {
  readonly file: ModelFile;
  readonly part: AdapterPart;
}

/** Samples of an adapter that name its weights. */
const SAMPLES = 100;

/** All of them, or none: after an error, none stays open. */
export async function openAdapterFiles({ adapters = [] }: OpenRequest): Promise<OpenedAdapter[]> {
  const platform = await currentPlatform();
  const opened: OpenedAdapter[] = [];
  try {
    for (const { spec, path, scale } of adapters) {
      const file = await openModelFile(await platform.openModelSource(spec));
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
