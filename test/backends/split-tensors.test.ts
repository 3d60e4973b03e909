// Tensors that are elsewhere than their layer: experts on one backend and the rest of their layers on another, cut in the
// middle of a layer. Every value and every text is as without; batches that are aborted in between leave nothing behind.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { readOverrides } from "../../src/backends/split/overrides.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { AbortedError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import type { GraphNode } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { splitGraph } from "../../src/graph/split.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { expectSameValues } from "../conformance/same-values.ts";
import { archTolerance } from "../conformance/table.ts";
import {
  greedyTokens,
  tinyEngine,
  tinyModel,
  tinyPrompt,
  tinyShape,
} from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

function batchOf(tokens: readonly number[]): Batch {
  const batch = new Batch({ maxTokens: 12, maxOutputs: 12 });
  const sequence = { blocks: Int32Array.of(2, 0) };
  tokens.forEach((token, i) => {
    batch.add(token, i, sequence, true);
  });
  return batch;
}

async function logitsOf(backend: Backend, row: number): Promise<Float32Array> {
  const logits = new Float32Array(tinyShape.vocab);
  await backend.read("logits", row, logits);
  return logits;
}

const startThread = () => nodePlatform.startThread("compute");
const cpu = (threads = 1, profile = false) =>
  new CpuBackend({
    level: 3,
    threads,
    startThread: threads > 1 ? startThread : undefined,
    profile,
  });

interface Case {
  layers?: number | "all" | "auto";
  overrideTensors?: readonly string[];
  cpuExperts?: number | "all";
  host?: Backend;
  device?: Backend;
}

const split = ({ layers = "all", host = cpu(), device = new ReferenceBackend(), ...which }: Case) =>
  new SplitBackend({ host, device, layers, overrides: readOverrides(which) });

const withExperts = ["qwen3moe", "gpt-oss", "deepseek2", "granitemoe", "qwen2moe", "llama4"];

describe("every value is as the whole graph has it", () => {
  test.each(withExperts)("%s, experts on the processor", async (architecture) => {
    const tolerance = archTolerance(architecture);
    await expectSameValues(split({ cpuExperts: "all" }), { architecture }, tolerance);
    // Of a layer that is on the processor anyway, nothing changes.
    await expectSameValues(split({ cpuExperts: 2, layers: 2 }), { architecture }, tolerance);
  });

  const patterns: [string, Case][] = [
    ["experts of one layer", { cpuExperts: 1 }],
    ["values of attention", { overrideTensors: ["attn_v=cpu"] }],
    ["everything but attention", { overrideTensors: ["attn=gpu", "blk=cpu"] }],
    ["the output", { overrideTensors: ["^output=cpu", "token_embd=cpu"] }],
    ["one matrix of the experts", { overrideTensors: ["ffn_up_exps=cpu"] }],
    ["norms", { overrideTensors: ["norm=CPU"] }],
    ["a layer of the processor on the GPU", { layers: 0, overrideTensors: ["blk.1.=gpu"] }],
    ["experts on the GPU", { layers: 0, overrideTensors: ["_exps=gpu"] }],
  ];
  test.each(patterns)("%s", async (_, which) => {
    const options = { architecture: "qwen3moe" };
    await expectSameValues(split(which), options, archTolerance("qwen3moe"));
  });

  test("either backend may be the host", async () => {
    const both = { host: new ReferenceBackend(), device: cpu() };
    const swapped = split({ ...both, overrideTensors: ["attn=gpu", "blk=cpu"] });
    await expectSameValues(swapped, { architecture: "qwen3moe" }, archTolerance("qwen3moe"));
  });
});

test("the same bits where both compute alike, on several threads, in batches and alone", async () => {
  const options = { architecture: "qwen3moe", weightType: "q8_0" };
  const prompts = [tinyPrompt(1, 3), tinyPrompt(9, 40), tinyPrompt(2, 1)];
  const texts = async (backend: Backend) => {
    const engine = await tinyEngine({ ...options, backend, cacheTokens: 1024 });
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await greedyTokens(engine, tokens, 6));
    const beside = await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 6)));
    engine.dispose();
    return { alone, beside };
  };
  const whole = await texts(cpu());
  expect(whole.beside).toEqual(whole.alone);
  expect(await texts(split({ device: cpu(), cpuExperts: "all" }))).toEqual(whole);
  expect(await texts(split({ host: cpu(2), device: cpu(), cpuExperts: 1 }))).toEqual(whole);

  const logits = async (backend: Backend) => {
    await load(backend, options);
    const rows = await runBatches(backend);
    backend.dispose();
    return rows;
  };
  const divided = split({ device: cpu(), cpuExperts: "all" });
  expect(await logits(divided)).toEqual(await logits(cpu()));
});

test("what the device does not compute is on the host, with the same bits; state is not", async () => {
  class NoExperts extends CpuBackend {
    refused: readonly string[] = ["route", "matmul_id", "combine"];
    override supports(node?: GraphNode): true {
      const answer: true | string = !this.refused.includes(node!.op) || `the op "${node!.op}"`;
      return answer as true;
    }
  }
  const options = { architecture: "qwen3moe", weightType: "q8_0", expertType: "q4_0" };
  const device = new NoExperts({ level: 3, threads: 1, startThread: undefined });
  const logits = async (backend: Backend) => {
    await load(backend, options);
    const rows = await runBatches(backend);
    const lines = backend.explain();
    backend.dispose();
    return { rows, lines };
  };
  const whole = await logits(cpu());
  const moved = await logits(split({ device, cpuExperts: "all" }));
  expect(moved.rows).toEqual(whole.rows);
  expect(moved.lines).toContain("cpu does not compute route, matmul_id, combine: they are on cpu");
  const { graph } = buildModel(tinyModel(options));
  const asked = split({ device, cpuExperts: "all" });
  expect(graph.nodes.every((node) => asked.supports(node) === true)).toBe(true);
  device.refused = ["attention"];
  const attention = graph.nodes.find(({ op }) => op === "attention")!;
  expect(asked.supports(attention)).toBe('cpu: the op "attention"');
});

test.each([1, 2])("a batch that is aborted between two sections, %i threads", async (threads) => {
  const backend = split({ host: cpu(threads), device: cpu(), cpuExperts: "all" });
  await load(backend, { architecture: "qwen3moe" });
  const batch = batchOf([3, 1, 4, 1, 5]);
  await backend.run(batch);
  const whole = await logitsOf(backend, 4);
  for (const after of [1, 9, 23]) {
    let asked = 0;
    const given = backend.run(batch, { stop: () => ++asked > after });
    await expect(given).rejects.toThrow(AbortedError);
    await backend.run(batch);
    expect(await logitsOf(backend, 4)).toEqual(whole);
  }
  backend.dispose();
});

test("times of both are recorded, without what the other takes", async () => {
  const both = { host: cpu(1, true), device: cpu(1, true) };
  const backend = split({ ...both, cpuExperts: "all" });
  await load(backend, { architecture: "qwen3moe" });
  for (let i = 0; i < 3; i++) await backend.run(batchOf([3, 1, 4, 1, 5]));
  const [host, device] = [both.host.profile()!, both.device.profile()!];
  expect(host.phases.prompt.sizes).toMatchObject([{ tokens: 5, batches: 3 }]);
  expect(device.phases.prompt.sizes).toMatchObject([{ tokens: 5, batches: 3 }]);
  expect(host.parts.some(({ name }) => name.includes("ffn_up"))).toBe(true);
  const joined = backend.profile()!;
  expect(joined.phases.prompt.batchMs).toBe(
    host.phases.prompt.batchMs + device.phases.prompt.batchMs,
  );
  backend.dispose();
});

describe("what is said", () => {
  test("where tensors are, how many, and what passes between the two", async () => {
    const backend = split({ cpuExperts: "all" });
    await load(backend, { architecture: "qwen3moe" });
    const lines = backend.explain();
    expect(lines).toContain("on reference: all 2 layers and the output; on cpu: the rest");
    expect(lines.some((line) => /^experts=cpu: 8 tensors, [\d.]+ MiB$/.test(line))).toBe(true);
    // Each layer: the normed residual and the routes, then what the experts add to it.
    expect(lines).toContainEqual(
      expect.stringMatching(
        /^values pass between the two 4 times a batch: \d+ bytes of each token$/,
      ),
    );
    expect(backend.placement()).toMatchObject([
      { backend: "cpu", layers: 0, isDevice: false, overrides: ["experts=cpu"] },
      { backend: "reference", layers: 2, hasOutput: true, isDevice: true },
    ]);
    backend.dispose();
  });

  test("a model without experts is as without the option", async () => {
    const backend = split({ cpuExperts: "all" });
    await load(backend, { architecture: "llama" });
    expect(backend.name).toBe("reference");
    backend.dispose();
  });

  test("a pattern that no tensor has is refused, and what is no pattern", async () => {
    const plan = makePlan(buildModel(tinyModel()).graph, { maxTokens: 8, maxOutputs: 8 });
    const measure = () =>
      split({ overrideTensors: ["ffn_upp=cpu"] }).measure(
        plan,
        evenCapacity(1, dtypeByName("f32")!),
      );
    expect(measure).toThrow(
      /overrideTensors: no tensor of this model matches "ffn_upp=cpu"; its tensors are named .*Correct the pattern/,
    );
    const read = (text: string) => () => readOverrides({ overrideTensors: [text] });
    expect(read("ffn")).toThrow(/overrideTensors: got "ffn", expected a pattern .* =cpu or =gpu/);
    expect(read("ffn=cuda")).toThrow(/got "ffn=cuda"/);
    expect(read("(=cpu")).toThrow(/overrideTensors: "\(" is not a regular expression/);
  });
});

test("a value crosses once, and where it is read later is kept", () => {
  const { graph } = buildModel(tinyModel({ architecture: "qwen3moe" }));
  const { front, back, turns } = splitGraph(graph, -1, {
    weight: ({ name }) => (name.includes("_exps") ? "front" : undefined),
  });
  expect(turns.map(({ side }) => side)).toEqual(["back", "front", "back", "front", "back"]);
  expect(front.sections!.map(({ takes }) => takes.length)).toEqual([2, 2]);
  expect(front.sections!.map(({ gives }) => gives.length)).toEqual([1, 1]);
  expect(front.states).toEqual([]);
  expect(back.states).toHaveLength(graph.states.length);
  expect([...front.nodes, ...back.nodes]).toHaveLength(graph.nodes.length);
});
