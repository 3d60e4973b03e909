// A tensor type, an architecture and a backend that Lantern does not know, and a model file made of them: what
// registration.test.ts adds from outside. Each is what its one file would hold; nothing here reaches into core.
//
// All numbers are small integers times powers of two, so that every result is exact, whatever order sums are taken in.

import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { ModelError } from "../../src/base/errors.ts";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { f32 } from "../../src/dtypes/f32.ts";
import { type GgufTensor, type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import type { Batch } from "../../src/graph/batch.ts";
import type { Arch, ModelConfig } from "../../src/models/arch.ts";

/** Four signed bytes times a power of two: exponent + 128 u8 | 4 x i8. */
export const fakeDType: DType = {
  name: "test_p4",
  ggufId: 7001,
  blockElems: 4,
  blockBytes: 5,
  activation: "f32",
  block: {
    kind: "quants",
    scale: { format: "e8m0_half", pieces: [{ bits: 8, at: 0 }] },
    quants: { per: 1, pieces: [{ bits: 8, at: 8, strides: [[4, 8]] }], isSigned: true },
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    const signed = (at: number) => (src[at]! << 24) >> 24;
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + 5 * block;
      const scale = 2 ** (src[from]! - 128);
      for (let i = 0; i < 4; i++) dst[dstOffset + 4 * block + i] = signed(from + 1 + i) * scale;
    }
  },
};

/** No attention and no norms: x + down(relu(up(x))) / 2, then the output matrix. */
export const fakeArch: Arch = {
  names: ["testnet"],
  about: "a test",

  config({ metadata, tensors }): ModelConfig {
    const size = (key: string) => {
      const value = metadata.number(`testnet.${key}`);
      if (value === undefined) throw new ModelError(`model: testnet.${key} is missing`);
      return value;
    };
    const embed = size("width");
    return {
      architecture: "testnet",
      trainedContext: 64,
      vocabSize: tensors.get("token_embd.weight")!.shape[0]!,
      layers: 1,
      embed,
      feedForward: size("hidden"),
      heads: 1,
      kvHeads: 1,
      headDim: embed,
      normEps: 1e-5,
      fusedQkv: false,
      rope: { layout: "half", dims: 0, frequencies: new Float32Array(0), magnitude: 1 },
    };
  },

  weights: (c) => [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "up.weight", shape: [c.feedForward, c.embed] },
    { name: "down.weight", shape: [c.embed, c.feedForward] },
    { name: "output.weight", shape: [c.vocabSize, c.embed] },
  ],

  forward(g, _, w) {
    const x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const up = g.matmul(x, w.get("up.weight"), "up"); // [tokens, feedForward]
    const hidden = g.activate(up, "relu", "hidden"); // [tokens, feedForward]
    const down = g.matmul(hidden, w.get("down.weight"), "down"); // [tokens, embed]
    const y = g.add(x, g.scale(down, 0.5, "half"), "residual"); // [tokens, embed]
    const last = g.select(y, "selected"); // [outputs, embed]
    return { hidden: last, logits: g.logits(last, w.get("output.weight"), "logits") }; // [logits, vocab]
  },
};

/** The reference, which is right, and a count of its batches, to see that it was this one that ran. */
export class CountingBackend extends ReferenceBackend {
  batches = 0;

  override run(batch: Batch): void {
    this.batches++;
    super.run(batch);
  }
}

export const sizes = { vocab: 6, width: 8, hidden: 12 } as const;

/** A matrix of the fake model: its exponent and its levels, row by row. */
interface Matrix {
  readonly rows: number;
  readonly cols: number;
  readonly exponent: number;
  readonly levels: Int8Array;
}

function matrix(rows: number, cols: number, exponent: number, seed: number): Matrix {
  let state = seed;
  const levels = Int8Array.from({ length: rows * cols }, () => {
    state = (state * 75 + 74) % 65537;
    return (state % 15) - 7;
  });
  return { rows, cols, exponent, levels };
}

const matrices = {
  "token_embd.weight": matrix(sizes.vocab, sizes.width, -2, 1),
  "up.weight": matrix(sizes.hidden, sizes.width, -1, 2),
  "down.weight": matrix(sizes.width, sizes.hidden, -3, 3),
  "output.weight": matrix(sizes.vocab, sizes.width, 0, 4),
} as const;

/** A GGUF with the fake architecture's name, all matrices but the first in the fake type. */
export async function fakeModelFile(): Promise<File> {
  const text = (value: string): GgufValue => ({ type: "string", value });
  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const entries: [string, GgufValue][] = [
    ["general.architecture", text("testnet")],
    ["testnet.width", u32(sizes.width)],
    ["testnet.hidden", u32(sizes.hidden)],
  ];
  const tensors = Object.entries(matrices).map(([name, values]): GgufTensor => {
    const dtype = name === "token_embd.weight" ? f32 : fakeDType;
    const data = dtype === f32 ? floatsOf(values) : blocksOf(values);
    return { name, dtype, shape: [values.rows, values.cols], data: () => [data] };
  });
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  await writeGguf({ write: async (bytes) => void pieces.push(bytes.slice()) }, entries, tensors);
  return new File(pieces, "fake.gguf");
}

/** The logits of one token by plain arithmetic on the same levels; no token depends on another. */
export function fakeLogits(token: number): number[] {
  const times = (name: keyof typeof matrices, x: readonly number[]): number[] => {
    const { rows, cols, exponent, levels } = matrices[name];
    return Array.from({ length: rows }, (_, row) =>
      x.reduce((sum, value, i) => sum + value * levels[row * cols + i]! * 2 ** exponent, 0),
    );
  };
  const { cols, exponent, levels } = matrices["token_embd.weight"];
  const x = Array.from(levels.subarray(token * cols, (token + 1) * cols), (q) => q * 2 ** exponent);
  const hidden = times("up.weight", x).map((value) => Math.max(0, value));
  const down = times("down.weight", hidden);
  return times(
    "output.weight",
    x.map((value, i) => value + down[i]! / 2),
  );
}

function blocksOf({ exponent, levels }: Matrix): Uint8Array {
  const bytes = new Uint8Array(bytesFor(fakeDType, levels.length));
  for (let block = 0; block < levels.length / 4; block++) {
    bytes[5 * block] = exponent + 128;
    for (let i = 0; i < 4; i++) bytes[5 * block + 1 + i] = levels[4 * block + i]!;
  }
  return bytes;
}

function floatsOf({ exponent, levels }: Matrix): Uint8Array {
  return new Uint8Array(Float32Array.from(levels, (q) => q * 2 ** exponent).buffer);
}
