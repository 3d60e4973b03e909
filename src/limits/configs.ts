// Models whose limits can be computed by name, without a file: shapes from their published config.json, one line each.
// test/limits/configs.test.ts checks every line against the number of parameters in its publisher's files.

import type { ModelShape } from "./shape.ts";

export interface NamedShape {
  /** The name that a user types: "qwen1.5-7b". */
  readonly id: string;
  /** For display: "Qwen1.5 7B". */
  readonly name: string;
  readonly shape: ModelShape;
}

interface Family {
  readonly name: string;
  readonly qkvBias: boolean;
  readonly headNorms: boolean;
}

/**
 * Size, vocabulary, layers, embed, feed-forward, heads, KV heads, head dimension; "tied" if the head is the embedding
 * table.
 */
type Row = readonly [
  size: string,
  vocabSize: number,
  layers: number,
  embed: number,
  feedForward: number,
  heads: number,
  kvHeads: number,
  headDim: number,
  tied?: "tied",
];

function family(family: Family, rows: readonly Row[]): NamedShape[] {
  return rows.map(
    ([size, vocabSize, layers, embed, feedForward, heads, kvHeads, headDim, tied]) => ({
      id: `${family.name}-${size}`.toLowerCase().replaceAll(" ", "-"),
      name: `${family.name} ${size}`,
      shape: {
        vocabSize,
        layers,
        embed,
        feedForward,
        heads,
        kvHeads,
        headDim,
        qkvBias: family.qkvBias,
        headNorms: family.headNorms,
        tied: tied === "tied",
      },
    }),
  );
}

const llama = { qkvBias: false, headNorms: false };
const qwen2 = { qkvBias: true, headNorms: false };
const qwen3 = { qkvBias: false, headNorms: true };

export const namedShapes: readonly NamedShape[] = [
  // The 0.5B's file stores head and embedding table separately, so it is not marked as tied.
  ...family({ name: "Qwen1.5", ...qwen2 }, [
    ["0.5B", 151936, 24, 1024, 2816, 16, 16, 64],
    ["1.8B", 151936, 24, 2048, 5504, 16, 16, 128],
    ["4B", 151936, 40, 2560, 6912, 20, 20, 128],
    ["7B", 151936, 32, 4096, 11008, 32, 32, 128],
    ["14B", 152064, 40, 5120, 13696, 40, 40, 128],
    ["32B", 152064, 64, 5120, 27392, 40, 8, 128],
    ["72B", 152064, 80, 8192, 24576, 64, 64, 128],
    ["110B", 152064, 80, 8192, 49152, 64, 8, 128],
  ]),
  ...family({ name: "Qwen2.5", ...qwen2 }, [
    ["0.5B", 151936, 24, 896, 4864, 14, 2, 64, "tied"],
    ["1.5B", 151936, 28, 1536, 8960, 12, 2, 128, "tied"],
    ["3B", 151936, 36, 2048, 11008, 16, 2, 128, "tied"],
    ["7B", 152064, 28, 3584, 18944, 28, 4, 128],
    ["14B", 152064, 48, 5120, 13824, 40, 8, 128],
    ["32B", 152064, 64, 5120, 27648, 40, 8, 128],
    ["72B", 152064, 80, 8192, 29568, 64, 8, 128],
  ]),
  // Here heads are wider than embed / heads.
  ...family({ name: "Qwen3", ...qwen3 }, [
    ["0.6B", 151936, 28, 1024, 3072, 16, 8, 128, "tied"],
    ["1.7B", 151936, 28, 2048, 6144, 16, 8, 128, "tied"],
    ["4B", 151936, 36, 2560, 9728, 32, 8, 128, "tied"],
    ["8B", 151936, 36, 4096, 12288, 32, 8, 128],
    ["14B", 151936, 40, 5120, 17408, 40, 8, 128],
    ["32B", 151936, 64, 5120, 25600, 64, 8, 128],
  ]),
  // Version 1's 7B and 13B have the shapes of version 2.
  ...family({ name: "Llama", ...llama }, [
    ["30B", 32000, 60, 6656, 17920, 52, 52, 128],
    ["65B", 32000, 80, 8192, 22016, 64, 64, 128],
  ]),
  ...family({ name: "Llama 2", ...llama }, [
    ["7B", 32000, 32, 4096, 11008, 32, 32, 128],
    ["13B", 32000, 40, 5120, 13824, 40, 40, 128],
    ["70B", 32000, 80, 8192, 28672, 64, 8, 128],
  ]),
  ...family({ name: "Llama 3", ...llama }, [
    ["8B", 128256, 32, 4096, 14336, 32, 8, 128],
    ["70B", 128256, 80, 8192, 28672, 64, 8, 128],
  ]),
  ...family({ name: "Llama 3.2", ...llama }, [
    ["1B", 128256, 16, 2048, 8192, 32, 8, 64, "tied"],
    ["3B", 128256, 28, 3072, 8192, 24, 8, 128, "tied"],
  ]),
  ...family({ name: "SmolLM2", ...llama }, [
    ["135M", 49152, 30, 576, 1536, 9, 3, 64, "tied"],
    ["360M", 49152, 32, 960, 2560, 15, 5, 64, "tied"],
    ["1.7B", 49152, 24, 2048, 8192, 32, 32, 64, "tied"],
  ]),
  ...family({ name: "Mistral v0.3", ...llama }, [["7B", 32768, 32, 4096, 14336, 32, 8, 128]]),
  ...family({ name: "TinyLlama", ...llama }, [["1.1B", 32000, 22, 2048, 5632, 32, 4, 64]]),
];

/** By id or name, ignoring case and separators: "qwen1.5-7b", "Llama2 7B". */
export function shapeNamed(name: string): NamedShape | undefined {
  const wanted = plain(name);
  return namedShapes.find((named) => plain(named.id) === wanted);
}

function plain(name: string): string {
  return name.toLowerCase().replace(/[\s_-]/g, "");
}
