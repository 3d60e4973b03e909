// The tiny model as a file (tiny-file.ts) with some tensors of F32 changed in place, or the bytes of any type.

import { openModelFile } from "../../src/formats/open-model-file.ts";
import { currentPlatform } from "../../src/platform/current.ts";
import { type TinyFileOptions, tinyGguf } from "./tiny-file.ts";

type Change = (values: Float32Array, shape: readonly number[]) => void;

/** Pairs of a tensor's name and what happens to its values. `shape` is that of GGUF: columns first. */
export async function changedModel(
  options: TinyFileOptions,
  ...changes: readonly (string | Change)[]
): Promise<File> {
  const file = Uint8Array.from(await tinyGguf(options));
  const tensors = await tensorsOf(file);
  for (let i = 0; i < changes.length; i += 2) {
    const { offset, bytes, shape } = tensors.get(changes[i] as string)!;
    const values = new Float32Array(file.slice(offset, offset + bytes).buffer);
    (changes[i + 1] as Change)(values, shape);
    file.set(new Uint8Array(values.buffer), offset);
  }
  return new File([file], "tiny.gguf");
}

export interface TensorPlace {
  readonly offset: number;
  readonly bytes: number;
  readonly shape: readonly number[];
  readonly dtype: string;
}

/** Where the tensors of a file are. */
export async function tensorsOf(file: Uint8Array): Promise<ReadonlyMap<string, TensorPlace>> {
  const platform = await currentPlatform();
  const spec = platform.describeSource(new File([Uint8Array.from(file)], "tiny.gguf"));
  const opened = await openModelFile(await platform.openModelSource(spec));
  const tensors = new Map<string, TensorPlace>();
  for (const [name, { offset, byteLength, shape, dtype }] of opened.tensors) {
    const columnsFirst = [...shape].reverse();
    tensors.set(name, { offset, bytes: byteLength, shape: columnsFirst, dtype: dtype.name });
  }
  await opened.close();
  return tensors;
}
