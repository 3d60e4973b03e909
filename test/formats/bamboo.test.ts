// Bamboo's folder (model_type "bamboo"): Mistral's shape with a ReLU on gate and up. Held against a forward pass that is written here
// from what its publisher's modelling code computes (RMS norm, rotary halves, grouped queries, down(relu(gate) * relu(up))), in
// 64-bit floats and with nothing of Lantern's.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { backendByName } from "../../src/backends/table.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { tokenizerOf } from "../../src/load/compose.ts";
import { convertInMemory } from "../tools/conversion.ts";
import { asFiles, type Files, tinyFolder } from "../tools/tiny-folder.ts";
import { memorySource } from "./support.ts";

const size = { hidden: 64, heads: 4, kvHeads: 2, headDim: 16, feedForward: 96, layers: 2 };
const prompt = [1, 40, 77, 5, 120, 33, 200, 11, 90, 60];

function folder(config: Record<string, unknown> = {}): Files {
  const named = { model_type: "bamboo", architectures: ["BambooForCausalLM"], hidden_act: "relu" };
  return tinyFolder({
    modelType: "mistral",
    config: { ...named, sliding_window: null, ...config },
  });
}

/** The tensors of a folder, read by its format's own rules. */
function tensorsOf(files: Files): Map<string, Float32Array> {
  const bytes = files["model.safetensors"]!;
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))) as Record<
    string,
    { data_offsets: [number, number] }
  >;
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          data_offsets: [from, to],
        },
      ]) => [name, new Float32Array(bytes.slice(8 + length + from, 8 + length + to).buffer)],
    ),
  );
}

type Rows = number[][];

/** x * weight^T */
function linear(x: Rows, weight: Float32Array): Rows {
  const cols = x[0]!.length;
  return x.map((row) =>
    Array.from({ length: weight.length / cols }, (_, out) =>
      row.reduce((sum, value, i) => sum + value * weight[out * cols + i]!, 0),
    ),
  );
}

function rmsNorm(x: Rows, weight: Float32Array): Rows {
  return x.map((row) => {
    const mean = row.reduce((sum, value) => sum + value * value, 0) / row.length;
    return row.map((value, i) => (value / Math.sqrt(mean + 1e-5)) * weight[i]!);
  });
}

/** Pairs are half a head apart. */
function rotate(x: Rows): Rows {
  const half = size.headDim / 2;
  return x.map((row, position) =>
    row.map((value, i) => {
      const at = i % size.headDim;
      const angle = position * 10000 ** (-(at % half) / half);
      const other = at < half ? -row[i + half]! : row[i - half]!;
      return value * Math.cos(angle) + other * Math.sin(angle);
    }),
  );
}

function attend(q: Rows, k: Rows, v: Rows): Rows {
  const { heads, kvHeads, headDim } = size;
  return q.map((row, position) => {
    const out: number[] = [];
    for (let head = 0; head < heads; head++) {
      const own = row.slice(head * headDim, (head + 1) * headDim);
      const shared = Math.floor(head / (heads / kvHeads)) * headDim;
      const scores = k
        .slice(0, position + 1)
        .map(
          (key) =>
            own.reduce((sum, value, i) => sum + value * key[shared + i]!, 0) / Math.sqrt(headDim),
        );
      const most = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - most));
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      for (let i = 0; i < headDim; i++) {
        out.push(
          weights.reduce((sum, weight, at) => sum + (weight / total) * v[at]![shared + i]!, 0),
        );
      }
    }
    return out;
  });
}

function forward(tensors: ReadonlyMap<string, Float32Array>, act: (up: number) => number): Rows {
  const get = (name: string) => tensors.get(name)!;
  const table = get("model.embed_tokens.weight");
  let x: Rows = prompt.map((id) => [...table.subarray(id * size.hidden, (id + 1) * size.hidden)]);
  const add = (y: Rows): void => {
    x = x.map((row, i) => row.map((value, j) => value + y[i]![j]!));
  };
  for (let i = 0; i < size.layers; i++) {
    const own = (name: string) => get(`model.layers.${i}.${name}.weight`);
    const a = rmsNorm(x, own("input_layernorm"));
    const [q, k, v] = ["q", "k", "v"].map((one) => linear(a, own(`self_attn.${one}_proj`))) as [
      Rows,
      Rows,
      Rows,
    ];
    add(linear(attend(rotate(q), rotate(k), v), own("self_attn.o_proj")));
    const f = rmsNorm(x, own("post_attention_layernorm"));
    const [gate, up] = ["gate", "up"].map((one) => linear(f, own(`mlp.${one}_proj`))) as [
      Rows,
      Rows,
    ];
    const inner = gate.map((row, at) =>
      row.map((value, j) => Math.max(value, 0) * act(up[at]![j]!)),
    );
    add(linear(inner, own("mlp.down_proj")));
  }
  return linear(rmsNorm(x, get("model.norm.weight")), get("lm_head.weight"));
}

async function logitsOf(file: ModelFile, backend: Backend): Promise<Map<number, number>[]> {
  const engine = await Engine.load(
    {
      ...{ name: file.name, format: file.format, metadata: file.metadata, tensors: file.tensors },
      readTensor: (name, target, offset) =>
        file.readTensor(file.tensors.get(name)!, target, offset),
      tokenizer: tokenizerOf(file),
      template: undefined,
      backend,
    },
    { contextSize: 128, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
  try {
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const result = await computeLogits(engine, [...prompt], { top: 20, greedy: 0 }, control);
    return result.positions.map(({ top }) => new Map(top));
  } finally {
    engine.dispose();
  }
}

function worst(found: readonly Map<number, number>[], expected: Rows): number {
  const errors = found.flatMap((top, at) =>
    [...top].map(([id, logit]) => Math.abs(logit - expected[at]![id]!)),
  );
  expect(errors).toHaveLength(20 * prompt.length);
  return Math.max(...errors);
}

const cpu = (sparse: boolean) => (): Backend =>
  backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined, sparse });

describe.each<[string, () => Backend]>([
  ["reference", () => new ReferenceBackend()],
  ["cpu", cpu(false)],
  ["cpu, sparse", cpu(true)],
])("Bamboo, %s", (_, make) => {
  const expected = forward(tensorsOf(folder()), (up) => Math.max(up, 0));

  test("has the logits of a forward pass that is not ours", async () => {
    const file = await openModelFile(memorySource(folder()));
    const found = await logitsOf(file, make());
    expect(worst(found, expected)).toBeLessThan(1e-4);
    // With the ReLU of the gate alone they would be others.
    expect(
      worst(
        found,
        forward(tensorsOf(folder()), (up) => up),
      ),
    ).toBeGreaterThan(1e-2);
  });

  test("and so has the GGUF file that is converted from it", async () => {
    const { file } = await convertInMemory(asFiles(folder()));
    expect(worst(await logitsOf(file, make()), expected)).toBeLessThan(1e-4);
  });
});

test("another activation is refused", async () => {
  const open = async (files: Files) => await openModelFile(memorySource(files));
  await expect(open(folder({ hidden_act: "silu" }))).rejects.toThrow("hidden_act");
});
