// llama2.c's tokenizer.bin: finds it next to a checkpoint, and checks whether bytes are one.
//
//   i32 longest token | for each token: f32 score, i32 length, bytes
//
// tokenizers/from-llama2c.ts makes the tokenizer.

import { FormatError } from "../base/errors.ts";
import type { ModelSource } from "../platform/platform.ts";

/** No real vocabulary has longer tokens; a file with longer ones is not accepted as a tokenizer. */
const longestToken = 1016;

/** Whether the bytes are exactly `vocabSize` tokens, with finite scores. */
export function isTokenizer(bytes: Uint8Array, vocabSize: number): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = bytes.byteLength;
  if (size < 4 + 8 * vocabSize) return false;
  const longest = view.getInt32(0, true);
  let position = 4;
  for (let i = 0; i < vocabSize; i++) {
    if (position + 8 > size) return false;
    const score = view.getFloat32(position, true);
    const length = view.getInt32(position + 4, true);
    if (!Number.isFinite(score) || length < 0 || length > longest || length > longestToken)
      return false;
    position += 8 + length;
  }
  return position === size;
}

/** The tokenizer of a checkpoint: tokenizer.bin, tok<vocabulary>.bin, or another tok*.bin of the right size. */
export async function findTokenizer(
  source: ModelSource,
  checkpoint: string,
  vocabSize: number,
): Promise<Uint8Array> {
  const usual = ["tokenizer.bin", `tok${vocabSize}.bin`];
  const listed = (await source.list())?.filter((file) => /^tok.*\.bin$/.test(file)) ?? [];
  const tried: string[] = [];
  for (const file of new Set([...usual, ...listed])) {
    if (file === checkpoint || !(await source.has(file))) continue;
    tried.push(file);
    const bytes = await source.open(file);
    try {
      if (bytes.size > 4 + vocabSize * (8 + longestToken)) continue;
      const tokenizer = await bytes.read(0, bytes.size);
      if (isTokenizer(tokenizer, vocabSize)) return tokenizer;
    } finally {
      await bytes.close();
    }
  }
  throw new FormatError("llama2c", {
    file: checkpoint,
    field: "tokenizer",
    got: tried.length === 0 ? "no such file" : `${tried.join(", ")} with another number of tokens`,
    expected: `${usual.join(" or ")} beside it, with ${vocabSize} tokens`,
  });
}
