// Files of a Hugging Face folder, in memory.

/** Tensors of one type, but for those that have their own. */
export function safetensorsOf(
  tensors: readonly { name: string; shape: number[]; bytes: Uint8Array; dtype?: string }[],
  dtype: string,
): Uint8Array<ArrayBuffer> {
  const header: Record<string, object> = {};
  let end = 0;
  for (const { name, shape, bytes, dtype: own = dtype } of tensors) {
    header[name] = { dtype: own, shape, data_offsets: [end, end + bytes.byteLength] };
    end += bytes.byteLength;
  }
  const json = jsonFile(header);
  const file = new Uint8Array(8 + json.byteLength + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.byteLength), true);
  file.set(json, 8);
  let at = 8 + json.byteLength;
  for (const { bytes } of tensors) {
    file.set(bytes, at);
    at += bytes.byteLength;
  }
  return file;
}

export function jsonFile(value: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(value));
}
