// The ModelFile that every format's reader returns: its results, and the open files to read tensors from.
//
// Readers do not read tensors: they hand over metadata, a table and open sources. Closing the model closes the
// sources.

import { DisposedError, UsageError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";
import type { ByteSource, FilePart } from "../platform/platform.ts";
import type { ModelFile, TensorInfo, TokenizerData } from "./model-file.ts";

export interface ModelFileParts {
  format: ModelFile["format"];
  name: string;
  metadata: Metadata;
  tensors: ReadonlyMap<string, TensorInfo>;
  tokenizer: TokenizerData;
  /** The open files, by the names in TensorInfo.file; close() closes them. */
  sources: ReadonlyMap<string, ByteSource>;
}

export function openedModelFile(parts: ModelFileParts): ModelFile {
  const { sources, ...described } = parts;
  let closed = false;
  let totalBytes = 0;
  for (const source of sources.values()) totalBytes += source.size;
  return {
    ...described,
    totalBytes,
    async readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset = 0): Promise<void> {
      if (closed) throw new DisposedError(`model file ${parts.name}`);
      // The range must be inside the tensor, not just inside the file: a wrong offset must not read the
      // neighbour.
      if (!(byteOffset >= 0 && byteOffset <= tensor.byteLength - target.byteLength)) {
        throw new UsageError(
          `readTensor: bytes ${byteOffset} to ${byteOffset + target.byteLength} of "${tensor.name}", which has ${tensor.byteLength}`,
        );
      }
      const places = tensor.parts ?? [tensor];
      const partBytes = tensor.byteLength / places.length;
      for (let done = 0; done < target.byteLength; ) {
        const { file, offset } = places[Math.floor((byteOffset + done) / partBytes)]!;
        const inPart = (byteOffset + done) % partBytes;
        const bytes = Math.min(partBytes - inPart, target.byteLength - done);
        const source = sources.get(file);
        if (!source) throw new UsageError(`${parts.name} has no file ${JSON.stringify(file)}`);
        await source.readInto(offset + inPart, target.subarray(done, done + bytes));
        done += bytes;
      }
    },
    filePartsOf(tensor: TensorInfo): FilePart[] | undefined {
      const parts: FilePart[] = [];
      for (const { file, offset } of tensor.parts ?? [tensor]) {
        const descriptor = closed ? undefined : sources.get(file)?.descriptor;
        if (descriptor === undefined) return undefined;
        parts.push({ descriptor, offset });
      }
      return parts;
    },
    async close(): Promise<void> {
      closed = true;
      await closeAll(sources.values());
    },
  };
}

/** Closes every source, even if closing one of them fails. */
export async function closeAll(sources: Iterable<ByteSource>): Promise<void> {
  await Promise.allSettled(Array.from(sources, (source) => source.close()));
}
