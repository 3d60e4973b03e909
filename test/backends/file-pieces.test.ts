// Weights that the threads read from local files by themselves: memory has the same bits as after upload(), whatever the
// type, the size of pieces and the number of parts; a file that cannot be read is read the other way.

import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { evenCapacity, type WeightFiles } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { Packer } from "../../src/backends/cpu/memory/repack.ts";
import { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { wasmTarget } from "../../src/kernels/target.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { FilePart } from "../../src/platform/platform.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { runBatches } from "./tiny-backend.ts";

const target = wasmTarget({ dot4: "signed", vectorRegisters: 16 });
const silent = { progress: () => {}, check: () => {} };

interface Sample {
  readonly weight: Weight;
  readonly ops: readonly OpKind[];
  readonly bytes: Uint8Array;
  /** The number of its parts, each in a file of its own. */
  readonly parts: number;
}

function sample(type: string, shape: number[], ops: OpKind[], parts = 1): Sample {
  const dtype = dtypeByName(type)!;
  const bytes = sampleBlocks(
    dtype,
    shape.reduce((a, b) => a * b, 1),
  );
  return { weight: { name: `${type} ${shape}`, shape, dtype }, ops, bytes, parts };
}

const samples = [
  sample("q4_0", [37, 512], ["matmul"]), // two whole panels and a part of one
  sample("f32", [400, 1024], ["matmul"]), // several pieces
  sample("q6_k", [3, 40, 256], ["matmul_id"], 3), // experts, each in a file of its own
  sample("q4_k", [4, 32, 256], ["matmul_id"], 2), // a panel never crosses two experts, a piece may
  sample("f16", [300, 1000], ["embed"]), // stays as it is, in two pieces
];

/** Memory after these weights were read, by the threads or by upload(). */
async function memoryOf(how: "files" | "upload", files: WeightFiles): Promise<Uint8Array> {
  const arena = new Arena({ shared: true, memory64: false, start: 0 });
  const store = new WeightStore(arena, target, 3);
  const uses = new Map(samples.map(({ weight, ops }) => [weight, new Set(ops)]));
  const program = store.place(uses, 1);
  arena.commit();
  const all = { ...program, files: store.inFiles(files) };
  expect(all.files.length).toBe(samples.length);
  const memories = new Memories(arena.views);
  const packer = new Packer(all, memories, {}, () => false, undefined, files.readAt);
  if (how === "files") expect(await packer.packFiles(silent)).toBe(true);
  for (const { weight, bytes } of how === "upload" ? samples : []) {
    const read = async (to: Uint8Array, at: number) => to.set(bytes.subarray(at, at + to.length));
    await store.upload(weight, read, packer);
  }
  await packer.flush();
  return arena.views.u8.slice(0, arena.use.weightBytes);
}

test("memory has the same bits as after upload(), also with short reads", async () => {
  const opened: Uint8Array[] = [];
  const places = new Map<string, FilePart[]>();
  for (const { weight, bytes, parts } of samples) {
    const size = bytes.length / parts;
    const at = Array.from({ length: parts }, (_, part) => {
      const descriptor = opened.push(bytes.subarray(part * size, (part + 1) * size)) - 1;
      return { descriptor, offset: 100 * part };
    });
    places.set(weight.name, at);
  }
  let reads = 0;
  const files: WeightFiles = {
    partsOf: (name) => places.get(name),
    readAt: (descriptor, to, position) => {
      const offset = [...places.values()].flat().find((part) => part.descriptor === descriptor)!;
      const from = opened[descriptor]!.subarray(position - offset.offset).subarray(0, to.length);
      const some = reads++ % 2 === 0 ? from : from.subarray(0, Math.ceil(from.length / 3));
      to.set(some);
      return some.length;
    },
  };
  expect(await memoryOf("files", files)).toEqual(await memoryOf("upload", files));
  expect(reads).toBeGreaterThan(2 * samples.length);
});

const folder = mkdtempSync(join(tmpdir(), "lantern-pieces-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The logits of a tiny model whose weights lie in a file, and how many weights the threads read. */
async function logitsOf(damage: (part: FilePart) => FilePart, level: 2 | 3 = 3) {
  const options = { weightType: "q8_0", feedForward: 4096 };
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  const path = join(folder, "weights");
  const offsets = new Map<string, number>();
  let end = 0;
  for (const [name, bytes] of model.bytes) {
    offsets.set(name, end);
    end += bytes.length;
  }
  writeFileSync(path, Buffer.concat([...model.bytes.values()]));
  const descriptor = openSync(path, "r");
  const backend = new CpuBackend({
    level,
    threads: 2,
    startThread: () => nodePlatform.startThread("compute"),
    files: {
      partsOf: (name) => [damage({ descriptor, offset: offsets.get(name)! })],
      readAt: nodePlatform.readAt!,
    },
  });
  try {
    const plan = makePlan(graph, { maxTokens: 12, maxOutputs: 12 });
    backend.prepare(plan, evenCapacity(4, dtypeByName("f16")!));
    const read = await backend.uploadFiles(silent);
    for (const weight of graph.weights) {
      if (read.has(weight.name)) continue;
      const first = offsets.get(weight.name)!;
      await backend.upload(weight, async (to, at) => {
        readSync(descriptor, to, 0, to.length, first + at);
      });
    }
    return { read: read.size, logits: await runBatches(backend, options) };
  } finally {
    backend.dispose();
    await backend.ended();
    closeSync(descriptor);
  }
}

test("two threads read a model's matrices; one that cannot be read is read by upload()", async () => {
  const whole = await logitsOf((part) => part);
  expect(whole.read).toBeGreaterThan(10);
  const damaged = await logitsOf((part) => ({ ...part, offset: part.offset + 1e9 }));
  expect(damaged.read).toBe(0);
  expect(damaged.logits).toEqual(whole.logits);
});

test("weights that are not packed are read, too", async () => {
  const whole = await logitsOf((part) => part, 2); // opt level 2 packs nothing
  expect(whole.read).toBeGreaterThan(10);
  const other = await logitsOf((part) => ({ ...part, offset: part.offset + 1e9 }), 2);
  expect(other.read).toBe(0);
  expect(other.logits).toEqual(whole.logits);
});
