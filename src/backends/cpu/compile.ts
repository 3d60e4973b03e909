// From a plan to a program: addresses for every value, cache and scratch area, an instruction for every node, and the
// kernels these need. Nodes that have no kernel here are computed by the reference, on the leader.

import { ModelError } from "../../base/errors.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import type { GraphNode, NodeOf, Rope, Value, Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import { KV_BLOCK_TOKENS } from "../../graph/step.ts";
import type { Kernel } from "../../kernels/ir/kernel.ts";
import type { Dot4 } from "../../kernels/ir/meanings.ts";
import { elementwiseKernels } from "../../kernels/ops/elementwise-table.ts";
import { blockMatmulKernel } from "../../kernels/ops/matmul-blocks.ts";
import { floatMatmulKernel } from "../../kernels/ops/matmul-floats.ts";
import { dotRows } from "../../kernels/ops/matmul-rows.ts";
import {
  activationBlockBytes,
  GROUP_ROWS,
  groupSpanBytes,
  TILE_ROWS,
} from "../../kernels/ops/packed.ts";
import { packingOf } from "../../kernels/ops/packings.ts";
import { quantizeActivationsKernel } from "../../kernels/ops/quantize-activations.ts";
import { ropeTableSize } from "../../kernels/ops/rope.ts";
import type { KvCacheOptions } from "../backend.ts";
import type { Arena } from "./arena.ts";
import { kernelsOf, WIDE_HEADS } from "./executors.ts";
import { lowerNode, type NodeCompiler } from "./lower-nodes.ts";
import type { Instruction, Program, StepArea } from "./program.ts";
import { controlWords } from "./team.ts";
import type { WeightStore } from "./weights.ts";

const WIDTH = 16;

/** Tiles that a product with one token walks at once: measured, four give 1.7 times the bandwidth of one. */
const STREAMS = 4;

/** The shape of tiles that a machine is best served with. */
export interface TileChoice {
  /** Groups of four rows and tokens that a matrix kernel computes at once. */
  readonly groups: 1 | 2 | 4;
  readonly tokens: number;
  /** Activations repeated in every lane. */
  readonly replicated: boolean;
}

/** What only the leader does: a graph node by the reference, rows of a table, or the tables of a rotary embedding. */
export type LeaderTask =
  | { readonly kind: "node"; readonly node: GraphNode }
  | { readonly kind: "embed"; readonly node: NodeOf<"embed"> }
  | {
      readonly kind: "rope";
      readonly rope: Rope;
      readonly factors: Weight | undefined;
      readonly table: number;
    };

export interface Compiled {
  readonly program: Program;
  readonly kernels: readonly Kernel[];
  readonly leaderTasks: readonly LeaderTask[];
  /** Which instruction finishes each node. */
  readonly lastInstruction: ReadonlyMap<GraphNode, number>;
  /** Byte address of each slot. */
  readonly slots: readonly number[];
  readonly keys: readonly number[];
  readonly values: readonly number[];
  readonly kvRowBytes: number;
  /** For people: what computes each node, and why. */
  readonly explain: readonly string[];
}

export interface CompileOptions {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly arena: Arena;
  readonly weights: WeightStore;
  readonly threads: number;
  readonly dot4: Dot4;
  readonly tiles: TileChoice;
}

export function compileProgram(options: CompileOptions): Compiled {
  return new Compiler(options).run();
}

/** One buffer of prepared activations, and which value it holds now. */
interface Prepared {
  at: number;
  holds: Value | undefined;
}

class Compiler implements NodeCompiler {
  readonly #o: CompileOptions;
  readonly #instructions: Instruction[] = [];
  readonly #kernels = new Map<string, Kernel>();
  readonly #leaderTasks: LeaderTask[] = [];
  readonly #lastInstruction = new Map<GraphNode, number>();
  readonly #prepared = new Map<string, Prepared>();
  readonly #ropeTables = new Map<Rope, { table: number; factors: Weight | undefined }>();
  readonly #slots: number[];
  readonly #keys: number[];
  readonly #values: number[];
  readonly #kvRowBytes: number;
  readonly #rows: number;
  readonly #explain: string[] = [];
  #tileScratch = -1;
  #rowScratch = -1;
  #wideScratch = -1;

  constructor(options: CompileOptions) {
    this.#o = options;
    const { plan, kv, arena } = options;
    this.#rows = Math.max(plan.limits.maxTokens, plan.limits.maxOutputs);
    this.#slots = plan.slotSizes.map((size) => arena.allocate(size * 4, "work"));
    this.#kvRowBytes = bytesFor(kv.dtype, plan.graph.kv.cols);
    const layerBytes = kv.blocks * KV_BLOCK_TOKENS * this.#kvRowBytes;
    const layers = () =>
      Array.from({ length: plan.graph.kv.layers }, () => arena.allocate(layerBytes, "kv"));
    this.#keys = layers();
    this.#values = layers();
    for (const make of elementwiseKernels) this.#kernel(make(WIDTH));
  }

  run(): Compiled {
    const { plan, kv, arena, threads } = this.#o;
    for (const node of plan.graph.nodes) this.#node(node);
    const context = kv.blocks * KV_BLOCK_TOKENS;
    const scoresLength = context + 4;
    const program: Program = {
      instructions: this.#instructions,
      step: this.#stepArea(kv.blocks),
      control: arena.allocate(controlWords(this.#instructions.length) * 4, "work"),
      scores: arena.allocate(threads * WIDE_HEADS * scoresLength * 4, "work"),
      scoresLength,
      threads,
    };
    return {
      program,
      // What nothing calls is not lowered: all of them together take 130 ms the first time.
      kernels: [...new Set(this.#instructions.flatMap(kernelsOf))].map(
        (name) => this.#kernels.get(name)!,
      ),
      leaderTasks: this.#leaderTasks,
      lastInstruction: this.#lastInstruction,
      slots: this.#slots,
      keys: this.#keys,
      values: this.#values,
      kvRowBytes: this.#kvRowBytes,
      explain: this.#explain,
    };
  }

  #stepArea(tableLength: number): StepArea {
    const { arena } = this.#o;
    return {
      counts: arena.allocate(8, "work"),
      positions: arena.allocate(this.#rows * 4, "work"),
      tables: arena.allocate(this.#rows * tableLength * 4, "work"),
      tableLength,
    };
  }

  #node(node: GraphNode): void {
    const made = lowerNode(this, node);
    if (typeof made !== "string") this.#instructions.push(made);
    else {
      this.#explain.push(`${node.name}: reference (${made})`);
      this.#instructions.push(this.leader({ kind: "node", node }));
    }
    this.#lastInstruction.set(node, this.#instructions.length - 1);
    // A slot that was written holds another value now.
    if (node.out) {
      for (const prepared of this.#prepared.values()) {
        const held = prepared.holds;
        if (held && this.address(held) === this.address(node.out)) prepared.holds = undefined;
      }
    }
  }

  address(value: Value): number {
    return this.#slots[this.#o.plan.slotOf[value.id]!]!;
  }

  vector(weight: Weight): number {
    return this.#o.weights.get(weight).vector!;
  }

  leader(task: LeaderTask): Instruction {
    return { op: "leader", index: this.#leaderTasks.push(task) - 1 };
  }

  cache(layer: number): { keys: number; values: number; rowBytes: number } {
    return { keys: this.#keys[layer]!, values: this.#values[layer]!, rowBytes: this.#kvRowBytes };
  }

  get kvType(): string {
    return this.#o.kv.dtype.name;
  }

  get kvDType(): KvCacheOptions["dtype"] {
    return this.#o.kv.dtype;
  }

  hasKernel(name: string): boolean {
    return this.#kernels.has(name);
  }

  /** Tables of cosines and sines: made once per step, by the leader, before their first use. */
  ropeTable(rope: Rope, factors: Weight | undefined): number {
    const known = this.#ropeTables.get(rope);
    if (known && known.factors === factors) return known.table;
    const bytes = this.#rows * ropeTableSize(rope.dims) * 4;
    const table = this.#o.arena.allocate(bytes, "work");
    this.#ropeTables.set(rope, { table, factors });
    this.#instructions.push(this.leader({ kind: "rope", rope, factors, table }));
    return table;
  }

  matmul(node: NodeOf<"matmul">): Instruction {
    const placed = this.#o.weights.get(node.weight);
    if (placed.blocks) return this.#matmulBlocks(node, placed.blocks);
    if (placed.floats) return this.#matmulFloats(node, placed.floats);
    return this.#matmulRows(node, placed.raw!);
  }

  #matmulBlocks(
    node: NodeOf<"matmul">,
    place: { at: number; tileBytes: number; levels: number },
  ): Instruction {
    const { dot4, tiles } = this.#o;
    const type = node.weight.dtype.name;
    const packing = packingOf(type)!;
    const layout = packing.layout(dot4);
    const { groups, tokens, replicated } = tiles;
    const style = replicated ? "replicated" : "compact";
    const vector = this.#kernel(
      blockMatmulKernel({
        name: `matmul.${type}.16x1.${style}`,
        layout,
        groups: 4,
        tokens: 1,
        replicated,
        order: "vector",
      }),
    );
    const vectorStreams = this.#kernel(
      blockMatmulKernel({
        name: `matmul.${type}.${STREAMS}x16x1.${style}`,
        layout,
        groups: 4,
        tokens: 1,
        replicated,
        order: "vector",
        streams: STREAMS,
      }),
    );
    const matrix = this.#kernel(
      blockMatmulKernel({
        name: `matmul.${type}.${groups * 4}x${tokens}.${style}`,
        layout,
        groups,
        tokens,
        replicated,
        order: "matrix",
      }),
    );
    this.#explain.push(`${node.name}: ${matrix}, ${vectorStreams} for one token`);
    return {
      op: "matmul_blocks",
      ...this.#matmulShape(node),
      vector,
      vectorStreams,
      streams: STREAMS,
      matrix,
      groups,
      tile: tokens,
      x: this.#quantized(node.x, packing.activationSpan),
      blockBytes: activationBlockBytes(replicated),
      w: place.at,
      tileBytes: place.tileBytes,
      groupBytes: groupSpanBytes(layout),
      spans: node.x.cols / (32 * layout.spanBlocks),
      levels: place.levels,
      scratch: this.#scratchForTiles(),
      scratchBytes: this.#tileScratchBytes,
    };
  }

  #matmulFloats(
    node: NodeOf<"matmul">,
    place: { at: number; tileBytes: number; type: "f32" | "f16" | "bf16" },
  ): Instruction {
    const [groups, tokens] = [2, 4];
    const { type } = place;
    const vector = this.#kernel(
      floatMatmulKernel({
        name: `matmul.${type}.16x1`,
        weights: type,
        groups: 4,
        tokens: 1,
        order: "vector",
      }),
    );
    const matrix = this.#kernel(
      floatMatmulKernel({
        name: `matmul.f32.${groups * 4}x${tokens}`,
        weights: "f32",
        groups,
        tokens,
        order: "matrix",
      }),
    );
    const narrow = type !== "f32";
    const how = narrow ? `${matrix} on widened tiles` : matrix;
    this.#explain.push(`${node.name}: ${how}, ${vector} for one token`);
    return {
      op: "matmul_floats",
      ...this.#matmulShape(node),
      vector,
      matrix,
      widen: narrow ? `widen_${type}` : undefined,
      wide: narrow ? this.#wideTiles() : -1,
      groups,
      tile: tokens,
      x: this.#rounded(node.x, node.weight),
      w: place.at,
      tileBytes: place.tileBytes,
      groupBytes: GROUP_ROWS * 4,
      scratch: this.#scratchForTiles(),
      scratchBytes: this.#tileScratchBytes,
    };
  }

  /** f32 [16][longest row] for each thread. */
  #wideTiles(): number {
    if (this.#wideScratch < 0) {
      const bytes = this.#o.threads * TILE_ROWS * this.#longestRow() * 4;
      this.#wideScratch = this.#o.arena.allocate(bytes, "work");
    }
    return this.#wideScratch;
  }

  #matmulRows(node: NodeOf<"matmul">, raw: number): Instruction {
    const { dtype } = node.weight;
    this.#explain.push(`${node.name}: dot_rows (rows of ${dtype.name} unpacked one by one)`);
    this.#rowScratch = this.#rowScratch < 0 ? this.#scratchForRows() : this.#rowScratch;
    return {
      op: "matmul_rows",
      ...this.#matmulShape(node),
      kernel: this.#kernel(dotRows(WIDTH)),
      dtype: dtype.name,
      x: this.#rounded(node.x, node.weight),
      w: raw,
      rowBytes: bytesFor(dtype, node.x.cols),
      scratch: this.#rowScratch,
    };
  }

  #matmulShape(node: NodeOf<"matmul">) {
    return {
      rows: node.x.rows,
      n: node.out.cols,
      k: node.x.cols,
      out: this.address(node.out),
      bias: node.bias ? this.vector(node.bias) : -1,
    };
  }

  /** Activations as bytes; prepared once for all matrices that read the same value. */
  #quantized(x: Value, span: 1 | 8): number {
    const { replicated, tokens } = this.#o.tiles;
    const blockBytes = activationBlockBytes(replicated);
    const key = `bytes per ${span * 32}`;
    const prepared = this.#buffer(key, (this.#longestRow() / 32) * blockBytes);
    if (prepared.holds === x) return prepared.at;
    prepared.holds = x;
    const kernel = this.#kernel(
      quantizeActivationsKernel({ name: `quantize_${span * 32}`, span, replicated }),
    );
    this.#instructions.push({
      op: "quantize",
      rows: x.rows,
      kernel,
      x: this.address(x),
      out: prepared.at,
      cols: x.cols,
      span,
      blockBytes,
      tile: tokens,
    });
    return prepared.at;
  }

  /** Activations rounded to what the reference rounds them to beside this weight, still as floats. */
  #rounded(x: Value, weight: Weight): number {
    const { activation } = weight.dtype;
    if (activation === "f32") return this.address(x);
    const dtype = dtypeByName(activation);
    if (!dtype?.quantize)
      throw new ModelError(`${weight.name}: no type "${activation}" to round to`);
    const prepared = this.#buffer(`floats as ${activation}`, this.#longestRow() * 4);
    if (prepared.holds === x) return prepared.at;
    prepared.holds = x;
    const scratchBytes = this.#longestRow() * 4 + 64;
    const scratch = this.#buffer("rounding scratch", 0).at;
    this.#instructions.push({
      op: "round",
      rows: x.rows,
      dtype: activation,
      x: this.address(x),
      out: prepared.at,
      cols: x.cols,
      scratch,
      scratchBytes,
    });
    return prepared.at;
  }

  #buffer(key: string, rowBytes: number): Prepared {
    let prepared = this.#prepared.get(key);
    if (!prepared) {
      const bytes =
        rowBytes > 0 ? this.#rows * rowBytes : this.#o.threads * (this.#longestRow() * 4 + 64);
      prepared = { at: this.#o.arena.allocate(bytes, "work"), holds: undefined };
      this.#prepared.set(key, prepared);
    }
    return prepared;
  }

  #longestRow(): number {
    const { graph } = this.#o.plan;
    return Math.max(...graph.nodes.map((node) => (node.op === "matmul" ? node.x.cols : 0)));
  }

  get #tileScratchBytes(): number {
    return TILE_ROWS * this.#rows * 4;
  }

  #scratchForTiles(): number {
    if (this.#tileScratch < 0) {
      const { arena, threads } = this.#o;
      this.#tileScratch = arena.allocate(threads * this.#tileScratchBytes, "work");
    }
    return this.#tileScratch;
  }

  #scratchForRows(): number {
    const { arena, threads } = this.#o;
    return arena.allocate(threads * this.#longestRow() * 4, "work");
  }

  #kernel(kernel: Kernel): string {
    if (!this.#kernels.has(kernel.name)) this.#kernels.set(kernel.name, kernel);
    return kernel.name;
  }
}
