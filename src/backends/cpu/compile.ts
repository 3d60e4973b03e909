// The compiler from a plan to a program: addresses for every value, cache and scratch area, an instruction for every node,
// and the kernels that they call. ops/ lowers each node; nodes without a kernel are computed by the reference, on the leader.

import type { DType } from "../../dtypes/dtype.ts";
import { kvPair } from "../../dtypes/kv-types.ts";
import { countWords, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import {
  type GraphNode,
  type NodeOf,
  type Rope,
  type Section,
  sectionsOf,
  type Value,
  type Weight,
} from "../../graph/graph.ts";
import type { Kernel } from "../../kernels/ir/kernel.ts";
import { MAX_BLOCK } from "../../kernels/ops/elementwise/block-max.ts";
import { ropeTableSize } from "../../kernels/ops/elementwise/rope.ts";
import { elementwiseKernels } from "../../kernels/ops/elementwise-table.ts";
import { type BestArea, placeBest, searchedLogits } from "./best-logits.ts";
import type { CompileOptions } from "./compile-options.ts";
import { withWaits } from "./disk/waits.ts";
import { type CachePlace, placeCache, type RowsPlace } from "./memory/cache-place.ts";
import { KvRecord } from "./memory/kv-record.ts";
import { nativeElementwise } from "./native/elementwise.ts";
import { scoresRowsFor } from "./ops/attention-prefill.ts";
import type { Roundings } from "./ops/matmul-activations.ts";
import { MatmulLowering, WIDTH } from "./ops/matmul-lower.ts";
import { type Chosen, isMatmul, type MatmulCompiler } from "./ops/matmul-node.ts";
import type { CacheRows, InstructionLike } from "./ops/op.ts";
import type { RopeTable } from "./ops/rope.ts";
import { codeOf, type Instruction, kernelsOf, lowerNode, type Program } from "./ops/table.ts";
import { type BatchArea, type ScaledTable, SEGMENT, type TableRows } from "./program.ts";
import { planStages } from "./threads/stages.ts";
import { controlWords } from "./threads/team.ts";

export interface Compiled {
  readonly program: Program;
  /** The kernels that are WebAssembly, and those that are machine code. */
  readonly kernels: readonly Kernel[];
  readonly nativeKernels: readonly Kernel[];
  /** Nodes that the leader computes by the reference. */
  readonly leaderNodes: readonly GraphNode[];
  /** Which instruction finishes each node. */
  readonly lastInstruction: ReadonlyMap<GraphNode, number>;
  /** Byte address of each slot. */
  readonly slots: readonly number[];
  readonly cache: CachePlace;
  readonly choices: readonly Chosen[];
  /** undefined: no activations are rounded as floats. */
  readonly roundings: Roundings | undefined;
  readonly kvRecord: KvRecord;
  /** undefined: the best logits are not looked for here. */
  readonly best: BestArea | undefined;
  /** The kernel of each node, and why, for --explain. */
  readonly explain: readonly string[];
}

/** Lanes of the widest vectors. */
const LONGEST_VECTOR = 16;

export function compileProgram(options: CompileOptions): Compiled {
  return new Compiler(options).run();
}

class Compiler implements MatmulCompiler {
  readonly options: CompileOptions;
  readonly rows: number;
  readonly kvRecord: KvRecord;
  readonly #instructions: Instruction[] = [];
  readonly #kernels = new Map<string, Kernel>();
  readonly #leaderNodes: GraphNode[] = [];
  readonly #lastInstruction = new Map<GraphNode, number>();
  /** The weight on disk that an instruction reads. */
  readonly #onDisk = new Map<number, number>();
  readonly #matmuls: MatmulLowering;
  readonly #ropeTables = new Map<Rope, { table: number; factors: Weight | undefined }>();
  readonly #slots: number[];
  readonly #cache: CachePlace;
  readonly #tables: readonly ScaledTable[];
  readonly #explain: string[] = [];
  #lengths: number | undefined;
  /** Memory of all threads, by the bytes of each. */
  readonly #scratch = new Map<number, number>();

  constructor(options: CompileOptions) {
    this.options = options;
    this.#matmuls = new MatmulLowering(this);
    const { plan, kv, arena } = options;
    this.kvRecord = new KvRecord(arena);
    this.rows = Math.max(plan.limits.maxTokens, plan.limits.maxOutputs);
    this.#slots = plan.slotSizes.map((size, slot) =>
      arena.allocate(size * 4, "work", `value slot ${slot}`),
    );
    this.#cache = placeCache(plan, kv, arena);
    this.#tables = this.#cache.areas.map(({ group, stride }) => ({
      group,
      stride,
      at: arena.allocate(this.rows * kv.tableLength * 4, "work", "block tables of the batch"),
    }));
    if (!options.plain) for (const make of elementwiseKernels) this.kernel(make(WIDTH));
  }

  run(): Compiled {
    const { plan, kv, arena, threads } = this.options;
    sectionsOf(plan.graph).forEach((section, i) => {
      this.#section(section, i);
    });
    const context = kv.tableLength * KV_BLOCK_TOKENS;
    // Softmax writes whole vectors, and the next row begins at a cache line.
    const scoresLength = Math.ceil((context + 1) / LONGEST_VECTOR) * LONGEST_VECTOR;
    const scoresRows = scoresRowsFor(scoresLength);
    const { lastInstruction, ...listed } = this.#listed();
    const program: Program = {
      ...listed,
      batch: this.#batchArea(kv.tableLength),
      control: arena.allocate(controlWords(threads) * 4, "work", "control"),
      scores: arena.allocate(threads * scoresRows * scoresLength * 4, "work", "scores", threads),
      scoresRows,
      scoresLength,
      threads,
      demand: this.options.disk?.program.demand,
    };
    return {
      program,
      ...this.#calledKernels(),
      leaderNodes: this.#leaderNodes,
      lastInstruction,
      slots: this.#slots,
      cache: this.#cache,
      choices: this.#matmuls.choices,
      roundings: this.#matmuls.roundings,
      kvRecord: this.kvRecord,
      best: this.#searched && placeBest(this.#searched.cols, this.address(this.#searched), arena),
      explain: this.#explain,
    };
  }

  #listed(): Pick<Program, "instructions" | "stages"> & Pick<Compiled, "lastInstruction"> {
    const stages = planStages(this.#instructions);
    const listed = {
      instructions: this.#instructions,
      stages,
      lastInstruction: this.#lastInstruction,
    };
    const { disk } = this.options;
    const isWaiting = disk !== undefined && disk.program.weights.length > 0;
    return isWaiting ? withWaits(listed, this.#onDisk, disk) : listed;
  }

  /** Only kernels that are called are lowered: all of them take 130 ms the first time. */
  #calledKernels(): Pick<Compiled, "kernels" | "nativeKernels"> {
    const { target } = this.options;
    const kernels = new Set<Kernel>();
    const nativeKernels = new Set<Kernel>();
    /** The sizes that each kernel is called with, of kernels that are not matmuls. */
    const others = new Map<string, (number | undefined)[]>();
    for (const instruction of this.#instructions) {
      const code = codeOf(instruction);
      const isForTarget = target.name !== "wasm" && code === "target";
      const sizes = typeof code === "function" ? code(instruction) : [undefined];
      for (const name of kernelsOf(instruction)) {
        if (isForTarget) nativeKernels.add(this.#kernels.get(name)!);
        else others.set(name, [...(others.get(name) ?? []), ...sizes]);
      }
    }
    if (this.#searched) others.set("block_max", [MAX_BLOCK]);
    const named: string[] = [];
    for (const [name, sizes] of others) {
      const made = this.#native(name, sizes);
      const isNative = typeof made !== "string";
      if (isNative) nativeKernels.add(made);
      else kernels.add(this.#kernels.get(name)!);
      named.push(isNative ? `${name} (${made.width} bytes)` : `${name} (WebAssembly: ${made})`);
    }
    if (this.options.native) this.#explain.push(`other kernels: ${named.join(", ")}`);
    return { kernels: [...kernels], nativeKernels: [...nativeKernels] };
  }

  /** The kernel for these sizes as machine code; a sentence: why it stays WebAssembly. */
  #native(name: string, sizes: readonly (number | undefined)[]): Kernel | string {
    const { native } = this.options;
    const known = sizes.filter((size) => size !== undefined);
    if (!native || known.length < sizes.length) return "not made for this target";
    return nativeElementwise(native, name, known);
  }

  /** The logits whose best are looked for; undefined: none. */
  get #searched(): Value | undefined {
    const { plan, plain } = this.options;
    return plain ? undefined : searchedLogits(plan.graph);
  }

  #batchArea(tableLength: number): BatchArea {
    const { arena, plan } = this.options;
    const words = (what: string) => arena.allocate(this.rows * 4, "work", `${what} of an adapter`);
    const list = () => ({ rows: words("rows"), places: words("places"), scales: words("scales") });
    return {
      counts: arena.allocate(countWords(plan.limits) * 4, "work", "counts of the batch"),
      tokens: arena.allocate(this.rows * 4, "work", "tokens of the batch"),
      positions: arena.allocate(this.rows * 4, "work", "positions of the batch"),
      lengths: this.#lengths,
      outputRows: arena.allocate(this.rows * 4, "work", "output rows of the batch"),
      tables: this.#tables,
      tableLength,
      segments:
        this.#cache.recurrent.slotBytes === 0
          ? 0
          : arena.allocate(this.rows * SEGMENT.words * 4, "work", "segments of the batch"),
      adapters: Array.from({ length: plan.limits.adapters ?? 0 }, () => ({
        tokens: list(),
        outputs: list(),
      })),
    };
  }

  #section({ from, to, takes }: Section, index: number): void {
    if (index > 0) this.#instructions.push({ op: "pause" });
    for (const value of takes) this.#matmuls.forget(this.address(value));
    for (const node of this.options.plan.graph.nodes.slice(from, to)) this.#node(node);
  }

  #node(node: GraphNode): void {
    const isPlain = this.options.plain && !isMatmul(node);
    const made = isPlain ? "opt level 1 has no kernels" : lowerNode(this, node);
    if (typeof made !== "string") this.#instructions.push(made);
    else {
      this.#explain.push(`${node.name}: reference (${made})`);
      this.#instructions.push({ op: "leader", index: this.#leaderNodes.push(node) - 1 });
    }
    this.#lastInstruction.set(node, this.#instructions.length - 1);
    const onDisk = isMatmul(node) ? this.options.weights.get(node.weight).onDisk : undefined;
    if (onDisk !== undefined) this.#onDisk.set(this.#instructions.length - 1, onDisk);
    if (node.out) this.#matmuls.forget(this.address(node.out));
  }

  push(instruction: InstructionLike): void {
    this.#instructions.push(instruction as Instruction);
  }

  explain(line: string): void {
    this.#explain.push(line);
  }

  address(value: Value): number {
    return this.#slots[this.options.plan.slotOf[value.id]!]!;
  }

  vector(weight: Weight): number {
    return this.options.weights.get(weight).vector!;
  }

  taps(weight: Weight): number {
    return this.options.weights.get(weight).taps!;
  }

  rowsOf(weight: Weight): TableRows {
    return this.options.weights.rowsOf(weight);
  }

  cache(state: number): { readonly keys: CacheRows; readonly values: CacheRows } {
    const { keys, values } = this.#cache.places[state]!;
    const { k, v } = kvPair(this.options.kv.dtype);
    const rows = ({ at, rowBytes, area }: RowsPlace, { name }: DType): CacheRows => {
      return { type: name, at, rowBytes, tables: this.#tables[area]!.at };
    };
    return { keys: rows(keys, k), values: rows(values, v) };
  }

  recurrent(state: number): { state: number; slotBytes: number } {
    const { places, slotBytes } = this.#cache.recurrent;
    return { state: places[state]!, slotBytes };
  }

  scratch(bytes: number): { scratch: number; scratchBytes: number } {
    const { arena, threads } = this.options;
    const known = this.#scratch.get(bytes);
    const scratch = known ?? arena.allocate(threads * bytes, "work", "scratch of an op", threads);
    this.#scratch.set(bytes, scratch);
    return { scratch, scratchBytes: bytes };
  }

  lengths(): number {
    const { arena } = this.options;
    this.#lengths ??= arena.allocate(this.rows * 4, "work", "lengths of the sequences");
    return this.#lengths;
  }

  hasKernel(name: string): boolean {
    return this.#kernels.has(name);
  }

  /** The address of a table of cosines and sines, filled once per batch, before its first use. */
  ropeTable(rope: Rope, factors: Weight | undefined): number {
    const known = this.#ropeTables.get(rope);
    if (known && known.factors === factors) return known.table;
    const tableSize = ropeTableSize(rope.dims);
    const table = this.options.arena.allocate(this.rows * tableSize * 4, "work", "rope table");
    this.#ropeTables.set(rope, { table, factors });
    const { layout, frequencies, magnitude } = rope;
    const instruction: RopeTable = {
      op: "rope_table",
      table,
      tableSize,
      layout,
      frequencies,
      magnitude,
      factors: factors ? this.vector(factors) : -1,
    };
    this.push(instruction);
    return table;
  }

  matmul(node: NodeOf<"matmul"> | NodeOf<"matmul_id">): InstructionLike {
    return this.#matmuls.lower(node);
  }

  kernel(kernel: Kernel): string {
    if (!this.#kernels.has(kernel.name)) this.#kernels.set(kernel.name, kernel);
    return kernel.name;
  }
}
