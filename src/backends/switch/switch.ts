// A model on two backends that take turns: prompts are computed by one (say, a GPU, which gains from many tokens), generated tokens
// by the other (say, a processor, to which no token has to travel). Each holds all weights and a cache of its own; what one has
// written to the cache and the other is to read is copied before the batch that reads it (newest.ts).
//
// It is a backend itself, knows neither of the two, and works with any that let their state out (StateTransfer). Which side
// computes what was decided before (src/tune/sides.ts), by measured times.

import { DisposedError, ModelError } from "../../base/errors.ts";
import { Batch } from "../../graph/batch.ts";
import { kvBlockBytes, slotFloats } from "../../graph/cost.ts";
import {
  type GraphNode,
  kvGroups,
  layerCount,
  type OutputName,
  type Weight,
} from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import {
  type Backend,
  type BackendProfile,
  type BatchPhase,
  groupRoom,
  type KvCacheOptions,
  type KvOverflow,
  type LayerPlace,
  type MemoryNeed,
  type MemoryUse,
  type RunOptions,
  type StateTransfer,
  type WeightReader,
  type Widened,
} from "../backend.ts";
import { joinProfiles } from "../join-profiles.ts";
import { sumOfUse, totalBytes } from "../memory-use.ts";
import { divideBatch, onlySide, type SideChoice } from "./divide-batch.ts";
import { type Missing, Newest, type Side } from "./newest.ts";

export interface SwitchOptions {
  readonly host: Backend;
  readonly device: Backend;
  readonly choice: SideChoice;
  /** Why, for --explain. */
  readonly notes?: readonly string[];
}

interface Prepared {
  readonly plan: Plan;
  readonly newest: Newest;
  /** For a batch of which each side has a part. */
  readonly parts: readonly [Batch, Batch];
  /** Where each output of the last batch is: row * 2 + side. */
  readonly outputs: Int32Array;
  /** By group. */
  readonly blockBytes: readonly number[];
  /** A block of the largest group, a slot: on their way. */
  readonly block: Uint8Array;
  readonly slot: Float32Array;
  /** What the next batch lacks: group and block; slots. Filled anew for each batch. */
  readonly missingBlocks: { group: number; block: number }[];
  readonly missingSlots: number[];
  /** Fills the two above. */
  readonly missing: Missing;
}

export class SwitchBackend implements Backend {
  readonly #sides: readonly [Backend, Backend];
  readonly #choice: SideChoice;
  readonly #notes: readonly string[];
  #prepared: Prepared | undefined;
  #disposed = false;
  /** The side that gets blocks now: it has them by the books, but not all have arrived. */
  #bringingTo: Side | undefined;
  /** Cache blocks that went from one side to the other. */
  copiedBlocks = 0;

  /** Owns both: dispose() disposes of them. */
  constructor({ host, device, choice, notes = [] }: SwitchOptions) {
    this.#sides = [host, device];
    this.#choice = choice;
    this.#notes = notes;
  }

  get name(): string {
    return this.#sides.map(({ name }) => name).join("|");
  }

  get threads(): number {
    return this.#sides[0].threads;
  }

  get kernels(): string | undefined {
    return this.#sides[0].kernels;
  }

  get adapter(): string | undefined {
    return this.#sides[1].adapter;
  }

  /** Of who computes prompts. */
  get batchTokens(): number | undefined {
    return this.#sides[this.#choice.prompt].batchTokens;
  }

  get mostBatchTokens(): number | undefined {
    return this.#sides[this.#choice.prompt].mostBatchTokens;
  }

  get tokenTile(): number | undefined {
    return this.#sides[this.#choice.prompt].tokenTile;
  }

  get sameBitsTokens(): number {
    return Math.min(...this.#sides.map((side) => side.sameBitsTokens ?? Infinity));
  }

  supports(node: GraphNode): true | string {
    for (const side of this.#sides) {
      const answer = side.supports(node);
      if (answer !== true) return `${side.name}: ${answer}`;
    }
    return true;
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    this.#alive();
    const [host, device] = [this.#sides[0].measure(plan, kv), this.#sides[1].measure(plan, kv)];
    const refusal = shortage(this.#sides[0], host) ?? shortage(this.#sides[1], device);
    return {
      ...sumOfUse(host, device),
      limitBytes: host.limitBytes + device.limitBytes,
      deviceBytes: (host.deviceBytes ?? 0) + (device.deviceBytes ?? 0),
      ...(refusal !== undefined && { refusal }),
    };
  }

  async prepare(plan: Plan, kv: KvCacheOptions): Promise<void> {
    this.#alive();
    const [host, device] = this.#sides;
    // The device first: it is the one that may have no room.
    await device.prepare(plan, kv);
    await host.prepare(plan, kv);
    for (const { name, transfer } of this.#sides) {
      if (transfer) continue;
      throw new ModelError(`backend "${name}" keeps its state to itself: it cannot take turns`);
    }
    const groups = kvGroups(plan.graph);
    const bytes = groups.map((_, group) => kvBlockBytes(plan.graph, group, kv.dtype));
    const missingBlocks: Prepared["missingBlocks"] = [];
    const missingSlots: number[] = [];
    this.#prepared = {
      plan,
      newest: new Newest({
        blocks: groups.map((_, group) => groupRoom(kv, group).blocks),
        windows: groups.map(({ window }) => window),
        slots: kv.slots ?? 0,
      }),
      parts: [new Batch(plan.limits), new Batch(plan.limits)],
      outputs: new Int32Array(plan.limits.maxOutputs),
      blockBytes: bytes,
      block: new Uint8Array(Math.max(0, ...bytes)),
      slot: new Float32Array(slotFloats(plan.graph)),
      missingBlocks,
      missingSlots,
      missing: {
        block: (group, block) => missingBlocks.push({ group, block }),
        slot: (slot) => missingSlots.push(slot),
      },
    };
  }

  rest(isOn: boolean): void {
    for (const side of this.#sides) side.rest?.(isOn);
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    for (const side of this.#sides) await side.upload(weight, read);
  }

  async run(batch: Batch, options: RunOptions = {}): Promise<void> {
    const { parts, outputs } = this.#ready();
    const side = onlySide(batch, this.#choice);
    if (side !== undefined) {
      for (let i = 0; i < batch.outputCount; i++) outputs[i] = i * 2 + side;
      await this.#runOn(side, batch, options);
      return;
    }
    divideBatch(batch, this.#choice, parts, outputs);
    // Their sequences are not the same ones, so neither reads what the other writes.
    await this.#runOn(0, parts[0], { ...options, phase: this.#phaseOf(0) });
    await this.#runOn(1, parts[1], { ...options, phase: this.#phaseOf(1) });
  }

  async #runOn(side: Side, batch: Batch, options: RunOptions): Promise<void> {
    await this.#bring(side, batch);
    // Before it is computed: a batch that fails has written, too. What it began with is on this side in any case.
    this.#ready().newest.written(batch, side);
    await this.#sides[side].run(batch, options);
  }

  /** Copies what the batch reads and this side has not got. */
  async #bring(side: Side, batch: Batch): Promise<void> {
    const { newest, missing, missingBlocks, missingSlots, block, blockBytes, slot } = this.#ready();
    missingBlocks.length = 0;
    missingSlots.length = 0;
    newest.bring(batch, side, missing);
    if (missingBlocks.length === 0 && missingSlots.length === 0) return;
    const from = transferOf(this.#sides[side === 0 ? 1 : 0]);
    const to = transferOf(this.#sides[side]);
    this.#bringingTo = side;
    try {
      for (const { group, block: index } of missingBlocks) {
        const bytes = block.subarray(0, blockBytes[group]!);
        await from.readBlock(group, index, bytes);
        to.writeBlock(group, index, bytes);
      }
      for (const index of missingSlots) {
        await from.readSlot(index, slot);
        to.writeSlot(index, slot);
      }
    } finally {
      this.#bringingTo = undefined;
    }
    this.copiedBlocks += missingBlocks.length;
  }

  /** State goes out of a side that has it, and comes in on the host's, from which the next batch takes what it needs. */
  get lost(): Backend["lost"] {
    return this.#sides[0].lost ?? this.#sides[1].lost;
  }

  get transfer(): StateTransfer {
    const sideWith = (has: (side: Side) => boolean): StateTransfer => {
      const sides = ([0, 1] as const).filter(has);
      const side = sides.find((one) => one !== this.#bringingTo) ?? sides[0] ?? 0;
      return transferOf(this.#sides[side]);
    };
    const [host] = this.#sides;
    return {
      readBlock: (group, block, target) =>
        sideWith((side) => this.#ready().newest.hasBlock(group, block, side)).readBlock(
          group,
          block,
          target,
        ),
      readSlot: (slot, target) =>
        sideWith((side) => this.#ready().newest.hasSlot(slot, side)).readSlot(slot, target),
      writeBlock: (group, block, source) => {
        transferOf(host).writeBlock(group, block, source);
        this.#ready().newest.filledBlock(group, block, 0);
      },
      writeSlot: (slot, source) => {
        transferOf(host).writeSlot(slot, source);
        this.#ready().newest.filledSlot(slot, 0);
      },
    };
  }

  read(output: OutputName, row: number, target: Float32Array): Promise<void> | void {
    const place = this.#ready().outputs[row]!;
    return this.#sides[(place & 1) as Side].read(output, place >> 1, target);
  }

  widened(): Widened | undefined {
    for (const backend of this.#sides) {
      const widened = backend.widened?.();
      if (widened) return widened;
    }
    return undefined;
  }

  kvOverflow(): KvOverflow | undefined {
    // Each forgets what it is asked for.
    const found = this.#sides.map((backend) => backend.kvOverflow?.());
    return found.find((one) => one !== undefined);
  }

  async widen(): Promise<boolean> {
    const done = await Promise.all(this.#sides.map((backend) => backend.widen?.() ?? false));
    return done.includes(true);
  }

  copyKvBlock(from: number, to: number, group?: number): void {
    const { newest, plan } = this.#ready();
    for (const side of this.#sides) side.copyKvBlock(from, to, group);
    const groups = group === undefined ? kvGroups(plan.graph).keys() : [group];
    for (const one of groups) newest.copied(one, from, to);
  }

  async growKv(blocks: readonly number[], pause?: () => Promise<void>): Promise<void> {
    const [host, device] = this.#sides;
    await device.growKv?.(blocks, pause);
    await host.growKv?.(blocks, pause);
  }

  async warmUp(contextSize: number): Promise<void> {
    for (const side of this.#sides) await side.warmUp?.(contextSize);
  }

  memory(): MemoryUse {
    return this.#sides.map((side) => side.memory()).reduce(sumOfUse);
  }

  placement(): readonly LayerPlace[] {
    const { plan } = this.#ready();
    return this.#sides.map((side, i) => ({
      backend: side.name,
      firstLayer: 0,
      layers: layerCount(plan.graph),
      hasOutput: true,
      weightBytes: side.memory().weightBytes,
      isDevice: i === 1,
      phase: this.#phaseOf(i as Side),
      ...(side.adapter !== undefined && { adapter: side.adapter }),
    }));
  }

  explain(): readonly string[] {
    return [
      `prompts on ${this.#sides[this.#choice.prompt].name}, generated tokens on ${this.#sides[this.#choice.generation].name}: each has all layers`,
      ...this.#notes,
      ...this.#sides.flatMap((side) => side.explain().map((line) => `${side.name}: ${line}`)),
    ];
  }

  profile(): BackendProfile | undefined {
    const [first, second] = this.#sides.map((side) => side.profile?.());
    return first && second && joinProfiles(this.name, first, second, "own");
  }

  resetProfile(): void {
    for (const side of this.#sides) side.resetProfile?.();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#prepared = undefined;
    for (const side of this.#sides) side.dispose();
  }

  async ended(): Promise<void> {
    await Promise.all(this.#sides.map((side) => side.ended?.()));
  }

  #phaseOf(side: Side): BatchPhase {
    return this.#choice.generation === side ? "generation" : "prompt";
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the backend of two that take turns");
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("switch backend: run() before prepare()");
    return this.#prepared;
  }
}

function transferOf({ transfer }: Backend): StateTransfer {
  return transfer!;
}

/** Why a backend cannot hold its copy; undefined: it can. */
function shortage({ name }: Backend, need: MemoryNeed): string | undefined {
  if (need.refusal === undefined && totalBytes(need) <= need.limitBytes) return undefined;
  const why = need.refusal === undefined ? "" : `: ${need.refusal}`;
  return `"${name}" cannot hold all of the model, which both backends must if they take turns${why}. Use gpuLayers, which divides the layers`;
}
