// The small model with ReLU (relu-file.ts) as a file of PowerInfer: written here as its convert.py does it. `down` is transposed before
// it gets its type, predictors lie beside the weights, no key names the activation, and the first four bytes are "PWRI".

import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { Random } from "./random.ts";
import { reluFile, reluShape } from "./relu-file.ts";
import { tinyGguf } from "./tiny-file.ts";

export interface PowerInferOptions {
  /** Of all matrices of layers. */
  readonly type: string;
  readonly threshold?: number;
  readonly architecture?: string;
  readonly magic?: string;
}

const RANK = 32;

export async function powerInferGguf(options: PowerInferOptions): Promise<Uint8Array> {
  const { model, more } = reluFile({ type: "f32" });
  const dtype = dtypeByName(options.type)!;
  const random = new Random(3);
  const tensors = new Map<string, Weight>();
  const bytes = new Map<string, Uint8Array>();
  const add = (name: string, shape: readonly number[], values: Float32Array) => {
    const type = shape.length > 1 && name.startsWith("blk.") ? dtype : dtypeByName("f32")!;
    const own = new Uint8Array(bytesFor(type, values.length));
    type.quantize!(values, 0, own, 0, values.length / type.blockElems);
    tensors.set(name, { name, shape, dtype: type });
    bytes.set(name, own);
  };
  for (const { name, shape } of model!.tensors.values()) {
    const values = new Float32Array(model!.bytes.get(name)!.slice().buffer);
    if (!name.endsWith("ffn_down.weight")) {
      add(name, shape, values);
      continue;
    }
    const [rows, cols] = shape as [number, number];
    const turned = values.map((_, i) => values[(i % rows) * cols + Math.floor(i / rows)]!);
    add(name.replace("ffn_down", "ffn_down_t"), [cols, rows], turned);
  }
  const normal = (count: number) => Float32Array.from({ length: count }, () => random.normal());
  const { embed, feedForward, layers } = reluShape;
  for (let layer = 0; layer < layers; layer++) {
    add(`blk.${layer}.fc1.weight`, [RANK, embed], normal(RANK * embed));
    add(`blk.${layer}.fc2.weight`, [feedForward, RANK], normal(feedForward * RANK));
  }
  const kept = more!.filter(([key]) => key !== "llama.hidden_activation");
  const { threshold, architecture } = options;
  const file = await tinyGguf({
    model: { ...model!, tensors, bytes },
    more: [
      ...kept,
      ...(threshold === undefined
        ? []
        : [["powerinfer.sparse_threshold", { type: "f32", value: threshold }] as (typeof kept)[0]]),
      ...(architecture === undefined
        ? []
        : [["general.architecture", { type: "string", value: architecture }] as (typeof kept)[0]]),
    ],
  });
  file.set(new TextEncoder().encode(options.magic ?? "PWRI"));
  return file;
}
