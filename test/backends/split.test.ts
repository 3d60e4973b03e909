// A model split between two backends: every value, logit and hidden state as the whole has them, wherever it is cut;
// batches, shared and copied cache blocks; how layers are counted; and what is said when a part does not fit.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity, type MemoryNeed } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { layersText, mostThatFit } from "../../src/backends/split/divide.ts";
import { SplitBackend, type SplitOptions } from "../../src/backends/split/split.ts";
import { MemoryError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { deviceLayers } from "../../src/engine/device-layers.ts";
import { checkMemory } from "../../src/engine/memory.ts";
import { Batch } from "../../src/graph/batch.ts";
import { makePlan, type Plan } from "../../src/graph/plan.ts";
import { splitGraph } from "../../src/graph/split.ts";
import { buildModel } from "../../src/models/build.ts";
import { allArchs } from "../../src/models/table.ts";
import { expectSameValues } from "../conformance/same-values.ts";
import { archTolerance } from "../conformance/table.ts";
import {
  greedyTokens,
  tinyEngine,
  tinyModel,
  tinyPrompt,
  tinyShape,
} from "../support/tiny-engine.ts";

const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 8, maxOutputs: 8 };
const kv = evenCapacity(4, f32);
/** The output, and every layer. */
const everything = tinyShape.layers + 1;

const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined });
const split = (options: Partial<SplitOptions> & Pick<SplitOptions, "layers">) =>
  new SplitBackend({ host: cpu(), device: new ReferenceBackend(), ...options });

/** The reference, with so much memory: what measure() knows, and what there is when it is taken. */
class SmallBackend extends ReferenceBackend {
  readonly #known: number;
  readonly #real: number;

  constructor(known: number, real: number = known) {
    super();
    this.#known = known;
    this.#real = real;
  }

  override measure(...args: Parameters<ReferenceBackend["measure"]>): MemoryNeed {
    return { ...super.measure(...args), limitBytes: this.#known };
  }

  async fits(plan: Plan): Promise<boolean> {
    return sizeOf(super.measure(plan, kv)) <= this.#real;
  }

  override prepare(...args: Parameters<ReferenceBackend["prepare"]>): void {
    if (sizeOf(super.measure(...args)) > this.#real) throw new MemoryError("the device is full");
    super.prepare(...args);
  }
}

function sizeOf({ weightBytes, kvBytes, workBytes }: MemoryNeed): number {
  return weightBytes + kvBytes + workBytes;
}

function tinyPlan(): Plan {
  return makePlan(buildModel(tinyModel()).graph, limits);
}

/** What so many layers take on the reference. */
function bytesOf(layers: number): number {
  const plan = tinyPlan();
  const part =
    layers === everything
      ? plan
      : makePlan(splitGraph(plan.graph, everything - layers).back, limits);
  return sizeOf(new ReferenceBackend().measure(part, kv));
}

async function loaded(backend: Backend): Promise<Backend> {
  const model = tinyModel();
  const plan = tinyPlan();
  await backend.prepare(plan, kv);
  for (const weight of plan.graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  return backend;
}

describe("a split model computes what the whole computes", () => {
  const architectures = allArchs().flatMap((arch) => arch.names);
  /** Of a few every cut; of the others one, which is between layers. Several values pass in RWKV 7, and in Gemma 3n and 4. */
  const atEveryCut = ["llama", "qwen2", "gemma2", "jamba", "gpt-oss", "rwkv7", "gemma3n", "gemma4"];
  test.each(atEveryCut)("%s, every value, at every cut", async (architecture) => {
    for (let layers = 0; layers <= everything; layers++) {
      await expectSameValues(split({ layers }), { architecture }, archTolerance(architecture));
    }
  });

  const atOneCut = architectures.filter((name) => !atEveryCut.includes(name));
  test.each(atOneCut)("%s, every value", async (architecture) => {
    const cut = split({ layers: 2 });
    await expectSameValues(cut, { architecture }, archTolerance(architecture));
  });

  test("layers that share a KV cache stay together", async () => {
    const { graph } = buildModel(tinyModel());
    const first = graph.states.findIndex(({ layer }) => layer === 0);
    const nodes = graph.nodes.map((node) =>
      node.op === "attention" ? { ...node, state: first } : node,
    );
    const plan = makePlan({ ...graph, nodes }, limits);
    expect(() => split({ layers: 2 }).measure(plan, kv)).toThrow(
      "gpuLayers: got 2, which parts layers of this model that share a KV cache. Use one of 0 to 1, 3",
    );
    const auto = split({ layers: "auto", device: new SmallBackend(bytesOf(everything) / 2) });
    expect(auto.measure(plan, kv).refusal).toBeUndefined();
  });

  test("either one may be the host", async () => {
    const backend = split({ host: new ReferenceBackend(), device: cpu(), layers: 2 });
    await expectSameValues(backend, {}, 1e-5);
  });

  test("to the bit, where both compute alike", async () => {
    const [whole, parts] = [new ReferenceBackend(), new ReferenceBackend()];
    const halves = await loaded(split({ host: parts, device: new ReferenceBackend(), layers: 2 }));
    await loaded(whole);
    const batch = new Batch(limits);
    [3, 1, 4, 1, 5].forEach((token, i) => {
      batch.add(token, i, { blocks: Int32Array.of(1, 0) }, i > 2);
    });
    const read = async (backend: Backend) => {
      await backend.run(batch);
      const logits = new Float32Array(tinyShape.vocab);
      const hidden = new Float32Array(tinyShape.embed);
      await backend.read("logits", 1, logits);
      await backend.read("hidden", 1, hidden);
      return { logits, hidden };
    };
    expect(await read(halves)).toEqual(await read(whole));
    halves.dispose();
  });

  test("batches, shared beginnings and copied blocks", async () => {
    const shared = tinyPrompt(9, 40);
    const prompts = [tinyPrompt(1, 3), [...shared, 5], tinyPrompt(2, 1), [...shared, 7, 8]];
    const reference = await tinyEngine();
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await greedyTokens(reference, tokens, 6));
    reference.dispose();
    for (let layers = 1; layers < everything; layers++) {
      const engine = await tinyEngine({ backend: split({ layers }), cacheTokens: 1024 });
      expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)))).toEqual(
        alone,
      );
      // A second time their beginnings are known, and a block in the middle of which they part is copied.
      expect(await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)))).toEqual(
        alone,
      );
      engine.dispose();
    }
  });
});

test("batches are as large as the device wants them, also where it has some layers only", () => {
  class Wide extends ReferenceBackend {
    readonly batchTokens = 512;
  }
  const tokens = ([0, 1, "auto", "all"] as const).map((layers) => {
    const backend = split({ device: new Wide(), layers });
    backend.dispose();
    return backend.batchTokens;
  });
  expect(tokens).toEqual([cpu().batchTokens, 512, 512, 512]);
});

describe("which layers are where", () => {
  test("the output counts as one, as with llama.cpp", async () => {
    const places = async (layers: SplitOptions["layers"]) => {
      const engine = await tinyEngine({ backend: split({ layers }) });
      const { name, placement } = engine.info.backend;
      engine.dispose();
      return { name, layers: placement.map(({ backend, layers: count }) => [backend, count]) };
    };
    expect(await places(0)).toEqual({ name: "cpu", layers: [["cpu", 2]] });
    expect(await places(1)).toEqual({
      name: "cpu+reference",
      layers: [
        ["cpu", 2],
        ["reference", 0],
      ],
    });
    expect(await places(2)).toEqual({
      name: "cpu+reference",
      layers: [
        ["cpu", 1],
        ["reference", 1],
      ],
    });
    const whole = { name: "reference", layers: [["reference", 2]] };
    expect(await places(3)).toEqual(whole);
    expect(await places(99)).toEqual(whole);
    expect(await places("all")).toEqual(whole);
    expect(await places("auto")).toEqual(whole);
  });

  test("the cache of a layer is where the layer is", async () => {
    const [host, device] = [cpu(), new ReferenceBackend()];
    const backend = await loaded(split({ host, device, layers: 2 }));
    expect(host.memory().kvBytes).toBe(device.memory().kvBytes);
    expect(backend.memory().kvBytes).toBe(2 * device.memory().kvBytes);
    expect(backend.explain()[0]).toBe(
      "on reference: the output and layer 1 of 2; on cpu: the rest",
    );
    backend.dispose();
  });

  test("in words", () => {
    const plan = tinyPlan();
    expect([0, 1, 2, 3].map((layers) => layersText(layers, plan))).toEqual([
      "no layer",
      "the output and no layer",
      "the output and layer 1 of 2",
      "all 2 layers and the output",
    ]);
  });
});

describe("a device that is too small", () => {
  const facts = {
    model: "tiny",
    backend: "cpu+reference",
    contextSize: 128,
    kvType: f32,
    state: { kv: [], recurrentBytes: 1 },
    availableBytes: undefined,
  };
  const small = (known: number, real?: number) => new SmallBackend(known, real);

  test("is refused before anything is read, with the number of layers that fit", () => {
    const backend = split({ device: small(bytesOf(2)), layers: "all" });
    const check = () => checkMemory(backend.measure(tinyPlan(), kv), facts);
    expect(check).toThrow(MemoryError);
    expect(check).toThrow(
      /tiny does not fit: all 2 layers and the output need .* KiB on "reference" \(weights .* KiB, .*\), which has [\d.]+ KiB/,
    );
    expect(check).toThrow(/2 of its 3 layers would fit \(.*\): use `gpuLayers: 2` or/);
  });

  test("with no room at all: -ngl 0", () => {
    const backend = split({ device: small(100), layers: 1 });
    expect(backend.measure(tinyPlan(), kv).refusal).toMatch(
      /Not even the output would fit.*gpuLayers: 0/,
    );
  });

  test("that only shows when memory is taken: the same advice, found by trying", async () => {
    const device = small(Number.POSITIVE_INFINITY, bytesOf(1));
    const backend = split({ device, layers: 3 });
    await expect(backend.prepare(tinyPlan(), kv)).rejects.toThrow(
      /the device is full\. 1 of its 3 layers would fit \(the output and no layer\): use `gpuLayers: 1` or/,
    );
    backend.dispose();
  });

  test("auto takes what fits, by what is known and by trying", async () => {
    for (const device of [small(bytesOf(2)), small(Number.POSITIVE_INFINITY, bytesOf(2))]) {
      const backend = await loaded(split({ device, layers: "auto" }));
      expect(backend.placement!().map(({ layers }) => layers)).toEqual([1, 1]);
      backend.dispose();
    }
    for (const device of [small(1), small(Number.POSITIVE_INFINITY, 1)]) {
      const none = await loaded(split({ device, layers: "auto" }));
      expect(none.name).toBe("cpu");
      expect(none.warnings!()).toEqual([
        expect.stringMatching(
          /^gpuLayers: auto: not even the output fits the GPU's memory, so the processor computes all layers \(.*(has 1 bytes|is full).*\)$/,
        ),
      ]);
      none.dispose();
    }
  });

  test("no more than it is said to have room for, and nothing is said of none", async () => {
    for (const most of [2, 0]) {
      const backend = await loaded(split({ layers: "auto", most }));
      expect(deviceLayers(backend.placement!())).toEqual({ layers: most, all: 3 });
      expect(backend.warnings!()).toEqual([]);
      backend.dispose();
    }
  });

  test("the largest number is found, whatever it is", async () => {
    for (let most = 0; most <= 9; most++) {
      expect(await mostThatFit(9, (layers) => layers <= most)).toBe(most);
    }
  });

  test("a device's memory is not the machine's", () => {
    const need = { weightBytes: 100, kvBytes: 50, workBytes: 50, limitBytes: 1000 };
    const available = { ...facts, availableBytes: 120 };
    expect(() => checkMemory(need, available)).toThrow(MemoryError);
    expect(() => checkMemory({ ...need, deviceBytes: 90 }, available)).not.toThrow();
  });
});
