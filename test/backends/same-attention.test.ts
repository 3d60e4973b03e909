// A token's logits do not depend on the rest of the batch: alone, four prompt tokens in one pass of attention, or
// beside a sequence with the same prefix. The same bits, on WebAssembly and on every target that runs here.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { Batch } from "../../src/graph/batch.ts";
import { nativeHere } from "../support/native.ts";
import { tinyShape } from "../support/tiny-engine.ts";
import { load } from "./tiny-backend.ts";

/** Two sequences whose first block is one: the token at each position from 32 on differs. */
const tables = { a: { blocks: Int32Array.of(2, 0) }, b: { blocks: Int32Array.of(2, 3) } };
type Sequence = keyof typeof tables;

const tokenAt = (sequence: Sequence, position: number): number =>
  (position * 7 + (position >= 32 && sequence === "b" ? 5 : 3)) % tinyShape.vocab;

/** "a0 a1 b2": tokens of a batch. */
const range = (sequence: Sequence, from: number, to: number): string =>
  Array.from({ length: to - from }, (_, i) => `${sequence}${from + i}`).join(" ");

/** The logits of each token, by its name. */
async function logitsOf(
  backend: CpuBackend,
  kvType: string,
  batches: readonly string[],
): Promise<Map<string, Float32Array>> {
  await load(backend, { kvType });
  const seen = new Map<string, Float32Array>();
  const batch = new Batch({ maxTokens: 12, maxOutputs: 12 });
  for (const names of batches.map((text) => text.split(" "))) {
    batch.clear();
    for (const name of names) {
      const [sequence, position] = [name[0] as Sequence, Number(name.slice(1))];
      batch.add(tokenAt(sequence, position), position, tables[sequence], true);
    }
    await backend.run(batch);
    for (const [row, name] of names.entries()) {
      const logits = new Float32Array(tinyShape.vocab);
      await backend.read("logits", row, logits);
      seen.set(name, logits);
    }
  }
  backend.dispose();
  return seen;
}

/** Full fours, fours that another sequence breaks, and fours that only seem to be one sequence. */
const together = [
  ...["a0 a1 a2", range("a", 3, 15), range("a", 15, 27), "a27"],
  ...["a28 a29 a30 a31", "a32 a33 a34 b32", "b33 b34 a35 a36"],
  ...["a37 a38 b35 b36", "a39 b37 b38", "a40 b39 b40 b41", "a41 a42 b42", "b43 a43 a44 a45 a46"],
];

const kinds = [{ name: "wasm", native: undefined }, ...nativeHere];

test.each(
  kinds.flatMap((kind) =>
    ["f32", "f16", "q4_0", "q5_1/iq4_nl"].map((kvType) => ({ ...kind, kvType })),
  ),
)("$name, a cache of $kvType", async ({ name, native, kvType }) => {
  const backend = () =>
    new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: native ?? "a test" });
  const alone = together.flatMap((names) => names.split(" "));
  const used = backend();
  const got = await logitsOf(used, kvType, together);
  expect(used.kernels).toBe(native ? name : "wasm: a test");
  expect(got).toEqual(await logitsOf(backend(), kvType, alone));
});
