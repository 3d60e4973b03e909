// The split backend: the first layers of a model on one backend (the host), the last ones and the output on another (the
// device), and tensors that are placed by name (overrides.ts) on either. Each has the weights and the cache of its own part.
// The two compute alternately, and the values that the other reads pass through host memory: the residual once per batch, or
// two values for each layer whose experts are on the host.
//
// It works with any two backends. With everything on one of them it only forwards calls, and the other is disposed of. A
// model that does not fit is refused with the number of layers that would.

import { memoryText } from "../../base/byte-sizes.ts";
import { DisposedError, MemoryError } from "../../base/errors.ts";
import type { Batch } from "../../graph/batch.ts";
import { kvBlockBytes, slotFloats, weightBytes } from "../../graph/cost.ts";
import {
  type Graph,
  type GraphNode,
  layerCount,
  type OutputName,
  type Weight,
} from "../../graph/graph.ts";
import { pieceReader } from "../../graph/hot-neurons.ts";
import type { Plan } from "../../graph/plan.ts";
import type {
  Backend,
  BackendProfile,
  BestLogits,
  KvCacheOptions,
  KvOverflow,
  LayerPlace,
  MemoryNeed,
  MemoryUse,
  NeuronWeights,
  RunOptions,
  StateTransfer,
  TuningControls,
  WeightReader,
  Widened,
} from "../backend.ts";
import { crossFloats } from "../cross-values.ts";
import { joinProfiles, sideProfiles } from "../join-profiles.ts";
import { sumOfUse, totalBytes } from "../memory-use.ts";
import {
  canDivide,
  checkNeurons,
  crossingsText,
  type Division,
  dividePlan,
  hotText,
  layersAdvice,
  layersText,
  mostLayers,
  mostThatFit,
} from "./divide.ts";
import { type HotOffer, hotOffer } from "./hot-offer.ts";
import { checkOverrides, overridesText, type TensorOverride } from "./overrides.ts";

export interface SplitOptions {
  readonly host: Backend;
  readonly device: Backend;
  /** Layers on the device, the output counted as one, as -ngl; "auto": as many as fit its memory. */
  readonly layers: number | "all" | "auto";
  /** No more than these on the device, however many would fit. */
  readonly most?: number | undefined;
  /** Tensors that are elsewhere than their layer. */
  readonly overrides?: readonly TensorOverride[];
  /** The share of the neurons of ReLU networks that is on the device, the first ones; the others are on the host. Default: 0. */
  readonly hotNeurons?: number | undefined;
  /** Why, for --explain. */
  readonly notes?: readonly string[] | undefined;
}

/** One of the two backends, with the part of the plan that it runs. */
interface Part {
  readonly backend: Backend;
  readonly plan: Plan;
}

interface Prepared {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly division: Division;
  /** One or two, in the order in which they compute. */
  readonly parts: readonly Part[];
  /** Values on their way from one to the other (cross-values.ts). */
  readonly stream: Float32Array;
}

export class SplitBackend implements Backend {
  readonly #host: Backend;
  readonly #device: Backend;
  readonly #layers: SplitOptions["layers"];
  readonly #most: number;
  readonly #overrides: readonly TensorOverride[];
  readonly #hotNeurons: number;
  readonly #notes: readonly string[];
  /** Divisions of the last plan, by layers on the device. They are kept because backends recognise a layout by its plan. */
  #divided: { plan: Plan; divisions: Map<number, Division> } | undefined;
  #prepared: Prepared | undefined;
  /** Why "auto" has put nothing on the device. */
  #whyNone: string | undefined;
  #disposed = false;

  /** Owns both backends: dispose() disposes of them. */
  constructor({
    host,
    device,
    layers,
    most,
    overrides = [],
    hotNeurons = 0,
    notes = [],
  }: SplitOptions) {
    this.#host = host;
    this.#device = device;
    this.#layers = layers;
    this.#most = most ?? Number.POSITIVE_INFINITY;
    this.#overrides = overrides;
    this.#hotNeurons = hotNeurons;
    this.#notes = notes;
  }

  get name(): string {
    return this.#inUse.map(({ name }) => name).join("+");
  }

  get threads(): number {
    return this.#inUse[0]!.threads;
  }

  get kernels(): string | undefined {
    return this.#inUse[0]!.kernels;
  }

  /** The device's, if it has anything: it gains from large batches, and the processor loses nothing by them. */
  get batchTokens(): number | undefined {
    return (this.#isOnHost ? this.#host : this.#device).batchTokens;
  }

  get mostBatchTokens(): number | undefined {
    return (this.#isOnHost ? this.#host : this.#device).mostBatchTokens;
  }

  get tokenTile(): number | undefined {
    const isOnDevice = this.#layers === "all" && !this.#isCut;
    return isOnDevice ? this.#device.tokenTile : this.#host.tokenTile;
  }

  /** Whether layers are divided. */
  get #isCut(): boolean {
    return this.#overrides.length > 0 || this.#hotNeurons > 0;
  }

  get #isOnHost(): boolean {
    return this.#layers === 0 && !this.#isCut;
  }

  get sameBitsTokens(): number {
    return Math.min(...this.#inUse.map((backend) => backend.sameBitsTokens ?? Infinity));
  }

  /**
   * Both must support an op, since its backend is not known yet. With tensors by name, the host computes the ops that the device does not,
   * unless it reads state.
   */
  supports(node: GraphNode): true | string {
    const mayMove = this.#overrides.length > 0 && !("state" in node);
    if (mayMove) return this.#host.supports(node);
    const refused = [this.#host, this.#device]
      .map((backend) => ({ name: backend.name, answer: backend.supports(node) }))
      .find(({ answer }) => answer !== true);
    return refused ? `${refused.name}: ${refused.answer}` : true;
  }

  measure(plan: Plan, kv: KvCacheOptions): MemoryNeed {
    this.#alive();
    if (this.#layers !== "auto") return this.#need(plan, kv, asCount(this.#layers, plan));
    const layers = this.#mostByArithmetic(plan, kv);
    return this.#need(plan, kv, layers);
  }

  async prepare(plan: Plan, kv: KvCacheOptions): Promise<void> {
    this.#alive();
    const isAuto = this.#layers === "auto";
    const wanted = isAuto
      ? this.#mostByArithmetic(plan, kv)
      : asCount(this.#layers as number | "all", plan);
    try {
      await this.#prepareWith(plan, kv, wanted);
      if (isAuto && wanted === 0 && this.#most > 0)
        this.#whyNone = this.#noneByArithmetic(plan, kv);
    } catch (error) {
      // measure() relies on the device's report; the memory it really has shows only now.
      if (!(error instanceof MemoryError) || wanted === 0) throw error;
      const fitting = await this.#mostByTrying(plan, kv, wanted - 1);
      if (!isAuto) throw new MemoryError(`${error.message}. ${advice(fitting, plan)}`);
      await this.#prepareWith(plan, kv, fitting);
      if (fitting === 0) this.#whyNone = error.message;
    }
  }

  warnings(): readonly string[] {
    if (this.#whyNone === undefined) return [];
    return [
      `gpuLayers: auto: not even the output fits the GPU's memory, so the processor computes all layers (${this.#whyNone})`,
    ];
  }

  #noneByArithmetic(plan: Plan, kv: KvCacheOptions): string | undefined {
    const least = candidates(plan)[0];
    const part = least === undefined ? undefined : this.#divide(plan, least).device;
    if (!part) return undefined;
    const need = measured(this.#device, part, kv);
    return need.refusal ?? shortage(need, this.#device, plan, least!);
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    // With tied embeddings, both parts need the same weight.
    const { parts, division } = this.#ready();
    for (const { backend, plan } of parts) {
      const isUsed = ({ name }: Weight) => plan.graph.weights.some((own) => own.name === name);
      if (isUsed(weight)) await backend.upload(weight, read);
      for (const piece of division.neurons?.pieces.get(weight.name) ?? []) {
        if (isUsed(piece.weight)) {
          await backend.upload(piece.weight, pieceReader(weight, piece, read));
        }
      }
    }
  }

  run(batch: Batch, options: RunOptions = {}): Promise<void> | void {
    const { parts } = this.#ready();
    return this.#only ? parts[0]!.backend.run(batch, options) : this.#runBoth(batch, options);
  }

  /** A backend has read its input before it writes its output, so both are the same memory. */
  async #runBoth(batch: Batch, options: RunOptions): Promise<void> {
    const { stream, division } = this.#ready();
    const own: RunOptions = { ...options, input: stream, output: stream };
    const beside = division.neurons && { ...own };
    const { turns } = division;
    for (let i = 0; i < turns.length; i++) {
      const { side, section } = turns[i]!;
      own.section = section;
      const run = (side === "front" ? this.#host : this.#device).run(batch, own);
      const next = turns[i + 1];
      // A tap sees the values in their order.
      if (!next?.isBeside || !beside || options.tap) await run;
      else {
        beside.section = next.section;
        await this.#runBeside(run, batch, beside);
        i++;
      }
    }
  }

  /** The host computes a section while the device computes another. */
  async #runBeside(other: Promise<void> | void, batch: Batch, options: RunOptions): Promise<void> {
    other?.catch(() => {}); // it is awaited below, perhaps long after it has failed
    try {
      await this.#host.run(batch, options);
    } finally {
      // Both end, even if one fails.
      await other;
    }
  }

  read(output: OutputName, row: number, target: Float32Array): Promise<void> | void {
    const { parts } = this.#ready();
    const part = parts.find(({ plan }) => plan.graph.outputs[output] !== undefined) ?? parts.at(-1);
    return part!.backend.read(output, row, target);
  }

  // Functions that only some backends have: all of one backend's, if it computes alone; with both, the host takes part
  // in every batch.

  get computesApart(): boolean {
    return this.#only?.computesApart ?? false;
  }

  get mostBest(): number {
    return this.#only?.mostBest ?? 0;
  }

  get readsAdjusted(): boolean {
    return this.#only?.readsAdjusted ?? false;
  }

  readBest(row: number, target: BestLogits): boolean {
    return this.#only?.readBest?.(row, target) ?? false;
  }

  get wasAhead(): boolean {
    return this.#only?.wasAhead ?? false;
  }

  lookahead(): { readonly submitted: number; readonly dropped: number } {
    return this.#only?.lookahead?.() ?? { submitted: 0, dropped: 0 };
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
    for (const { backend } of this.#ready().parts) backend.copyKvBlock(from, to, group);
  }

  /** The states of the first part come first, as in the whole graph. */
  get lost(): Backend["lost"] {
    return this.#device.lost ?? this.#host.lost;
  }

  get transfer(): StateTransfer | undefined {
    const { parts, kv } = this.#ready();
    const own = parts.map(({ backend, plan }) => ({ transfer: backend.transfer, plan }));
    if (own.some(({ transfer }) => !transfer)) return undefined;
    const blockOf = (group: number, bytes: Uint8Array) => {
      let at = 0;
      return own.map(({ transfer, plan }) => {
        const size = kvBlockBytes(plan.graph, group, kv.dtype);
        at += size;
        return { transfer: transfer!, piece: bytes.subarray(at - size, at) };
      });
    };
    const slotOf = (floats: Float32Array) => {
      let at = 0;
      return own.map(({ transfer, plan }) => {
        const size = slotFloats(plan.graph);
        at += size;
        return { transfer: transfer!, piece: floats.subarray(at - size, at) };
      });
    };
    return {
      readBlock: async (group, block, target) => {
        const pieces = blockOf(group, target);
        await Promise.all(
          pieces.map(({ transfer, piece }) => transfer.readBlock(group, block, piece)),
        );
      },
      writeBlock: (group, block, source) => {
        for (const { transfer, piece } of blockOf(group, source)) {
          transfer.writeBlock(group, block, piece);
        }
      },
      readSlot: async (slot, target) => {
        const pieces = slotOf(target);
        await Promise.all(pieces.map(({ transfer, piece }) => transfer.readSlot(slot, piece)));
      },
      writeSlot: (slot, source) => {
        for (const { transfer, piece } of slotOf(source)) transfer.writeSlot(slot, piece);
      },
    };
  }

  async growKv(blocks: readonly number[], pause?: () => Promise<void>): Promise<void> {
    // The device first: it is the one that may run out of memory.
    for (const { backend } of [...this.#ready().parts].reverse()) {
      await backend.growKv?.(blocks, pause);
    }
  }

  async warmUp(contextSize: number, onlyLargest?: boolean): Promise<void> {
    for (const { backend } of this.#ready().parts) await backend.warmUp?.(contextSize, onlyLargest);
  }

  memory(): MemoryUse {
    return this.#inUse.map((backend) => backend.memory()).reduce(sumOfUse);
  }

  /** The device of each layer; known once prepared. */
  placement(): readonly LayerPlace[] {
    const { parts, plan } = this.#ready();
    const outputs = Object.keys(plan.graph.outputs).length;
    let firstLayer = 0;
    return parts.map((part) => {
      const layers = layerCount(part.plan.graph);
      const place = {
        backend: part.backend.name,
        firstLayer,
        layers,
        hasOutput: Object.keys(part.plan.graph.outputs).length === outputs,
        weightBytes: part.plan.graph.weights.reduce((all, weight) => all + weightBytes(weight), 0),
        isDevice: part.backend === this.#device,
        ...(this.#overrides.length > 0 && { overrides: this.#overrides.map(({ text }) => text) }),
        ...(part.backend.adapter !== undefined && { adapter: part.backend.adapter }),
      };
      firstLayer += layers;
      return place;
    });
  }

  /** The host's: a device reads all neurons. */
  neurons(): NeuronWeights | undefined {
    return this.#ready().division.host && this.#host.neurons?.();
  }

  /**
   * Hot neurons in the memory that the device's layers take, if the share `zeros` of all neurons is zero; undefined: there can be
   * none.
   */
  async hotOffer(zeros: number): Promise<HotOffer | undefined> {
    const { plan, kv, division } = this.#ready();
    if (!division.device || this.#isCut) return undefined;
    const most = totalBytes(measured(this.#device, division.device, kv));
    const leavable = this.neurons()?.bytes ?? 0;
    return await hotOffer(plan, division, { zeros, leavable }, (part) => {
      const need = measured(this.#device, part, kv);
      return need.refusal === undefined && totalBytes(need) <= most;
    });
  }

  parts(): readonly Graph[] {
    return this.#ready().parts.map(({ plan }) => plan.graph);
  }

  explain(): readonly string[] {
    const prepared = this.#prepared;
    if (!prepared) return [];
    const { parts, plan, division } = prepared;
    if (parts.length === 1) return [...this.#notes, ...parts[0]!.backend.explain()];
    return [
      ...this.#notes,
      `on ${this.#device.name}: ${layersText(division.deviceLayers, plan)}; on ${this.#host.name}: the rest`,
      ...overridesText(this.#overrides, plan.graph),
      ...hotText(division, this.#device.name),
      ...this.#refusedText(plan),
      ...(division.turns.length > 2 ? [crossingsText(division)] : []),
      ...parts.flatMap(({ backend }) =>
        backend.explain().map((line) => `${backend.name}: ${line}`),
      ),
    ];
  }

  /** The ops that the host computes because the device does not. */
  #refusedText({ graph }: Plan): string[] {
    if (this.#overrides.length === 0) return [];
    const refused = graph.nodes.filter((node) => this.#device.supports(node) !== true);
    if (refused.length === 0) return [];
    const ops = [...new Set(refused.map(({ op }) => op))].join(", ");
    return [`${this.#device.name} does not compute ${ops}: they are on ${this.#host.name}`];
  }

  profile(): BackendProfile | undefined {
    if (this.#only) return this.#only.profile?.();
    const sides = sideProfiles(this.#inUse);
    return sides && joinProfiles(this.name, sides);
  }

  resetProfile(): void {
    for (const backend of this.#inUse) backend.resetProfile?.();
  }

  rest(isOn: boolean): void {
    for (const backend of this.#inUse) backend.rest?.(isOn);
  }

  get tuning(): TuningControls | undefined {
    return this.#only?.tuning;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#prepared = undefined;
    this.#host.dispose();
    this.#device.dispose();
  }

  async ended(): Promise<void> {
    await Promise.all([this.#host.ended?.(), this.#device.ended?.()]);
  }

  async #prepareWith(plan: Plan, kv: KvCacheOptions, layers: number): Promise<void> {
    const division = this.#divide(plan, layers);
    const { host, device } = division;
    const helping = host && optionalBytes(measured(this.#host, host, kv));
    if (helping && device && !this.#hasCapacityFor(helping, measured(this.#device, device, kv))) {
      this.#host.forgo?.(`the GPU has no memory for it beside ${layersText(layers, plan)}`);
    }
    // The device first: it is the one that may run out of memory.
    if (device) await this.#device.prepare(device, kv);
    if (host) await this.#host.prepare(host, kv);
    if (!device) this.#device.dispose();
    if (!host) this.#host.dispose();
    const given = [host, device].flatMap((part) => part?.graph.sections ?? []);
    const floats = given.map(({ gives }) => crossFloats(gives, plan.limits));
    this.#prepared = {
      plan,
      kv,
      division,
      parts: [
        ...(host ? [{ backend: this.#host, plan: host }] : []),
        ...(device ? [{ backend: this.#device, plan: device }] : []),
      ],
      stream: new Float32Array(Math.max(0, ...floats)),
    };
    this.#divided = undefined;
  }

  #divide(plan: Plan, layers: number): Division {
    if (this.#divided?.plan !== plan) {
      checkOverrides(this.#overrides, plan.graph);
      if (this.#hotNeurons > 0) checkNeurons(this.#hotNeurons, plan.graph);
      this.#divided = { plan, divisions: new Map() };
    }
    const { divisions } = this.#divided;
    const refuses = (node: GraphNode) => this.#device.supports(node) !== true;
    const division =
      divisions.get(layers) ??
      dividePlan(plan, layers, {
        overrides: this.#overrides,
        hotNeurons: this.#hotNeurons,
        refuses,
      });
    divisions.set(layers, division);
    return division;
  }

  /** The need of both together; the refusal of a part that does not fit names the number of layers that would. */
  #need(plan: Plan, kv: KvCacheOptions, layers: number): MemoryNeed {
    const { host, device } = this.#divide(plan, layers);
    const needs: MemoryNeed[] = [];
    for (const part of [host && this.#host, device && this.#device]) {
      if (!part) continue;
      const need = measured(part, part === this.#host ? host! : device!, kv);
      const isDevice = part === this.#device;
      const refusal = need.refusal ?? (isDevice ? shortage(need, part, plan, layers) : undefined);
      if (refusal === undefined) needs.push(need);
      else {
        const most = isDevice ? this.#mostByArithmetic(plan, kv) : undefined;
        const next = most === undefined ? "" : ` ${advice(most, plan)}`;
        return { ...need, refusal: `${refusal}.${next}` };
      }
    }
    const [first] = needs;
    const helping = optionalBytes(first!);
    const all = needs.reduce((a, b) => ({
      ...sumOfUse(a, b),
      limitBytes: a.limitBytes + b.limitBytes,
      deviceBytes: (a.deviceBytes ?? 0) + (b.deviceBytes ?? 0),
    }));
    if (helping === 0 || (needs[1] && !this.#hasCapacityFor(helping, needs[1]))) return all;
    // The host's memory is not needed for it.
    const { optional } = first!;
    return {
      ...all,
      ...sumOfUse(all, optional!),
      limitBytes: all.limitBytes + helping,
      deviceBytes: (all.deviceBytes ?? 0) + helping,
    };
  }

  /** Whether the device has room for the host's optional device memory (`helping` bytes), beside its own part. */
  #hasCapacityFor(helping: number, device: MemoryNeed): boolean {
    return totalBytes(device) + helping <= device.limitBytes;
  }

  /** The most layers that fit by measure(). */
  #mostByArithmetic(plan: Plan, kv: KvCacheOptions): number {
    for (const layers of candidates(plan, this.#most).reverse()) {
      const need = measured(this.#device, this.#divide(plan, layers).device!, kv);
      if (need.refusal === undefined && totalBytes(need) <= need.limitBytes) return layers;
    }
    return 0;
  }

  /** The most layers for which the device finds the memory when it tries. */
  async #mostByTrying(plan: Plan, kv: KvCacheOptions, limit: number): Promise<number> {
    const device = this.#device;
    if (!device.fits) return 0;
    const counts = candidates(plan, limit);
    const found = await mostThatFit(
      counts.length,
      async (nth) => await device.fits!(this.#divide(plan, counts[nth - 1]!).device!, kv),
    );
    return counts[found - 1] ?? 0;
  }

  /** The backends that compute: both, until that is decided. */
  get #inUse(): readonly Backend[] {
    return this.#prepared?.parts.map(({ backend }) => backend) ?? [this.#host, this.#device];
  }

  get #only(): Backend | undefined {
    return this.#inUse.length === 1 ? this.#inUse[0] : undefined;
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the split backend");
  }

  #ready(): Prepared {
    this.#alive();
    if (!this.#prepared) throw new Error("split backend: run() before prepare()");
    return this.#prepared;
  }
}

function asCount(layers: number | "all", plan: Plan): number {
  return layers === "all" ? mostLayers(plan) : Math.min(layers, mostLayers(plan));
}

/** Numbers of layers that the device may have, but for none. */
function candidates(plan: Plan, most: number = mostLayers(plan)): number[] {
  const all = Array.from({ length: Math.min(most, mostLayers(plan)) }, (_, i) => i + 1);
  return all.filter((layers) => canDivide(plan, layers));
}

function optionalBytes({ optional }: MemoryNeed): number {
  return optional ? totalBytes(optional) : 0;
}

/** measure(), with a MemoryError turned into a refusal. */
function measured(backend: Backend, plan: Plan, kv: KvCacheOptions): MemoryNeed {
  try {
    return backend.measure(plan, kv);
  } catch (error) {
    if (!(error instanceof MemoryError)) throw error;
    const refusal = error.message;
    return { weightBytes: 0, kvBytes: 0, workBytes: 0, limitBytes: 0, refusal };
  }
}

function shortage(
  need: MemoryNeed,
  { name }: Backend,
  plan: Plan,
  layers: number,
): string | undefined {
  if (totalBytes(need) <= need.limitBytes) return undefined;
  const { weightBytes, kvBytes, workBytes } = need;
  return `${layersText(layers, plan)} need ${memoryText(totalBytes(need))} on "${name}" (weights ${memoryText(weightBytes)}, KV cache ${memoryText(kvBytes)}, working memory ${memoryText(workBytes)}), which has ${memoryText(need.limitBytes)}`;
}

function advice(fitting: number, plan: Plan): string {
  return layersAdvice(fitting, mostLayers(plan), layersText(fitting, plan));
}
