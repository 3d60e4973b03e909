// Hot neurons on one backend and cold ones on another (docs/use/sparse.md): logits are those of the whole model but for the order in
// which sums are added up, with any share, any layers on the device, with neurons left out or computed.
// Held against: the logits of the whole model on one backend.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { AbortedError } from "../../src/base/errors.ts";
import { Batch } from "../../src/graph/batch.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { divideNeurons, pieceReader } from "../../src/graph/hot-neurons.ts";
import { makePlan, type Plan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { kvOf } from "../support/kv.ts";
import { plainMetadata, type TinyModel, tinyMetadata, tinyModel } from "../support/tiny-engine.ts";
import { runBatches } from "./tiny-backend.ts";

const architectures = {
  "relu(gate) * up": { architecture: "llama", relu: true },
  "relu(up)^2, no gate": { architecture: "nemotron", relu: false },
};
type Which = (typeof architectures)["relu(gate) * up"];

function modelOf({ architecture, relu }: Which, weightType = "q8_0"): TinyModel {
  const model = tinyModel({ architecture, weightType, feedForward: 1280 });
  if (!relu) return model;
  const changed = {
    ...tinyMetadata(architecture, 1280),
    [`${architecture}.hidden_activation`]: "relu",
  };
  return { ...model, metadata: plainMetadata(changed) };
}

const limits = { maxTokens: 12, maxOutputs: 12 };

async function loaded(backend: Backend, model: TinyModel): Promise<Backend> {
  const { graph } = buildModel(model);
  await backend.prepare(makePlan(graph, limits), evenCapacity(4, kvOf("f16")));
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  return backend;
}

async function logitsOf(backend: Backend, model: TinyModel): Promise<number[][]> {
  await loaded(backend, model);
  const rows = await runBatches(backend);
  backend.dispose();
  return rows;
}

function distance(a: number[][], b: number[][]): number {
  expect(a.length).toBe(b.length);
  const apart = a.map((row, i) => {
    const most = Math.max(...row.map((value, j) => Math.abs(value - b[i]![j]!)));
    return most / Math.max(...b[i]!.map(Math.abs));
  });
  return Math.max(...apart);
}

const cpu = (sparse = false) =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, sparse });
const split = (hotNeurons: number, layers: number | "all" = "all", host = cpu()) =>
  new SplitBackend({ host, device: new ReferenceBackend(), layers, hotNeurons });

describe.each(Object.entries(architectures))("%s", (_, which) => {
  test.each([
    [0.01, "all"],
    [0.4, "all"],
    [0.99, "all"],
    [0.4, 0],
    [0.4, 2],
  ] as const)("a share of %d, %s layers on the device", async (share, layers) => {
    const model = modelOf(which);
    const whole = await logitsOf(new ReferenceBackend(), model);
    const divided = split(share, layers);
    expect(distance(await logitsOf(divided, model), whole)).toBeLessThan(2e-5);
  });

  test("neurons that are zero change nothing where they are left out", async () => {
    const model = modelOf(which, "q4_0");
    const all = await logitsOf(split(0.4), model);
    expect(await logitsOf(split(0.4, "all", cpu(true)), model)).toEqual(all);
  });
});

test("the parts of a matrix are its rows and its columns, read in any pieces", async () => {
  const model = modelOf(architectures["relu(gate) * up"]);
  const { graph } = buildModel(model);
  const { pieces, hotCount, neurons } = divideNeurons(graph, 0.4);
  expect([hotCount, neurons]).toEqual([2 * 512, 2 * 1280]);
  const bytesOf = async (whole: Weight, sizes: readonly number[]) => {
    const [hot, cold] = pieces.get(whole.name)!;
    return await Promise.all(
      [hot!, cold!].map(async (piece) => {
        const read = pieceReader(whole, piece, async (target, at) => {
          target.set(model.bytes.get(whole.name)!.subarray(at, at + target.length));
        });
        const { shape, dtype } = piece.weight;
        const all = (shape[0]! * shape[1]! * dtype.blockBytes) / dtype.blockElems;
        const bytes = new Uint8Array(all);
        for (let at = 0, i = 0; at < all; i++) {
          const size = Math.min(sizes[i % sizes.length]!, all - at);
          await read(bytes.subarray(at, at + size), at);
          at += size;
        }
        return bytes;
      }),
    );
  };
  for (const [name, axis] of [
    ["blk.0.ffn_up.weight", "rows"],
    ["blk.1.ffn_down.weight", "columns"],
  ] as const) {
    const whole = graph.weights.find((weight) => weight.name === name)!;
    const [hot, cold] = await bytesOf(whole, [1 << 20]);
    expect(await bytesOf(whole, [7, 1, 1000])).toEqual([hot, cold]);
    const original = model.bytes.get(name)!;
    const rowBytes = original.length / whole.shape[0]!;
    const cut = axis === "rows" ? original.length * 0.4 : rowBytes * 0.4;
    const together = new Uint8Array(original.length);
    const rows = axis === "rows" ? 1 : whole.shape[0]!;
    const step = original.length / rows;
    for (let row = 0; row < rows; row++) {
      together.set(hot!.subarray(row * cut, (row + 1) * cut), row * step);
      const own = step - cut;
      together.set(cold!.subarray(row * own, (row + 1) * own), row * step + cut);
    }
    expect(together).toEqual(original);
  }
});

test("both halves are computed at the same time", async () => {
  const order: string[] = [];
  class Slow extends ReferenceBackend {
    override async run(...args: Parameters<ReferenceBackend["run"]>): Promise<void> {
      order.push("device begins");
      await new Promise((resolve) => setImmediate(resolve));
      await super.run(...args);
      order.push("device ends");
    }
  }
  class Host extends CpuBackend {
    override run(...args: Parameters<CpuBackend["run"]>) {
      order.push("host");
      return super.run(...args);
    }
  }
  const host = new Host({ level: 3, threads: 1, startThread: undefined });
  const model = modelOf(architectures["relu(gate) * up"]);
  const backend = new SplitBackend({ host, device: new Slow(), layers: 0, hotNeurons: 0.4 });
  await loaded(backend, model);
  const batch = new Batch(limits);
  batch.add(3, 0, { blocks: Int32Array.of(0) }, true);
  await backend.run(batch);
  expect(order).toEqual([
    ...["host", "device begins", "host", "device ends"],
    ...["host", "device begins", "host", "device ends", "host"],
  ]);
  backend.dispose();
});

test("a batch that is aborted leaves nothing running", async () => {
  const model = modelOf(architectures["relu(gate) * up"]);
  const backend = await loaded(split(0.4), model);
  const batch = new Batch(limits);
  for (let i = 0; i < 3; i++) batch.add(3 + i, i, { blocks: Int32Array.of(0) }, true);
  const read = async () => {
    const logits = new Float32Array(buildModel(model).graph.outputs.logits!.cols);
    await backend.read("logits", 2, logits);
    return logits;
  };
  await backend.run(batch);
  const whole = await read();
  for (const after of [1, 4, 9]) {
    let asked = 0;
    const run = backend.run(batch, { stop: () => ++asked > after });
    await expect(run).rejects.toThrow(AbortedError);
    await backend.run(batch);
    expect(await read()).toEqual(whole);
  }
  backend.dispose();
});

test("a device that fails while the host still computes fails the batch, and nothing else", async () => {
  let fails = false;
  let hostEnds = 0;
  class Device extends ReferenceBackend {
    override async run(...args: Parameters<ReferenceBackend["run"]>): Promise<void> {
      if (fails) throw new Error("the device is lost");
      await super.run(...args);
    }
  }
  class Host extends CpuBackend {
    override async run(...args: Parameters<CpuBackend["run"]>): Promise<void> {
      await super.run(...args);
      if (fails) for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
      hostEnds++;
    }
  }
  const host = new Host({ level: 3, threads: 1, startThread: undefined });
  const model = modelOf(architectures["relu(gate) * up"]);
  const both = { host, device: new Device() };
  const backend = new SplitBackend({ ...both, layers: 0, hotNeurons: 0.4 });
  await loaded(backend, model);
  const batch = new Batch(limits);
  batch.add(3, 0, { blocks: Int32Array.of(0) }, true);
  fails = true;
  await expect(backend.run(batch)).rejects.toThrow("the device is lost");
  expect(hostEnds).toBe(2); // before the device, and beside it: vitest fails on a rejection that nobody handles
  fails = false;
  await backend.run(batch);
  backend.dispose();
});

describe("instead of layers", () => {
  const silu = tinyModel({ weightType: "q8_0", feedForward: 1280, layers: 4 });
  const relu = { ...tinyMetadata("llama", 1280, 4), "llama.hidden_activation": "relu" };
  const model = { ...silu, metadata: plainMetadata(relu) };
  /** A device that says what it needs, as a GPU does. */
  class Counting extends ReferenceBackend {
    override measure(plan: Plan): ReturnType<ReferenceBackend["measure"]> {
      const weights = plan.graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
      return { weightBytes: weights, kvBytes: 0, workBytes: 0, limitBytes: 1e9 };
    }
  }
  const splitOf = (layers: number, of: TinyModel = model, hotNeurons?: number) =>
    loaded(
      new SplitBackend({ host: cpu(), device: new Counting(), layers, hotNeurons }),
      of,
    ) as Promise<SplitBackend>;
  const deviceBytes = (backend: Backend) =>
    backend.placement!().find(({ isDevice }) => isDevice)!.weightBytes;

  test("as many as the device has memory for, and what the host then reads", async () => {
    const plain = await splitOf(4);
    const offer = (await plain.hotOffer(0.9))!;
    expect(offer.layers).toBe(4);
    expect(offer.share).toBeGreaterThan(0);
    const hot = new SplitBackend({
      ...{ host: cpu(), device: new Counting(), layers: "all", hotNeurons: offer.share },
    });
    await loaded(hot, model);
    expect(deviceBytes(hot)).toBeLessThanOrEqual(deviceBytes(plain));
    const more = new SplitBackend({
      ...{ host: cpu(), device: new Counting(), layers: "all", hotNeurons: offer.share + 0.2 },
    });
    await loaded(more, model);
    expect(deviceBytes(more)).toBeGreaterThan(deviceBytes(plain));
    // What is zero is not read: of the host's layer, and of all cold neurons.
    const all = (await plain.hotOffer(0))!;
    const { bytes } = plain.neurons()!;
    expect(all.plainBytes - offer.plainBytes).toBeCloseTo(bytes * 0.9, 5);
    const halves = hot.parts()[0]!.weights.filter(({ name }) => name.includes(".weight["));
    const cold = halves.reduce((sum, weight) => sum + weightBytes(weight), 0);
    expect(all.hotBytes).toBe(cold);
    for (const backend of [plain, hot, more]) backend.dispose();
  });

  test("there are none where the device has too few layers, or no ReLU, or has them", async () => {
    const few = await splitOf(1);
    const without = await splitOf(4, silu);
    const already = await splitOf(4, model, 0.4);
    for (const backend of [few, without, already]) {
      expect(await backend.hotOffer(0.9)).toBeUndefined();
      backend.dispose();
    }
  });
});

describe("what is said", () => {
  test("how many neurons are where", async () => {
    const backend = await loaded(split(0.4), modelOf(architectures["relu(gate) * up"]));
    expect(backend.explain()).toContainEqual(
      expect.stringMatching(
        /^hot neurons: the first 1024 of 2560 are on reference \([\d.]+ \w+\), the others on the processor$/,
      ),
    );
    backend.dispose();
  });

  test("a model without ReLU, or with few neurons, is refused", async () => {
    const plain = modelOf({ architecture: "llama", relu: false });
    await expect(loaded(split(0.4), plain)).rejects.toThrow(
      "hotNeurons: got 0.4, but no network of this model has a ReLU",
    );
    const small = tinyModel({ architecture: "nemotron", feedForward: 256 });
    await expect(loaded(split(0.4), small)).rejects.toThrow(/fewer than 512 neurons/);
  });
});
