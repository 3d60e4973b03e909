// A tiny model in a file, in a CPU backend that may take so much memory: what tests of weights on disk load.

import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { evenCapacity, type RamBudget, type WeightFiles } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { DirectFile } from "../../src/platform/platform.ts";
import { type TinyOptions, tinyModel } from "../support/tiny-engine.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-disk-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const silent = { progress: () => {}, check: () => {} };

export interface OnDisk {
  readonly backend: CpuBackend;
  /** The file, and what is in it. */
  readonly path: string;
  readonly content: Uint8Array;
  /** The files that weights are read from while batches run. */
  readonly opened: readonly DirectFile[];
  close(): Promise<void>;
}

/** A tiny model in a file, loaded with the largest budget that leaves at least so many bytes of weights on disk. */
export async function loaded(
  options: TinyOptions,
  onDisk: number,
  threads: number = 2,
  experts: RamBudget["experts"] = undefined,
): Promise<OnDisk> {
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  const path = join(folder, "weights");
  const offsets = new Map<string, number>();
  let end = 13; // no weight begins at a block of the disk
  for (const [name, bytes] of model.bytes) {
    offsets.set(name, end);
    end += bytes.length;
  }
  const content = Buffer.concat([Buffer.alloc(13), ...model.bytes.values()]);
  writeFileSync(path, content);
  const descriptor = openSync(path, "r");
  const opened: DirectFile[] = [];
  const files: WeightFiles = {
    partsOf: (name) => [{ descriptor, offset: offsets.get(name)! }],
    readAt: nodePlatform.readAt!,
    // Otherwise the change is noticed before a batch.
    openDirect: (of) => {
      const made = { ...nodePlatform.openDirect!(of), changed: () => undefined };
      opened.push(made);
      return made;
    },
  };
  const plan = makePlan(graph, { maxTokens: 12, maxOutputs: 12 });
  const kv = evenCapacity(4, dtypeByName("f16")!);
  const how = {
    level: 3,
    threads,
    startThread: () => nodePlatform.startThread("compute"),
  } as const;
  /** By bisection: layouts, and so the bytes of everything, depend on the processor. */
  const budgetFor = (bytes: number): RamBudget => {
    const { weightBytes, kvBytes, workBytes } = new CpuBackend(how).measure(plan, kv);
    const limitBytes = weightBytes + kvBytes + workBytes - 1;
    let [low, high] = [limitBytes / 4, 2 * limitBytes + 8e6];
    for (let step = 0; step < 12; step++) {
      const budgetBytes = Math.floor((low + high) / 2);
      const ram = { limitBytes, budgetBytes };
      const { diskBytes = 0, notOnDisk } = new CpuBackend({ ...how, files, ram }).measure(plan, kv);
      if (notOnDisk !== undefined || diskBytes >= bytes) low = budgetBytes;
      else high = budgetBytes;
    }
    return { limitBytes, budgetBytes: Math.floor(low), experts };
  };
  const budget = onDisk > 0 ? budgetFor(onDisk) : undefined;
  const backend = new CpuBackend({ ...how, files, ram: budget });
  backend.prepare(plan, kv);
  const read = await backend.uploadFiles(silent);
  for (const weight of graph.weights) {
    if (read.has(weight.name)) continue;
    const first = offsets.get(weight.name)!;
    await backend.upload(weight, async (to, at) => {
      readSync(descriptor, to, 0, to.length, first + at);
    });
  }
  const close = async () => {
    backend.dispose();
    await backend.ended();
    closeSync(descriptor);
  };
  return { backend, path, content, opened, close };
}
