// A model on two backends: prompts are computed by one (say, a GPU, which gains from many tokens), generated tokens by the other
// (say, a processor, to which no token has to be copied). Each holds all weights and a cache of its own; rows that one has written to
// the cache and the other is to read are copied before the batch that reads them (newest.ts).
//
// It is a backend itself, knows neither of the two, and works with any that can export their state (StateTransfer). The side
// of each token was decided before (src/tune/sides.ts), by measured times.

import { DisposedError, LanternError, MemoryError, ModelError } from "../../base/errors.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvBlockBytes, slotFloats } from "../../graph/cost.ts";
import {
  type GraphNode,
  kvGroups,
  layerCount,
  type OutputName,
  sectionsOf,
  type Value,
  type Weight,
} from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import {
  type Backend,
  type BackendProfile,
  type BatchPhase,
  groupCapacity,
  type KvCacheOptions,
  type KvOverflow,
  type LayerPlace,
  type MemoryNeed,
  type MemoryUse,
  type NeuronWeights,
  type RunOptions,
  type StateTransfer,
  type WeightReader,
  type Widened,
} from "../backend.ts";
import { crossFloats } from "../cross-values.ts";
import { joinProfiles, sideProfiles } from "../join-profiles.ts";
import { sumOfUse, totalBytes } from "../memory-use.ts";
import type { Sides } from "./crossover.ts";
import { divideBatch, joinRows, onlySide, type Places, type SideChoice } from "./divide-batch.ts";
import { type Missing, Newest, type Side } from "./newest.ts";

export interface SwitchOptions {
  readonly host: Backend;
  readonly device: Backend;
  readonly choice: SideChoice;
  /** Why, for --explain. */
  readonly notes?: readonly string[];
  /**
   * The device only helps with large batches of prompts (op offload): it is forgone where there is no memory for it, unless it was
   * demanded, and the model is the host's for people.
   */
  readonly helps?: "if it can" | "demanded" | undefined;
}

interface Prepared {
  readonly plan: Plan;
  readonly newest: Newest;
  /** For a batch of which each side has a part. */
  readonly parts: readonly [Batch, Batch];
  /** New rows of the last batch. */
  readonly places: Places;
  /** Values that another part of the graph reads, of each side, if a batch is divided. */
  readonly given: readonly [Float32Array, Float32Array];
  /** By group. */
  readonly blockBytes: readonly number[];
  /** The tokens for which all groups have blocks from the start. */
  readonly heldTokens: number;
  /** Blocks of the largest group, a slot: on their way. */
  readonly blocks: readonly Uint8Array[];
  readonly slot: Float32Array;
  /** Blocks and slots that the next batch lacks: group and block; slots. Filled anew for each batch. */
  readonly missingBlocks: { group: number; block: number }[];
  readonly missingSlots: number[];
  /** Fills the two above. */
  readonly missing: Missing;
}

/** Cache blocks that are on their way at the same time: a device has a round trip for each. */
const BLOCKS_AT_ONCE = 8;

export class SwitchBackend implements Backend {
  readonly #sides: readonly [Backend, Backend];
  #choice: SideChoice;
  #notes: readonly string[];
  readonly #helps: SwitchOptions["helps"];
  /** Why the host computes everything. */
  #forgone: string | undefined;
  #prepared: Prepared | undefined;
  #disposed = false;
  /** The side that gets blocks now: it has them by the books, but not all have arrived. */
  #bringingTo: Side | undefined;
  /** Cache blocks that went from one side to the other. */
  copiedBlocks = 0;

  /** Owns both: dispose() disposes of them. */
  constructor({ host, device, choice, notes = [], helps }: SwitchOptions) {
    this.#helps = helps;
    this.#sides = [host, device];
    this.#choice = choice;
    this.#notes = notes;
  }

  get name(): string {
    return this.#helps ? this.#sides[0].name : this.#sides.map(({ name }) => name).join("|");
  }

  get threads(): number {
    return this.#sides[0].threads;
  }

  get kernels(): string | undefined {
    return this.#sides[0].kernels;
  }

  get adapter(): string | undefined {
    return this.#helps ? undefined : this.#sides[1].adapter;
  }

  /** The value of the side that computes prompts. */
  get batchTokens(): number | undefined {
    return this.#sides[this.#choice.prompt].batchTokens;
  }

  get mostBatchTokens(): number | undefined {
    return this.#sides[this.#choice.prompt].mostBatchTokens;
  }

  get tokenTile(): number | undefined {
    return this.#sides[this.#helps ? 0 : this.#choice.prompt].tokenTile;
  }

  get sameBitsTokens(): number {
    return Math.min(...this.#inUse.map((side) => side.sameBitsTokens ?? Infinity));
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
    if (this.#helps) return this.#measureHelp(plan, kv);
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
    await this.#prepareDevice(device, plan, kv);
    await host.prepare(plan, kv);
    for (const { name, transfer } of this.#inUse) {
      if (transfer) continue;
      throw new ModelError(`backend "${name}" keeps its state to itself: it cannot take turns`);
    }
    const groups = kvGroups(plan.graph);
    const bytes = groups.map((_, group) => kvBlockBytes(plan.graph, group, kv.dtype));
    const missingBlocks: Prepared["missingBlocks"] = [];
    const missingSlots: number[] = [];
    const floats = crossFloats(givenBy(plan), plan.limits);
    this.#prepared = {
      plan,
      newest: new Newest({
        blocks: groups.map((_, group) => groupCapacity(kv, group).blocks),
        windows: groups.map(({ window }) => window),
        slots: kv.slots ?? 0,
      }),
      parts: [new Batch(plan.limits), new Batch(plan.limits)],
      places: {
        tokens: new Int32Array(plan.limits.maxTokens),
        outputs: new Int32Array(plan.limits.maxOutputs),
      },
      given: [new Float32Array(floats), new Float32Array(floats)],
      blockBytes: bytes,
      heldTokens: KV_BLOCK_TOKENS * Math.min(kv.tableLength, ...kv.groups.map(({ held }) => held)),
      blocks: Array.from({ length: BLOCKS_AT_ONCE }, () => new Uint8Array(Math.max(0, ...bytes))),
      slot: new Float32Array(slotFloats(plan.graph)),
      missingBlocks,
      missingSlots,
      missing: {
        block: (group, block) => missingBlocks.push({ group, block }),
        slot: (slot) => missingSlots.push(slot),
      },
    };
  }

  async #prepareDevice(device: Backend, plan: Plan, kv: KvCacheOptions): Promise<void> {
    if (this.#forgone !== undefined) return;
    try {
      if (this.#helps) {
        const { limitBytes, refusal, ...use } = device.measure(plan, kv);
        const why = refusal ?? "the GPU has no memory for it";
        if (refusal !== undefined || totalBytes(use) > limitBytes) throw new MemoryError(why);
      }
      await device.prepare(plan, kv);
    } catch (error) {
      if (!this.#helps || !(error instanceof LanternError)) throw error;
      if (this.#helps === "demanded" && !(error instanceof MemoryError)) throw error;
      this.forgo(error.message);
    }
  }

  /** From now on the host computes everything. */
  forgo(why: string): void {
    if (this.#helps === "demanded") throw new MemoryError(`op offload: ${why}`);
    if (this.#forgone !== undefined) return;
    this.#forgone = why;
    this.#sides[1].dispose();
  }

  /** Both sides, and the plan that they were prepared for, to measure them; undefined: one of them computes everything. */
  get apart(): Sides | undefined {
    if (this.#forgone !== undefined || !this.#prepared) return undefined;
    const { plan, blockBytes, heldTokens } = this.#prepared;
    return { sides: this.#sides, plan, blockBytes, heldTokens };
  }

  /** The number of prompt tokens from which the device computes them; infinite: it computes none. */
  get helpsFrom(): number {
    const { fewest = 0 } = this.#choice;
    return this.#forgone === undefined ? fewest : Number.POSITIVE_INFINITY;
  }

  /** Sets the number of tokens from which the device helps, and the reason. Before the first batch. */
  helpFrom(fewest: number, notes: readonly string[]): void {
    this.#choice = { ...this.#choice, fewest };
    this.#notes = notes;
  }

  #measureHelp(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    const [host, device] = this.#sides;
    const need = host.measure(plan, kv);
    if (this.#forgone !== undefined) return need;
    try {
      const { limitBytes, refusal, ...use } = device.measure(plan, kv);
      const fits = refusal === undefined && totalBytes(use) <= limitBytes;
      if (fits)
        return { ...need, optional: sumOfUse(use, { weightBytes: 0, kvBytes: 0, workBytes: 0 }) };
    } catch (error) {
      if (!(error instanceof LanternError)) throw error; // prepare() says why
    }
    return need;
  }

  rest(isOn: boolean): void {
    for (const side of this.#inUse) side.rest?.(isOn);
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    for (const side of this.#inUse) await side.upload(weight, read);
  }

  async run(batch: Batch, options: RunOptions = {}): Promise<void> {
    const { plan, parts, places, given } = this.#ready();
    if (this.#forgone !== undefined) return await this.#sides[0].run(batch, options);
    const side = onlySide(batch, this.#choice);
    if (side !== undefined) {
      for (let i = 0; i < batch.outputCount; i++) places.outputs[i] = i * 2 + side;
      await this.#runOn(side, batch, options);
      return;
    }
    divideBatch(batch, this.#choice, parts, places);
    // They have different sequences, so neither reads rows that the other writes.
    for (const one of [0, 1] as const) {
      const own = { ...options, phase: this.#phaseOf(one), output: given[one] };
      await this.#runOn(one, parts[one], own);
    }
    if (options.output) joinRows(givenBy(plan), batch, parts, places, given, options.output);
  }

  async #runOn(side: Side, batch: Batch, options: RunOptions): Promise<void> {
    await this.#bring(side, batch);
    // Before it is computed: a batch that fails has written, too. The state that it began with is on this side in any
    // case.
    this.#ready().newest.written(batch, side);
    await this.#sides[side].run(batch, options);
  }

  /** Copies the rows that the batch reads and this side lacks. */
  async #bring(side: Side, batch: Batch): Promise<void> {
    const { newest, missing, missingBlocks, missingSlots, blocks, blockBytes, slot } =
      this.#ready();
    missingBlocks.length = 0;
    missingSlots.length = 0;
    newest.bring(batch, side, missing);
    if (missingBlocks.length === 0 && missingSlots.length === 0) return;
    const from = transferOf(this.#sides[side === 0 ? 1 : 0]);
    const to = transferOf(this.#sides[side]);
    this.#bringingTo = side;
    try {
      for (let i = 0; i < missingBlocks.length; i += blocks.length) {
        const next = missingBlocks.slice(i, i + blocks.length);
        await Promise.all(
          next.map(async ({ group, block }, j) => {
            const bytes = blocks[j]!.subarray(0, blockBytes[group]!);
            await from.readBlock(group, block, bytes);
            to.writeBlock(group, block, bytes);
          }),
        );
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

  /** State leaves from a side that has it, and enters on the host's, from which the next batch takes its rows. */
  get lost(): Backend["lost"] {
    return this.#sides[0].lost ?? this.#sides[1].lost;
  }

  get transfer(): StateTransfer {
    if (this.#forgone !== undefined) return transferOf(this.#sides[0]);
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
    if (this.#forgone !== undefined) return this.#sides[0].read(output, row, target);
    const place = this.#ready().places.outputs[row]!;
    return this.#sides[(place & 1) as Side].read(output, place >> 1, target);
  }

  widened(): Widened | undefined {
    for (const backend of this.#inUse) {
      const widened = backend.widened?.();
      if (widened) return widened;
    }
    return undefined;
  }

  kvOverflow(): KvOverflow | undefined {
    // Each forgets its overflow when it is asked.
    const found = this.#inUse.map((backend) => backend.kvOverflow?.());
    return found.find((one) => one !== undefined);
  }

  async widen(): Promise<boolean> {
    const done = await Promise.all(this.#inUse.map((backend) => backend.widen?.() ?? false));
    return done.includes(true);
  }

  copyKvBlock(from: number, to: number, group?: number): void {
    const { newest, plan } = this.#ready();
    for (const side of this.#inUse) side.copyKvBlock(from, to, group);
    const groups = group === undefined ? kvGroups(plan.graph).keys() : [group];
    for (const one of groups) newest.copied(one, from, to);
  }

  async growKv(blocks: readonly number[], pause?: () => Promise<void>): Promise<void> {
    const [host, device] = this.#sides;
    if (this.#forgone === undefined) await device.growKv?.(blocks, pause);
    await host.growKv?.(blocks, pause);
  }

  async warmUp(contextSize: number, onlyLargest?: boolean): Promise<void> {
    for (const side of this.#inUse) await side.warmUp?.(contextSize, onlyLargest);
  }

  memory(): MemoryUse {
    return this.#inUse.map((side) => side.memory()).reduce(sumOfUse);
  }

  neurons(): NeuronWeights | undefined {
    return this.#helps && this.#sides[0].neurons?.();
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
    const [host, device] = this.#sides;
    if (this.#forgone !== undefined) return [`op offload: no. ${this.#forgone}`, ...host.explain()];
    if (this.#helps) {
      return [
        ...this.#notes.map((note) => `op offload: ${note}`),
        ...host.explain(),
        ...device.explain().map((line) => `op offload: ${device.name}: ${line}`),
      ];
    }
    return [
      `prompts on ${this.#sides[this.#choice.prompt].name}, generated tokens on ${this.#sides[this.#choice.generation].name}: each has all layers`,
      ...this.#notes,
      ...this.#sides.flatMap((side) => side.explain().map((line) => `${side.name}: ${line}`)),
    ];
  }

  profile(): BackendProfile | undefined {
    if (this.#forgone !== undefined) return this.#inUse[0]?.profile?.();
    const sides = sideProfiles(this.#inUse);
    return sides && joinProfiles(this.name, sides, "own");
  }

  resetProfile(): void {
    for (const side of this.#inUse) side.resetProfile?.();
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

  get #inUse(): readonly Backend[] {
    return this.#forgone === undefined ? this.#sides : [this.#sides[0]];
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

/** Values that another part of the graph reads. */
function givenBy({ graph }: Plan): readonly Value[] {
  return sectionsOf(graph)[0]!.gives;
}

/** Why a backend cannot hold its copy; undefined: it can. */
function shortage({ name }: Backend, need: MemoryNeed): string | undefined {
  if (need.refusal === undefined && totalBytes(need) <= need.limitBytes) return undefined;
  const why = need.refusal === undefined ? "" : `: ${need.refusal}`;
  return `"${name}" cannot hold all of the model, which both backends must if they take turns${why}. Use gpuLayers, which divides the layers`;
}
