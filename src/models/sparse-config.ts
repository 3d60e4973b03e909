// The configuration of models in which some layers, or all, have experts: how tokens are routed, and which layers have a dense
// network instead. Every number of the file is checked here, before anything is allocated for it.

import type { ExpertGroups, Gating, RopeLayout, Routing } from "../graph/graph.ts";
import type { ExpertConfig, ModelConfig, ModelHeader } from "./arch.ts";
import { type ConfigOptions, LIMITS, readConfig, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";

export interface SparseConfig extends ModelConfig {
  experts: ExpertConfig;
  routing: Routing;
  /** Whether each layer has experts. The others have a dense network. */
  sparse: boolean[];
}

/** A family's values for keys that the file does not have. */
export interface RoutingDefaults {
  /** Default: "softmax". */
  readonly gating?: Gating;
  /** Default: false. */
  readonly normalise?: boolean;
}

export function readSparse(
  header: ModelHeader,
  layout: RopeLayout,
  defaults: RoutingDefaults = {},
  options: ConfigOptions = {},
): SparseConfig {
  return withSparse(
    header,
    readConfig(header, layout, { ...options, experts: "required" }),
    defaults,
  );
}

/** The same for a configuration that is read already. */
export function withSparse<C extends ModelConfig>(
  header: ModelHeader,
  c: C,
  defaults: RoutingDefaults = {},
): C & SparseConfig {
  const read = readerOf(header);
  const experts = c.experts!;
  return {
    ...c,
    experts,
    routing: readRouting(read, experts, defaults),
    sparse: sparseLayers(read, c.layers),
  };
}

/** The same with the layer behind the last one, which predicts further tokens: it has experts. */
export function nextSparse<C extends SparseConfig>(c: C): C {
  return { ...c, sparse: [...c.sparse, true] };
}

/** expert_gating_func; 0 is the family's default. */
const gatings: readonly (Gating | undefined)[] = [
  undefined,
  "softmax",
  "sigmoid",
  "softmax_chosen",
];

function readRouting(
  read: ConfigReader,
  { count, used }: ExpertConfig,
  { gating = "softmax", normalise = false }: RoutingDefaults,
): Routing {
  const found = read.count("expert_gating_func", gatings.length - 1);
  const groups = readGroups(read, count, used);
  return {
    used,
    gating: gatings[found] ?? gating,
    normalise: read.boolean("expert_weights_norm") ?? normalise,
    // 0 is 1, as in llama.cpp.
    scale: read.number("expert_weights_scale") ? read.positive("expert_weights_scale") : 1,
    ...(groups && { groups }),
  };
}

/** undefined: experts are chosen from all. */
function readGroups(read: ConfigReader, experts: number, used: number): ExpertGroups | undefined {
  const count = read.count("expert_group_count", experts);
  if (count <= 1) return undefined;
  if (experts % count !== 0 || experts / count < 2) {
    read.fail(
      "expert_group_count",
      count,
      `a divisor of the ${experts} experts, with at least 2 in a group`,
    );
  }
  const groupsUsed = read.integer("expert_group_used_count", count);
  if (groupsUsed * (experts / count) < used) {
    const size = experts / count;
    read.fail(
      "expert_group_used_count",
      groupsUsed,
      `at least ${Math.ceil(used / size)}: groups of ${size} of which ${used} experts are used`,
    );
  }
  return { count, used: groupsUsed };
}

/** Layers from leading_dense_block_count on have experts; with a step, only the last layer of each step. */
function sparseLayers(read: ConfigReader, layers: number): boolean[] {
  const dense = read.count("leading_dense_block_count", layers);
  const step = read.integerOr("interleave_moe_layer_step", 1, LIMITS.layers);
  return Array.from({ length: layers }, (_, i) => i >= dense && (i + 1) % step === 0);
}

/** The layers with a router in the file. */
export function sparseByRouter({ tensors }: ModelHeader, layers: number): boolean[] {
  return Array.from({ length: layers }, (_, i) => tensors.has(`blk.${i}.ffn_gate_inp.weight`));
}

/** The size of shared experts that the file gives as a number of experts. */
export function countedShared(header: ModelHeader, experts: ExpertConfig): ExpertConfig {
  const read = readerOf(header);
  const count = read.count("expert_shared_count", LIMITS.experts);
  return { ...experts, shared: count * experts.feedForward };
}

/** silu is never below this, so that a limit from here on bounds it only from above, as llama.cpp does. */
const LEAST_LIMIT = 0.28;

/** A real model has 7 or 16. */
const MOST_LIMIT = 1e6;

/** The limit of gates and ups of experts in each layer: the file has an array, one number, or none. 0: there is no limit. */
export function limitsOf(header: ModelHeader, layers: number, key: string): (number | undefined)[] {
  const read = readerOf(header);
  const full = `${read.architecture}.${key}`;
  if (!header.metadata.has(full)) return new Array<undefined>(layers).fill(undefined);
  return read.generalNumbersPerLayer(full, layers, MOST_LIMIT).map((limit) => {
    if (limit > 1e-6 && limit < LEAST_LIMIT) read.fail(key, limit, `0, or at least ${LEAST_LIMIT}`);
    return limit > 1e-6 ? limit : undefined;
  });
}
