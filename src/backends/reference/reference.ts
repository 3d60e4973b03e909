// The reference backend: graph/reference.ts with memory around it. One thread, no SIMD, every op and every type. It is opt
// level 1, and the conformance suite compares other backends with it.

import { AbortedError, DisposedError, MemoryError } from "../../base/errors.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import { kvPair } from "../../dtypes/kv-types.ts";
import { type Batch, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvStateBytes, weightBytes } from "../../graph/cost.ts";
import {
  type GraphNode,
  type KvState,
  kvStates,
  type OutputName,
  outputNamed,
  type RecurrentState,
  recurrentStates,
  sectionsOf,
  type Value,
  type Weight,
} from "../../graph/graph.ts";
import { type Plan, planBytes } from "../../graph/plan.ts";
import { referenceOps, runReferenceOp } from "../../graph/reference.ts";
import {
  activationTypeOf,
  type LoadedWeight,
  type ReferenceMemory,
  type StoredKv,
  widestActivations,
} from "../../graph/reference-memory.ts";
import {
  type Backend,
  groupCapacity,
  type KvCacheOptions,
  type KvOverflow,
  type MemoryNeed,
  type MemoryUse,
  type RunOptions,
  type StateTransfer,
  type WeightReader,
  type Widened,
} from "../backend.ts";
import { giveValues, takeValues } from "../cross-values.ts";
import { hostTransfer } from "../host-transfer.ts";

interface Prepared extends ReferenceMemory {
  plan: Plan;
  kvBytes: number;
  scratchBytes: number;
}

export class ReferenceBackend implements Backend {
  readonly name = "reference";
  readonly threads = 1;
  #weights: Map<string, LoadedWeight> | undefined = new Map();
  #prepared: Prepared | undefined;

  supports(node: GraphNode): true | string {
    return node.op in referenceOps ? true : `the reference has no op "${node.op}"`;
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    const { graph } = plan;
    return {
      weightBytes: graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0),
      kvBytes: cacheBytes(plan, kv),
      workBytes: planBytes(plan) + scratchBytes(scratchSizes(plan, kv)),
      limitBytes: Number.POSITIVE_INFINITY,
    };
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const weights = this.#alive();
    const bytes = allocate(weightBytes(weight), `weight ${weight.name}`);
    await read(bytes, 0);
    const { dtype } = weight;
    weights.set(weight.name, {
      dtype,
      activation: activationTypeOf(dtype),
      bytes,
      floats: dtype.asFloat32?.(bytes),
    });
  }

  prepare(plan: Plan, kv: KvCacheOptions): void {
    const weights = this.#alive();
    const { graph } = plan;
    const slots = plan.slotSizes.map((size) => new Float32Array(size));
    const sizes = scratchSizes(plan, kv);
    this.#prepared = {
      plan,
      value: (value) => slots[plan.slotOf[value.id]!]!,
      weight: (weight) => weights.get(weight.name)!,
      kv: {
        dtypes: kvPair(kv.dtype),
        states: graph.states.map((state) => (state.kind === "kv" ? storeKv(state, kv) : undefined)),
      },
      recurrent: graph.states.map((state) =>
        state.kind === "recurrent" ? storeRecurrent(state, kv) : undefined,
      ),
      kvBytes: cacheBytes(plan, kv),
      row: new Float32Array(sizes.row),
      rounded: new Float32Array(sizes.rounded),
      packed: new Uint8Array(sizes.packed * 4),
      keys: new Float32Array(sizes.keys),
      values: new Float32Array(sizes.values),
      scores: new Float32Array(sizes.scores),
      scratchBytes: scratchBytes(sizes),
    };
  }

  run(batch: Batch, options: RunOptions = {}): void {
    const { tap, stop, section = 0, input, output, replace } = options;
    const memory = this.#ready();
    const { graph } = memory.plan;
    const { from, to, takes, gives } = sectionsOf(graph)[section]!;
    if (input) takeValues(takes, batch, memory.value, input);
    for (let i = from; i < to; i++) {
      const node = graph.nodes[i]!;
      if (stop?.()) throw new AbortedError("the batch");
      runReferenceOp(node, batch, memory);
      if (!tap || !node.out) continue;
      tap(node.out, rowsInUse(node.out, batch, memory));
      const instead = replace?.(node.out);
      if (instead) memory.value(node.out).set(instead);
    }
    if (output) giveValues(gives, batch, memory.value, output);
  }

  read(output: OutputName, row: number, target: Float32Array): void {
    const memory = this.#ready();
    const value = outputNamed(memory.plan.graph, output);
    target.set(memory.value(value).subarray(row * value.cols, (row + 1) * value.cols));
  }

  widened(): Widened | undefined {
    return this.#ready().widened;
  }

  kvOverflow(): KvOverflow | undefined {
    const memory = this.#ready();
    const found = memory.kvOverflow;
    memory.kvOverflow = undefined;
    return found;
  }

  copyKvBlock(from: number, to: number, group?: number): void {
    const { kv } = this.#ready();
    for (const state of kv.states) {
      if (!state || state.group !== (group ?? state.group)) continue;
      const { keys, values, keyStride, valueStride } = state;
      keys.copyWithin(to * keyStride, from * keyStride, (from + 1) * keyStride);
      values.copyWithin(to * valueStride, from * valueStride, (from + 1) * valueStride);
    }
  }

  get transfer(): StateTransfer {
    const memory = this.#ready();
    return hostTransfer(memory.plan.graph, memory);
  }

  memory(): MemoryUse {
    const weights = this.#alive();
    let total = 0;
    for (const weight of weights.values()) total += weight.bytes.byteLength;
    const prepared = this.#prepared;
    return {
      weightBytes: total,
      kvBytes: prepared?.kvBytes ?? 0,
      workBytes: prepared ? planBytes(prepared.plan) + prepared.scratchBytes : 0,
    };
  }

  explain(): readonly string[] {
    return ["every op: plain TypeScript, one thread"];
  }

  dispose(): void {
    this.#weights = undefined;
    this.#prepared = undefined;
  }

  #alive(): Map<string, LoadedWeight> {
    if (!this.#weights) throw new DisposedError("the reference backend");
    return this.#weights;
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("reference backend: run() before prepare()");
    return this.#prepared;
  }
}

function cacheBytes({ graph }: Plan, kv: KvCacheOptions): number {
  const blocks = kvStates(graph).reduce((sum, state) => {
    return (
      sum + groupCapacity(kv, state.group).blocks * KV_BLOCK_TOKENS * kvStateBytes(state, kv.dtype)
    );
  }, 0);
  const floats = recurrentStates(graph).reduce((sum, state) => sum + state.floats, 0);
  return blocks + (kv.slots ?? 0) * floats * 4;
}

function storeRecurrent({ floats }: RecurrentState, { slots = 0 }: KvCacheOptions) {
  const bytes = allocate(slots * floats * 4, "recurrent state");
  return { floats: new Float32Array(bytes.buffer), stride: floats };
}

function storeKv({ kCols, vCols, group }: KvState, kv: KvCacheOptions): StoredKv {
  const { k, v } = kvPair(kv.dtype);
  const { blocks } = groupCapacity(kv, group);
  const keyStride = bytesFor(k, KV_BLOCK_TOKENS * kCols);
  const valueStride = bytesFor(v, KV_BLOCK_TOKENS * vCols);
  const what = "the KV cache";
  return {
    group,
    kCols,
    vCols,
    keys: allocate(blocks * keyStride, what),
    values: allocate(blocks * valueStride, what),
    keyStride,
    valueStride,
  };
}

/** Sizes in words of 4 bytes. */
type ScratchSizes = Record<"row" | "rounded" | "packed" | "keys" | "values" | "scores", number>;

function scratchSizes({ graph, limits }: Plan, { tableLength }: KvCacheOptions): ScratchSizes {
  const context = tableLength * KV_BLOCK_TOKENS;
  const row = Math.max(...graph.weights.map((weight) => weight.shape.at(-1)!));
  return {
    row,
    rounded: widestActivations(graph) * Math.max(limits.maxTokens, limits.maxOutputs),
    packed: row,
    keys: context * Math.max(0, ...kvStates(graph).map(({ kCols }) => kCols)),
    values: context * Math.max(0, ...kvStates(graph).map(({ vCols }) => vCols)),
    scores: context,
  };
}

function scratchBytes(sizes: ScratchSizes): number {
  return Object.values(sizes).reduce((sum, words) => sum + words * 4, 0);
}

function rowsInUse(value: Value, batch: Batch, memory: ReferenceMemory): Float32Array {
  return memory.value(value).subarray(0, batch.count(value.rows) * value.cols);
}

function allocate(bytes: number, what: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new MemoryError(
      `could not allocate ${bytes} bytes for ${what}. Close other programs, or use a smaller model or context`,
      { cause },
    );
  }
}
