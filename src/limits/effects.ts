// The effect of other bit widths for weights and KV cache, and of grouped-query attention: the same few numbers for
// each variant, for one table.

import type { Device } from "../api/rates.ts";
import { decodeLimit, decodeLine } from "./decode.ts";
import type { LimitsModel } from "./limits-model.ts";
import { kvBytesPerToken, type StateSize, tokensThatFit, withKvTimes } from "./memory.ts";
import {
  type BitWidths,
  type Counting,
  type ModelCost,
  shapeCost,
  weightBytesFor,
} from "./model-cost.ts";
import { prefillCountOf, turningPoints } from "./prefill.ts";
import { type ModelShape, withKvHeads } from "./shape.ts";

export interface Effect {
  /** For display: "weights 8 bits". */
  readonly what: string;
  readonly weightBytes: number;
  readonly kvBytesPerToken: number;
  readonly tokensThatFit: number | undefined;
  /** Prompt lengths at which the bottleneck changes. */
  readonly turningPoints: readonly number[];
  /** W and B of decoding. */
  readonly tokensPerMs: number;
  readonly firstMs: number;
  /** For a token at the end of the context. */
  readonly tokensPerSecond: number;
}

const weightWidths = [16, 8, 6, 4];
const kvWidths = [16, 8, 4];
/** The number of KV heads that most models with grouped-query attention have. */
const usualKvHeads = 8;

interface EffectOptions {
  readonly memoryBytes: number | undefined;
  readonly context: number;
  readonly counting: Counting;
}

interface Variant {
  readonly what: string;
  readonly cost: ModelCost;
  readonly state: StateSize;
}

export function effectsOf(model: LimitsModel, device: Device, options: EffectOptions): Effect[] {
  const { shape, bits } = model;
  const variant = (what: string, other: ModelShape, widths: BitWidths): Variant => ({
    what,
    cost: shapeCost(other, widths, options.counting),
    state: withKvTimes(model.state, (widths.kv / bits.kv) * (other.kvHeads / shape.kvHeads)),
  });
  const asItIs: Variant = { what: "as it is", cost: model.cost, state: model.state };
  // Others are counted from the shape, which does not say everything about such a model.
  if (model.parameters) return [effect(asItIs, device, options)];
  const variants: Variant[] = [
    asItIs,
    ...weightWidths
      .filter((weights) => weights !== bits.weights)
      .map((weights) => variant(`weights ${weights} bits`, shape, { ...bits, weights })),
    ...kvWidths
      .filter((kv) => kv !== bits.kv)
      .map((kv) => variant(`KV ${kv} bits`, shape, { ...bits, kv })),
    ...otherHeads(shape).map(([what, other]) => variant(what, other, bits)),
  ];
  return variants.map((one) => effect(one, device, options));
}

/** The model without its grouping, or with the usual grouping if it has none. */
function otherHeads(shape: ModelShape): [string, ModelShape][] {
  const { heads, kvHeads } = shape;
  if (kvHeads < heads) return [["without GQA", withKvHeads(shape, heads)]];
  if (heads > usualKvHeads && heads % usualKvHeads === 0) {
    return [[`GQA, ${usualKvHeads} KV heads`, withKvHeads(shape, usualKvHeads)]];
  }
  return [];
}

function effect(
  { what, cost, state }: Variant,
  device: Device,
  { memoryBytes, context, counting }: EffectOptions,
): Effect {
  const allWeightBytes = weightBytesFor(cost, Number.POSITIVE_INFINITY);
  return {
    what,
    weightBytes: cost.weightBytes,
    kvBytesPerToken: kvBytesPerToken(state),
    tokensThatFit:
      memoryBytes === undefined ? undefined : tokensThatFit(memoryBytes, allWeightBytes, state),
    turningPoints: turningPoints(cost, device, prefillCountOf[counting]).points.map(
      ({ tokens }) => tokens,
    ),
    ...decodeLine(cost, device),
    tokensPerSecond: 1 / decodeLimit(cost, device, context).seconds,
  };
}
