// The arena as the memory of the reference (graph/reference.ts): for nodes without a kernel, and for reading values. It
// allocates only the scratch memory of such nodes, where there are any.

import { kvPair } from "../../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { weightBytes, weightElements } from "../../../graph/cost.ts";
import { kvStates, type Value, type Weight } from "../../../graph/graph.ts";
import {
  activationTypeOf,
  type LoadedWeight,
  type ReferenceMemory,
  widestActivations,
} from "../../../graph/reference-memory.ts";
import type { Arena } from "./arena.ts";
import type { Layout } from "./layout.ts";
import type { WeightStore } from "./weights.ts";

export function referenceMemory({ plan, kv, arena, weights, compiled }: Layout): ReferenceMemory {
  const { f32, u8 } = arena.views;
  const slots = plan.slotSizes.map((size, i) =>
    f32.subarray(compiled.slots[i]! / 4, compiled.slots[i]! / 4 + size),
  );
  const context = kv.tableLength * KV_BLOCK_TOKENS;
  const { cache } = compiled;
  const needed = compiled.leaderNodes;
  const attends = needed.some((node) => node.op === "attention");
  const longest = Math.max(4, ...plan.graph.weights.map((weight) => weight.shape.at(-1)!));
  const multiplies = needed.some(({ op }) => op === "matmul" || op === "matmul_id");
  const widest = Math.max(
    0,
    ...kvStates(plan.graph).map(({ kCols, vCols }) => Math.max(kCols, vCols)),
  );
  const known = new Map<string, LoadedWeight>();
  return {
    value: (value: Value) => slots[plan.slotOf[value.id]!]!,
    weight: (weight) => {
      const loaded = known.get(weight.name) ?? loadedWeight(weight, arena, weights);
      known.set(weight.name, loaded);
      return loaded;
    },
    kv: {
      dtypes: kvPair(kv.dtype),
      states: plan.graph.states.map((state, i) => {
        const place = cache.places[i];
        if (state.kind !== "kv" || !place) return undefined;
        const [keys, values] = [place.keys, place.values].map(({ at, area }) => {
          const { at: first, bytes, blockBytes } = cache.areas[area]!;
          return { bytes: u8.subarray(at, first + bytes), stride: blockBytes };
        }) as [KeptRows, KeptRows];
        return {
          group: place.group,
          kCols: state.kCols,
          vCols: state.vCols,
          keys: keys.bytes,
          values: values.bytes,
          keyStride: keys.stride,
          valueStride: values.stride,
        };
      }),
    },
    recurrent: cache.recurrent.places.map((at) => {
      if (at === undefined) return undefined;
      const { slotBytes, end } = cache.recurrent;
      return { floats: f32.subarray(at / 4, end / 4), stride: slotBytes / 4 };
    }),
    row: new Float32Array(longest),
    rounded: new Float32Array(
      multiplies ? widestActivations(plan.graph) * plan.limits.maxTokens : 0,
    ),
    packed: new Uint8Array(multiplies ? longest * 4 : 0),
    keys: new Float32Array(attends ? context * widest : 0),
    values: new Float32Array(attends ? context * widest : 0),
    scores: new Float32Array(attends ? context : 0),
  };
}

/** Keys or values of a layer, from its first row on, and the bytes from a block to the next. */
interface KeptRows {
  readonly bytes: Uint8Array;
  readonly stride: number;
}

/** A weight that is not in row panels. */
function loadedWeight(weight: Weight, { views }: Arena, weights: WeightStore): LoadedWeight {
  const { vector, raw } = weights.get(weight);
  const at = vector ?? raw;
  if (at === undefined) {
    throw new Error(`${weight.name}: packed, but the reference was asked to read it`);
  }
  const isFloat = vector !== undefined;
  return {
    dtype: weight.dtype,
    activation: activationTypeOf(weight.dtype),
    bytes: views.u8.subarray(at, at + weightBytes(weight)),
    floats: isFloat ? views.f32.subarray(at / 4, at / 4 + weightElements(weight)) : undefined,
  };
}
