// A tiny model with a layer that predicts a further token: random, or right by construction.

import { dtypeByName } from "../../src/dtypes/table.ts";
import { archNamed } from "../../src/models/table.ts";
import { Random } from "./random.ts";
import {
  plainMetadata,
  type TinyModel,
  tinyMetadata,
  tinyModel,
  tinyShape,
} from "./tiny-engine.ts";

/**
 * `isRight`: layers add nothing, so that the next token depends on the last alone, and the layer projects its embedding to itself: it
 * then proposes what the model says.
 */
export function nextModel(architecture: string, isRight: boolean, vocab?: number): TinyModel {
  const base = tinyModel({ architecture, ...(vocab !== undefined && { vocab }) });
  const metadata = plainMetadata({
    ...tinyMetadata(architecture),
    [`${architecture}.block_count`]: tinyShape.layers + 1,
    [`${architecture}.nextn_predict_layers`]: 1,
  });
  const arch = archNamed(architecture);
  const config = arch.config({ metadata, tensors: base.tensors });
  const tensors = new Map(base.tensors);
  const bytes = new Map(base.bytes);
  const random = new Random(7);
  const f32 = dtypeByName("f32")!;
  const specs = arch.next!.weights(config);
  const alternatives = new Set(specs.map(({ unless }) => unless));
  for (const { name, shape, optional } of specs) {
    const isOwn = name !== "output.weight" && optional && name.includes("nextn");
    if (tensors.has(name) || isOwn || alternatives.has(name)) continue;
    const isNorm = name.includes("norm");
    const count = shape.reduce((product, dim) => product * dim, 1);
    const values = Float32Array.from({ length: count }, () =>
      isNorm ? 1 : (random.unit() - 0.5) * (name === "output.weight" ? 2 : 0.5),
    );
    tensors.set(name, { name, shape, dtype: f32 });
    bytes.set(name, new Uint8Array(values.buffer));
  }
  if (isRight) {
    for (const [name, values] of bytes) {
      if (/attn_output|ffn_down|ssm_out/.test(name)) bytes.set(name, new Uint8Array(values.length));
    }
    const { embed } = tinyShape;
    const projection = new Float32Array(embed * 2 * embed);
    for (let i = 0; i < embed; i++) projection[i * 2 * embed + i] = 1;
    bytes.set(`blk.${tinyShape.layers}.nextn.eh_proj.weight`, new Uint8Array(projection.buffer));
  }
  return { metadata, tensors, bytes };
}
