// Files of PowerInfer are read as the models that they were made from.

import { expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { buildModel } from "../../src/models/build.ts";
import { readPredictors } from "../../src/models/predictor.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { type PowerInferOptions, powerInferGguf } from "../support/powerinfer-file.ts";
import { reluFile, reluShape } from "../support/relu-file.ts";
import { tinyGguf } from "../support/tiny-file.ts";

async function opened(bytes: Uint8Array): Promise<ModelFile> {
  const file = new File([new Uint8Array(bytes)], "model.gguf");
  return await openModelFile(await nodePlatform.openModelSource(nodePlatform.describeSource(file)));
}

const powerInfer = async (options: PowerInferOptions) => opened(await powerInferGguf(options));

const down = "blk.1.ffn_down.weight";
const { embed, feedForward } = reluShape;

async function floatsOf(file: ModelFile, name: string): Promise<Float32Array> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  // In two pieces.
  const half = 34 * Math.floor(bytes.length / 68);
  await file.readTensor(tensor, bytes.subarray(0, half));
  await file.readTensor(tensor, bytes.subarray(half), half);
  const values = new Float32Array(embed * feedForward);
  tensor.dtype.dequantize(bytes, 0, values, 0, values.length / tensor.dtype.blockElems);
  return values;
}

test.each(["f32", "f16"])("down of %s is transposed, every bit of it", async (type) => {
  const file = await powerInfer({ type });
  const { dtype, shape } = file.tensors.get(down)!;
  expect([dtype.name, shape]).toEqual([type, [embed, feedForward]]);
  expect(file.tensors.has("blk.1.ffn_down_t.weight")).toBe(false);
  const usual = await opened(await tinyGguf(reluFile({ type })));
  expect(await floatsOf(file, down)).toEqual(await floatsOf(usual, down));
  const graphs = [file, usual].map((each) => buildModel(each).graph);
  expect(graphs[0]!.nodes.map(({ op, name }) => `${op} ${name}`)).toEqual(
    graphs[1]!.nodes.map(({ op, name }) => `${op} ${name}`),
  );
});

test("a quantized down is held in eight bits, nearly as it was", async () => {
  const file = await powerInfer({ type: "q4_0" });
  expect(file.tensors.get(down)!.dtype.name).toBe("q8_0");
  expect(file.filePartsOf(file.tensors.get(down)!)).toBe(undefined);
  const [held, exact] = [
    await floatsOf(file, down),
    await floatsOf(await powerInfer({ type: "f32" }), down),
  ];
  const q4 = dtypeByName("q4_0")!;
  const turned = exact.map((_, i) => exact[(i % embed) * feedForward + Math.floor(i / embed)]!);
  const bytes = new Uint8Array((turned.length / 32) * q4.blockBytes);
  q4.quantize!(turned, 0, bytes, 0, turned.length / 32);
  q4.dequantize(bytes, 0, turned, 0, turned.length / 32);
  const most = exact.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  for (let i = 0; i < held.length; i += 97) {
    const stored = turned[(i % feedForward) * embed + Math.floor(i / feedForward)]!;
    expect(Math.abs(held[i]! - stored)).toBeLessThan(most / 100);
  }
});

test("its predictors read what is before the norm, and have its threshold", async () => {
  const file = await powerInfer({ type: "q8_0", threshold: 0.25 });
  const { graph } = buildModel(file);
  const found = readPredictors(file, file, graph, String);
  expect([...found.keys()]).toEqual(["blk.0.ffn_gate.weight", "blk.1.ffn_gate.weight"]);
  const { fc1, bias, reads } = found.get("blk.0.ffn_gate.weight")!;
  expect([fc1.name, reads]).toEqual(["blk.0.fc1.weight", "residual"]);
  expect(bias!.source).toEqual({ values: new Float32Array(feedForward).fill(-0.25) });
});

test("other architectures and other magics are refused", async () => {
  await expect(powerInfer({ type: "f32", architecture: "falcon" })).rejects.toThrow(
    /general.architecture.*falcon.*PowerInfer/s,
  );
  await expect(powerInfer({ type: "f32", magic: "PWRJ" })).rejects.toThrow(/magic/);
});
