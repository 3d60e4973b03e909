// The tables of the CPU backend's ops: the lowering of every op of the graph, and the definition of every instruction. A new op
// is a file beside this one, a line in `lowerings`, and one in `Instruction` and `table` where it has its own instruction.

import type { GraphNode, OpKind } from "../../../graph/graph.ts";
import type { Executor, ExecutorContext } from "../executor.ts";
import type { ProgramFrame, Stage } from "../program.ts";
import { type Quantize, quantize, type Round, round } from "./activations.ts";
import { type Adapt, adapt, type Gather, gather, lowerAdapt, lowerGather } from "./adapt.ts";
import { attention, lowerAttention } from "./attention.ts";
import type { Attention } from "./attention-instruction.ts";
import { type Clamp, clamp, lowerClamp } from "./clamp.ts";
import { type DiskAhead, type DiskGuess, diskAhead, diskGuess } from "./disk-ahead.ts";
import { type DiskExperts, diskExperts } from "./disk-experts.ts";
import { type DiskWait, diskWait } from "./disk-wait.ts";
import {
  type AddWeight,
  addWeight,
  type Binary,
  binary,
  lowerActivate,
  lowerAdd,
  lowerAddWeight,
  lowerGate,
  lowerMul,
  lowerScale,
  lowerSoftcap,
  type RowGate,
  rowGate,
  type Unary,
  unary,
} from "./elementwise.ts";
import { type Embed, embed, lowerEmbed } from "./embed.ts";
import {
  type GatherExperts,
  gatherExperts,
  type QuantizeExperts,
  quantizeExperts,
} from "./expert-activations.ts";
import { type GroupExperts, groupExperts } from "./expert-groups.ts";
import { type FloatColumns, floatColumns } from "./float-columns.ts";
import { type GatheredRows, gatheredRows } from "./gathered-rows.ts";
import { type KvWrite, kvWrite, lowerKvWrite } from "./kv-write.ts";
import { type Leader, leader } from "./leader.ts";
import {
  lowerMatmul,
  lowerMatmulId,
  type MatmulBlocks,
  type MatmulFloats,
  matmulBlocks,
  matmulFloats,
  matmulRows,
} from "./matmul.ts";
import type { MatmulRows } from "./matmul-data.ts";
import { type MatmulRowTiles, matmulRowTiles } from "./matmul-row-tiles.ts";
import { lowerMulWeight, type MulWeight, mulWeight } from "./mul-weight.ts";
import {
  type NeuronList,
  type NeuronSlabs,
  neuronList,
  neuronSlabs,
} from "./neuron-activations.ts";
import { type NeuronColumns, type NeuronRows, neuronColumns, neuronRows } from "./neurons.ts";
import {
  type LayerNorm,
  layerNorm,
  lowerLayerNorm,
  lowerRmsNorm,
  type RmsNorm,
  rmsNorm,
} from "./norms.ts";
import type {
  ColumnAccess,
  InstructionDef,
  InstructionLike,
  KernelCode,
  LowerAny,
  LowerNode,
  NodeCompiler,
  StageAccess,
} from "./op.ts";
import { type Pause, pause } from "./pause.ts";
import { lowerRope, type RopeTable, type Rotate, rope, ropeTable } from "./rope.ts";
import { type Combine, combine, lowerCombine, lowerRoute, type Route, route } from "./route.ts";
import {
  type ChannelScan,
  channelScan,
  type HeadScan,
  headScan,
  lowerDeltaNet,
  lowerSsmScan,
  lowerWkv,
} from "./scan.ts";
import { lowerSelect, type Select, select } from "./select.ts";
import { lowerShortConv, type ShortConv, shortConv } from "./short-conv.ts";
import { type Concat, concat, lowerConcat, lowerSlice, type Slice, slice } from "./slice.ts";
import { lowerSoftmax, type Softmax, softmax } from "./softmax.ts";
import {
  type IndexScores,
  indexScores,
  lowerIndexScores,
  lowerSparseAttention,
  lowerTopK,
  type SparseAttention,
  sparseAttention,
  type TopK,
  topK,
} from "./sparse.ts";
import { lowerTemperature, type Temperature, temperature } from "./temperature.ts";
import { lowerXielu, type Xielu, xielu } from "./xielu.ts";

const lowerings: { readonly [K in OpKind]: LowerNode<K> } = {
  embed: lowerEmbed,
  select: lowerSelect,
  gather: lowerGather,
  adapt: lowerAdapt,
  rms_norm: lowerRmsNorm,
  layer_norm: lowerLayerNorm,
  softmax: lowerSoftmax,
  activate: lowerActivate,
  scale: lowerScale,
  mul_weight: lowerMulWeight,
  clamp: lowerClamp,
  xielu: lowerXielu,
  temperature: lowerTemperature,
  add_weight: lowerAddWeight,
  softcap: lowerSoftcap,
  add: lowerAdd,
  mul: lowerMul,
  gate: lowerGate,
  matmul: lowerMatmul,
  route: lowerRoute,
  matmul_id: lowerMatmulId,
  combine: lowerCombine,
  rope: lowerRope,
  kv_write: lowerKvWrite,
  attention: lowerAttention,
  index_scores: lowerIndexScores,
  top_k: lowerTopK,
  sparse_attention: lowerSparseAttention,
  short_conv: lowerShortConv,
  ssm_scan: lowerSsmScan,
  delta_net: lowerDeltaNet,
  wkv: lowerWkv,
  slice: lowerSlice,
  concat: lowerConcat,
};

export type Instruction =
  | Leader
  | DiskWait
  | DiskExperts
  | DiskGuess
  | DiskAhead
  | Pause
  | Embed
  | Select
  | Gather
  | Adapt
  | RmsNorm
  | LayerNorm
  | Softmax
  | MulWeight
  | Clamp
  | Xielu
  | Temperature
  | Unary
  | AddWeight
  | Binary
  | RopeTable
  | Rotate
  | KvWrite
  | Attention
  | IndexScores
  | TopK
  | SparseAttention
  | ShortConv
  | HeadScan
  | ChannelScan
  | Slice
  | Concat
  | Quantize
  | Round
  | MatmulBlocks
  | MatmulFloats
  | MatmulRows
  | MatmulRowTiles
  | NeuronSlabs
  | NeuronRows
  | GatheredRows
  | NeuronList
  | NeuronColumns
  | FloatColumns
  | Route
  | GroupExperts
  | QuantizeExperts
  | GatherExperts
  | Combine
  | RowGate;

type InstructionKind = Instruction["op"];

const table: { readonly [K in InstructionKind]: InstructionDef<Extract<Instruction, { op: K }>> } =
  {
    leader,
    disk_wait: diskWait,
    disk_experts: diskExperts,
    disk_guess: diskGuess,
    disk_ahead: diskAhead,
    pause,
    embed,
    select,
    gather,
    adapt,
    rms_norm: rmsNorm,
    layer_norm: layerNorm,
    softmax,
    mul_weight: mulWeight,
    clamp,
    xielu,
    temperature,
    unary,
    add_weight: addWeight,
    binary,
    rope_table: ropeTable,
    rope,
    kv_write: kvWrite,
    attention,
    index_scores: indexScores,
    top_k: topK,
    sparse_attention: sparseAttention,
    short_conv: shortConv,
    head_scan: headScan,
    channel_scan: channelScan,
    slice,
    concat,
    quantize,
    round,
    matmul_blocks: matmulBlocks,
    matmul_floats: matmulFloats,
    matmul_rows: matmulRows,
    matmul_row_tiles: matmulRowTiles,
    neuron_slabs: neuronSlabs,
    neuron_rows: neuronRows,
    gathered_rows: gatheredRows,
    neuron_list: neuronList,
    neuron_columns: neuronColumns,
    float_columns: floatColumns,
    route,
    group_experts: groupExperts,
    quantize_experts: quantizeExperts,
    gather_experts: gatherExperts,
    combine,
    row_gate: rowGate,
  };

export interface Program extends ProgramFrame {
  readonly instructions: readonly Instruction[];
  readonly stages: readonly Stage[];
}

/** The instruction of a node, or the reason why the reference must compute it. */
export function lowerNode(c: NodeCompiler, node: GraphNode): Instruction | string {
  return (lowerings[node.op] as LowerAny)(c, node) as Instruction | string;
}

function defOf({ op }: Instruction): InstructionDef<InstructionLike> {
  return table[op] as unknown as InstructionDef<InstructionLike>;
}

/** The kernels that an instruction calls, by name. */
export function kernelsOf(instruction: Instruction): readonly string[] {
  return defOf(instruction).kernels(instruction);
}

export function codeOf(instruction: Instruction): KernelCode<InstructionLike> {
  return defOf(instruction).code;
}

export function accessOf(instruction: Instruction): StageAccess<InstructionLike> {
  return defOf(instruction).access;
}

export function columnsOf(instruction: Instruction): ColumnAccess | "idle" | undefined {
  return defOf(instruction).columns?.(instruction);
}

export function makeExecutors(
  context: ExecutorContext & { readonly program: Program },
): Executor[] {
  return context.program.instructions.map((instruction) =>
    defOf(instruction).execute(instruction, context),
  );
}
