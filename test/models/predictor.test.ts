// Files of predictors (src/models/predictor.ts): those that do not fit a model are refused with all that is wrong.

import { beforeAll, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { type GgufTensor, type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { buildModel } from "../../src/models/build.ts";
import { readPredictors } from "../../src/models/predictor.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { reluFile, reluShape } from "../support/relu-file.ts";
import { tinyGguf } from "../support/tiny-file.ts";

let model: ModelFile;

beforeAll(async () => {
  model = await opened(await tinyGguf(reluFile()), "relu.gguf");
});

async function opened(bytes: Uint8Array, name: string): Promise<ModelFile> {
  const file = new File([new Uint8Array(bytes)], name);
  return await openModelFile(await nodePlatform.openModelSource(nodePlatform.describeSource(file)));
}

const f32 = dtypeByName("f32")!;
const { embed, feedForward } = reluShape;
const string = (value: string): GgufValue => ({ type: "string", value });
const number = (value: number): GgufValue => ({ type: "f32", value });
const usual: Record<string, GgufValue> = {
  "general.type": string("predictor"),
  "general.architecture": string("llama"),
};
const shapes = { fc1: [32, embed], fc2: [feedForward, 32], bias: [feedForward] };

async function predictorFile(
  tensors: Record<string, readonly number[]>,
  more: Record<string, GgufValue> = {},
  cut = 0,
): Promise<ModelFile> {
  const parts: Uint8Array[] = [];
  await writeGguf(
    { write: async (part) => void parts.push(part.slice()) },
    Object.entries({ ...usual, ...more }),
    Object.entries(tensors).map(([name, shape]): GgufTensor => {
      const bytes = new Uint8Array(4 * shape.reduce((a, b) => a * b, 1));
      return { name, dtype: f32, shape, data: () => [bytes] };
    }),
  );
  const whole = Buffer.concat(parts);
  return await opened(whole.subarray(0, whole.length - cut), "predictors.gguf");
}

const read = (file: ModelFile) =>
  readPredictors(file, model, buildModel(model).graph, (tensor) => `predictor.${tensor}`);

const good = { "blk.0.fc1.weight": shapes.fc1, "blk.0.fc2.weight": shapes.fc2 };

test.each([
  ["no fc2", { "blk.0.fc1.weight": shapes.fc1 }, {}, /missing: blk.0.fc2.weight/],
  ["other inputs", { ...good, "blk.0.fc1.weight": [32, 64] }, {}, /are \[32, 64\] and/],
  ["another rank", { ...good, "blk.0.fc2.weight": [feedForward, 64] }, {}, /expected \[rank, /],
  ["a layer too many", { ...good, "blk.7.fc1.weight": shapes.fc1 }, {}, /of no layer with a ReLU/],
  ["another tensor", { ...good, "blk.0.fc3.weight": [2] }, {}, /unexpected: blk.0.fc3.weight/],
  ["a short bias", { ...good, "blk.0.fc2.bias": [3] }, {}, /fc2.bias is f32 \[3\]/],
  [
    "a bias and a threshold",
    { ...good, "blk.0.fc2.bias": shapes.bias },
    { "predictor.threshold": number(1) },
    /expected one of them/,
  ],
  [
    "a threshold that is no number",
    good,
    { "predictor.threshold": number(Number.NaN) },
    /predictor.threshold: got NaN, expected a finite number/,
  ],
  [
    "another architecture",
    good,
    { "general.architecture": string("qwen2") },
    /got "qwen2", expected "llama"/,
  ],
  [
    "an adapter",
    good,
    { "general.type": string("adapter") },
    /got "adapter", expected "predictor"/,
  ],
] as const)("%s is refused", async (_about, tensors, more, message) => {
  const file = await predictorFile(tensors, more);
  expect(() => read(file)).toThrow(message);
});

test("a file that ends early is refused when it is opened", async () => {
  await expect(predictorFile(good, {}, 200)).rejects.toThrow(/gguf/);
});

test("predictors of some layers are enough, and a threshold is added to their scores", async () => {
  const found = read(await predictorFile(good, { "predictor.threshold": number(0.5) }));
  expect([...found.keys()]).toEqual(["blk.0.ffn_gate.weight"]);
  const { fc1, bias, reads } = found.get("blk.0.ffn_gate.weight")!;
  expect(fc1.name).toBe("predictor.blk.0.fc1.weight");
  expect(reads).toBe("norm");
  expect(bias!.source).toEqual({ values: new Float32Array(feedForward).fill(-0.5) });
});

test("a model without ReLU has no use for them, and a file of them is no model", async () => {
  const file = await predictorFile(good);
  const silu = await opened(await tinyGguf(), "silu.gguf");
  expect(() => readPredictors(file, silu, buildModel(silu).graph, String)).toThrow(
    /no feed-forward network of this model has a ReLU/,
  );
  expect(() => buildModel(file)).toThrow(/has predictors of neurons .* is not a model/);
});
