// A model of another format as the GGUF file that it would be converted to: its keys, its tensors by type and order of rows, and
// their bytes, converted as they are read. It writes no file, and reads only the requested bytes.

import { bytesFor } from "../../dtypes/dtype.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";
import type { Tokenizer } from "../../tokenizers/tokenizer.ts";
import { factorsTensor, planConversion } from "./convert.ts";
import { asMetadata } from "./entries.ts";
import { convertedRows, type PlannedTensor, rowsTogether } from "./tensors.ts";

export interface AsGguf {
  readonly file: ModelFile;
  /** Notes for the user, as after "lantern convert". */
  readonly notes: readonly string[];
}

export function asGguf(file: ModelFile, tokenizer: Tokenizer): AsGguf {
  const {
    entries,
    tensors: planned,
    ropeFactors,
    notes,
  } = planConversion(file, tokenizer, {
    type: "auto",
    pre: undefined,
  });
  const factors = ropeFactors && factorsTensor(ropeFactors);
  const tensors = new Map<string, TensorInfo>();
  if (factors) {
    const { file: first } = planned[0]!.source; // made, not read: any file of the model
    const { name, dtype, shape, bytes } = factors;
    tensors.set(name, { name, dtype, shape, byteLength: bytes.length, file: first, offset: 0 });
  }
  const byName = new Map(planned.map((tensor) => [tensor.source.name, tensor]));
  for (const { source, dtype } of planned) {
    const elems = source.shape.reduce((a, b) => a * b, 1);
    tensors.set(source.name, { ...source, dtype, byteLength: bytesFor(dtype, elems) });
  }
  const converted: ModelFile = {
    format: "gguf",
    name: file.name,
    metadata: asMetadata(entries),
    tensors,
    tokenizer: { kind: "gguf" },
    totalBytes: file.totalBytes,
    readTensor: async ({ name }, target, byteOffset = 0) => {
      if (name === factors?.name) {
        target.set(factors.bytes.subarray(byteOffset, byteOffset + target.length));
      } else await readConverted(file, byName.get(name)!, target, byteOffset);
    },
    filePartsOf: () => undefined, // the bytes there are others
    close: () => file.close(),
  };
  return { file: converted, notes };
}

async function readConverted(
  file: ModelFile,
  planned: PlannedTensor,
  target: Uint8Array,
  byteOffset: number,
): Promise<void> {
  const { sourceBytes, bytes } = rowsTogether(planned);
  const first = Math.floor(byteOffset / bytes);
  const end = Math.ceil((byteOffset + target.length) / bytes);
  const raw = new Uint8Array((end - first) * sourceBytes);
  await file.readTensor(planned.source, raw, first * sourceBytes);
  const from = byteOffset - first * bytes;
  target.set(convertedRows(planned, raw).subarray(from, from + target.length));
}
