// Merges the kernels of a token, layer by layer, into layer kernels (wgsl/layer.ts): a pass over the lowered program. The host's work
// for a dispatch is then done once for a layer. Kernels for several tokens stay as they are.
//
// A layer kernel has the bindings of all of its kernels, and a device limits their number: values that only pass between its kernels need
// none, and if the rest are still too many, a layer becomes several dispatches.

import {
  type Graph,
  type GraphNode,
  outputsOf,
  recurrentStates,
  sectionsOf,
  type Value,
} from "../../graph/graph.ts";
import type { Layout } from "./buffers.ts";
import type { GpuFacts } from "./device.ts";
import type { LayerDispatch } from "./tuning.ts";
import { splitWords } from "./wgsl/attention-split.ts";
import type { Binding, Kernel, KernelSpec, Source } from "./wgsl/kernel.ts";
import {
  arrivalWords,
  EXCHANGE_HEAD,
  type LayerPart,
  layerKernel,
  type Place,
  UNIT,
  WORD,
  workgroupBytes,
} from "./wgsl/layer.ts";

export interface LoweredPart {
  readonly nodes: readonly GraphNode[];
  readonly kernels: readonly Kernel[];
}

interface Merged {
  readonly parts: readonly LoweredPart[];
  /** Words that its layer kernels exchange; 0: there are none. */
  readonly exchangeWords: number;
}

/** A kernel that runs in batches of one token. */
interface Single {
  readonly kernel: Kernel;
  /** The number of its part. */
  readonly part: number;
  /** Kernel.inLayer */
  readonly spec: KernelSpec | undefined;
}

/** The bindings of a layer kernel, and the words that its kernels exchange. */
interface Bound {
  readonly parts: readonly LayerPart[];
  readonly bindings: readonly Binding[];
  readonly words: number;
}

/** The same program, with one dispatch instead of several where possible. */
export function mergeLayers(
  lowered: readonly LoweredPart[],
  layout: Layout,
  facts: GpuFacts,
  dispatch: LayerDispatch,
): Merged {
  const { graph } = layout.plan;
  const none = { parts: lowered, exchangeWords: 0 };
  const { groups, lanes, polls } = dispatch;
  if (groups === 0 || !canRepeat(graph) || (lanes ?? 0) > facts.workgroupLanes) return none;
  const singles = lowered.flatMap(({ kernels }, part) =>
    kernels
      .filter(({ minRows }) => minRows <= 1)
      .map((kernel) => ({ kernel, part, spec: kernel.inLayer?.(lanes) })),
  );
  const starts = startsOf(lowered, graph);
  const found: { run: readonly Single[]; bound: Bound }[] = [];
  for (let at = 0; at < singles.length; ) {
    const longest = longestRun(singles, at, starts, layout, facts);
    if (longest) found.push(longest);
    at += longest?.run.length ?? 1;
  }
  if (found.length === 0) return none;
  const regionWords = Math.max(...found.map(({ bound }) => bound.words));
  const shape = { groups, polls, regionWords };
  const instead = new Map<Kernel, Kernel | undefined>();
  for (const { run, bound } of found) {
    for (const { kernel } of run) instead.set(kernel, undefined);
    instead.set(run[0]!.kernel, layerKernel(bound.parts, bound.bindings, shape));
  }
  const parts = lowered.map(({ nodes, kernels }) => ({
    nodes,
    kernels: kernels.flatMap((kernel) => {
      if (!instead.has(kernel)) return [kernel];
      return instead.get(kernel) ?? [];
    }),
  }));
  return { parts, exchangeWords: EXCHANGE_HEAD + 2 * regionWords };
}

/** Whether a batch can be computed a second time: it only writes state behind the old state. Adapters read values in between. */
export function canRepeat(graph: Graph): boolean {
  if (recurrentStates(graph).length > 0) return false;
  return !graph.nodes.some(({ op }) => op === "adapt" || op === "gather");
}

/** Parts with which a layer or a section begins. */
function startsOf(lowered: readonly LoweredPart[], graph: Graph): ReadonlySet<number> {
  const indices = new Map(graph.nodes.map((node, index) => [node, index]));
  const borders = [...graph.layerStarts, ...sectionsOf(graph).map(({ from }) => from)];
  const first = lowered.map(({ nodes }) => indices.get(nodes[0]!)!);
  const found = borders.map((border) => first.findIndex((index) => index >= border));
  return new Set(found);
}

/** The longest run of kernels from `at` on that can be one kernel; undefined: not even two. */
function longestRun(
  singles: readonly Single[],
  at: number,
  starts: ReadonlySet<number>,
  layout: Layout,
  facts: GpuFacts,
): { run: readonly Single[]; bound: Bound } | undefined {
  let longest: { run: readonly Single[]; bound: Bound } | undefined;
  for (let end = at + 1; end <= singles.length; end++) {
    const { kernel, part, spec } = singles[end - 1]!;
    const isNew = end - 1 > at && part !== singles[end - 2]!.part;
    if (isNew && starts.has(part)) break;
    if (!spec || kernel.rows !== "tokens" || kernel.maxRows !== 1) break;
    if (end === at + 1) continue;
    const run = singles.slice(at, end);
    const bound = boundOf(run, singles, layout, facts);
    // More kernels may fit: a value that only passes between them needs no binding.
    if (bound) longest = { run, bound };
  }
  return longest;
}

/** undefined: these kernels cannot be one. */
function boundOf(
  run: readonly Single[],
  singles: readonly Single[],
  layout: Layout,
  facts: GpuFacts,
): Bound | undefined {
  const specs = run.map(({ spec }) => spec!);
  if (specs.some(({ size }) => size !== specs[0]!.size)) return undefined;
  if (workgroupBytes(specs) > facts.workgroupStorageBytes) return undefined;
  if (specs.filter(({ bindings }) => bindings.some(writesScratch)).length > 1) return undefined;
  const inside = new Set(run.map(({ kernel }) => kernel));
  const outside = singles.filter(({ kernel }) => !inside.has(kernel));
  const readLater = new Set(outside.flatMap(({ kernel }) => kernel.sources.map(keyOf)));
  for (const value of resultsOfSections(layout.plan.graph)) {
    readLater.add(keyOf({ kind: "value", value }));
  }
  const binder = new Binder(layout, specs, readLater);
  const places = specs.map((spec) => binder.placesOf(spec));
  if (places.some((place) => place === undefined)) return undefined;
  if (binder.bindings.length > facts.storageBuffers) return undefined;
  const parts = specs.map((spec, i): LayerPart => {
    return { spec, places: places[i]!, after: afterOf(i, specs, places[i]!) };
  });
  return { parts, bindings: binder.bindings, words: Math.ceil(binder.words / 64) * 64 };
}

/** The number of kernels that must be done before a kernel: those that compute its operands; all, if they may read its buffer. */
function afterOf(i: number, specs: readonly KernelSpec[], places: Map<string, Place>): number {
  const { bindings } = specs[i]!;
  const isShared = ({ name, writes }: Binding): boolean => {
    const place = places.get(name)!;
    return writes === true && (place.kind === "bound" || "also" in place);
  };
  if (bindings.some(isShared)) return i;
  const read = new Set(bindings.filter(({ writes }) => !writes).map(({ source }) => keyOf(source)));
  const makes = (spec: KernelSpec): boolean =>
    spec.bindings.some(({ source, writes }) => writes && read.has(keyOf(source)));
  return specs.slice(0, i).findLastIndex(makes) + 1;
}

/** Values that are copied to the host. */
function resultsOfSections(graph: Graph): readonly Value[] {
  return [...outputsOf(graph), ...sectionsOf(graph).flatMap(({ gives }) => gives)];
}

/** Assigns the bindings of kernels to those of a layer kernel. */
class Binder {
  readonly bindings: Binding[] = [
    { name: "exchange", type: "atomic<u32>", source: { kind: "exchange" }, writes: true },
  ];
  words: number;
  readonly #layout: Layout;
  readonly #readLater: ReadonlySet<string>;
  /** Values that a kernel of the layer writes, and of these those that a later one reads. */
  readonly #written = new Map<string, Source>();
  readonly #exchanged = new Set<string>();
  /** Types as which values are read. */
  readonly #types = new Map<string, Set<string>>();
  readonly #wordOf = new Map<string, number>();
  readonly #named = new Map<string, string>();

  constructor(layout: Layout, specs: readonly KernelSpec[], readLater: ReadonlySet<string>) {
    this.#layout = layout;
    this.#readLater = readLater;
    this.words = arrivalWords(specs.length);
    for (const { bindings } of specs) {
      for (const { source, type, writes } of bindings) {
        const key = keyOf(source);
        if (isScratch(source)) continue;
        if (writes && !isCache(source)) this.#written.set(key, source);
        else if (this.#written.has(key)) this.#exchanged.add(key);
        this.#types.set(key, (this.#types.get(key) ?? new Set()).add(type));
      }
    }
  }

  /** undefined: this kernel cannot be part of a layer kernel. */
  placesOf({ bindings }: KernelSpec): Map<string, Place> | undefined {
    const places = new Map<string, Place>();
    for (const binding of bindings) {
      const place = this.#placeOf(binding);
      if (!place) return undefined;
      places.set(binding.name, place);
    }
    return places;
  }

  #placeOf({ source, type, writes }: Binding): Place | undefined {
    const key = keyOf(source);
    if (isScratch(source)) return { kind: "words", word: this.#wordFor(key, source) };
    if (this.#exchanged.has(key)) {
      const word = this.#wordFor(key, source);
      const words = exchangedWords(source, this.#layout);
      const isReadLater = writes && this.#readLater.has(key);
      return { kind: "exchanged", word, words, ...(isReadLater && { also: this.#words(source) }) };
    }
    const isMixed = source.kind === "value" && this.#types.get(key)!.size > 1;
    if (!isCache(source) && (writes || isMixed || this.#isWritten(source))) {
      return { kind: "bound", name: this.#words(source) };
    }
    if (source.kind === "table") return undefined;
    return { kind: "plain", name: this.#bound(`${key} ${type}`, source, type, writes ?? false) };
  }

  #wordFor(key: string, source: Source): number {
    const known = this.#wordOf.get(key);
    if (known !== undefined) return known;
    const word = this.words;
    this.#wordOf.set(key, word);
    this.words += exchangedWords(source, this.#layout);
    return word;
  }

  /** Whether a kernel of the layer writes to the buffer of this value: a buffer that is written has one binding. */
  #isWritten(source: Source): boolean {
    const buffer = this.#bufferOf(source);
    return [...this.#written]
      .filter(([key]) => !this.#exchanged.has(key) || this.#readLater.has(key))
      .some(([, written]) => this.#bufferOf(written) === buffer);
  }

  /** The binding of a value's buffer as words. */
  #words(source: Source): string {
    return this.#bound(this.#bufferOf(source), source, WORD, this.#isWritten(source));
  }

  #bufferOf(source: Source): string {
    if (source.kind !== "value") return keyOf(source);
    return `slot ${this.#layout.slotOf[source.value.id]}`;
  }

  #bound(key: string, source: Source, type: string, writes: boolean): string {
    const known = this.#named.get(key);
    if (known !== undefined) return known;
    const name = `bound${this.bindings.length}`;
    this.bindings.push({ name, type, source, writes });
    this.#named.set(key, name);
    return name;
  }
}

function keyOf(source: Source): string {
  if (source.kind === "value") return `value ${source.value.id}`;
  if (source.kind === "weight") {
    return `weight ${source.weight.name} ${source.part} ${source.plane ?? ""}`;
  }
  if (source.kind === "stack") return `stack ${source.weight.name} ${source.plane ?? ""}`;
  return "state" in source ? `${source.kind} ${source.state}` : source.kind;
}

/** A token's writes there are only read by later batches. */
function isCache({ kind }: Source): boolean {
  return kind === "keys" || kind === "values";
}

/** Atomic words that workgroups of one kernel exchange: words of a region are as good, and need no binding. */
function isScratch({ kind }: Source): boolean {
  return kind === "partials";
}

function writesScratch({ source, writes }: Binding): boolean {
  return writes === true && isScratch(source);
}

/** Words that one token exchanges: whole units. */
function exchangedWords(source: Source, { plan, split }: Layout): number {
  const whole = (words: number): number => Math.ceil(words / UNIT) * UNIT;
  if (source.kind === "value") return whole(source.value.cols);
  const sizes = plan.graph.nodes.map((node) =>
    node.op === "attention" ? splitWords(node, split) : 0,
  );
  return whole(Math.max(...sizes));
}
