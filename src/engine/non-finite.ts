// Finds the cause of non-finite logits (NaN or infinite), by computing the same tokens again and checking every value. It runs only after
// such logits were found, so ordinary batches pay nothing.
//
// Activations beyond 65504 beside F16 weights are no cause on the CPU, where such rows stay float32 at once (Backend.widened). A GPU
// looks for them only when asked to, after they were found here (Backend.widen).
//
// Keys and values that the KV cache cannot hold are a KvRangeError: the model is opened again with a cache of F32 (connection.ts). On the
// CPU the batch itself finds them (Backend.kvOverflow), on a GPU they become NaN, and are found here.

import type { KvOverflow, Tap, Widened } from "../backends/backend.ts";
import { ModelError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { type KvDType, kvPair } from "../dtypes/kv-types.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { type GraphNode, type Value, weightsOf } from "../graph/graph.ts";
import type { Engine } from "./engine.ts";
import { kvRangeError } from "./kv-range.ts";
import type { AdapterUse } from "./state/adapter-use.ts";

/** Logits from which no token can be chosen. */
export class NonFiniteError extends ModelError {
  override name: string = "NonFiniteError";
}

/** The part of a running request that the search needs. */
interface Control {
  readonly aborted: boolean;
  yieldThread(): Promise<void>;
}

/** The tokens of a request with non-finite logits, and the time when it began to compute them. */
interface Computed {
  readonly tokens: readonly number[];
  /** Default: the engine's default. */
  readonly adapters?: AdapterUse;
  /** Engine.widenings at that time. */
  readonly widenings: number;
}

/**
 * Resolves if computing the tokens once more may help, because activations that a type cannot hold stay float32 from now on
 * (Engine.widen); otherwise throws the error, with its reason if one is found. The caller must have closed its own sequence,
 * because this needs room, too.
 */
export async function widenAndRecompute(
  error: NonFiniteError,
  engine: Engine,
  { tokens, adapters, widenings }: Computed,
  control: Control,
): Promise<void> {
  await engine.forgetPrefixes();
  if (engine.widenings > widenings) return; // another request did it meanwhile
  const found = await findReason(engine, tokens, adapters, control);
  if (found?.widened && (await engine.widen(found.widened))) {
    await engine.forgetPrefixes(); // the search left its own
    return;
  }
  if (engine.widenings > widenings) return; // another request did it during the search
  if (found?.kvOverflow) throw kvRangeError(found.kvOverflow);
  throw found ? new ModelError(found.reason, { cause: error }) : error;
}

async function findReason(
  engine: Engine,
  tokens: readonly number[],
  adapters: AdapterUse | undefined,
  control: Control,
): Promise<Reason | undefined> {
  const { tap, found } = search(engine);
  const isDone = () => control.aborted || found() !== undefined;
  const running = await engine.open({
    tokens: [], // reused tokens would not be checked
    mayAdd: tokens.length,
    adapters,
    isAborted: () => control.aborted,
  });
  try {
    for (let done = 0; done < tokens.length && !isDone(); ) {
      done += await engine.advance(running, tokens, done, {
        wants: () => true,
        onOutput: () => {},
        stop: () => control.aborted,
        tap,
      });
      await control.yieldThread();
    }
  } finally {
    engine.close(running);
  }
  return found();
}

interface Reason {
  readonly reason: string;
  /** The activations that left their type's range, if that is the reason. */
  readonly widened?: Widened | undefined;
  /** The keys or values that the cache cannot hold, if that is the reason. */
  readonly kvOverflow?: KvOverflow;
}

/** A value that overflows in the type it is rounded to: results computed from it may be infinite. */
interface Overflow {
  readonly value: Value;
  readonly largest: number;
  readonly dtype: DType;
}

/** A tap that looks for the first value that is not finite, and its result. */
function search({ graph, kvType }: Engine): { tap: Tap; found(): Reason | undefined } {
  const nodeOf = new Map(graph.nodes.map((node) => [node.out?.id, node]));
  const roundings = roundingsOf(graph.nodes, kvType);
  const overflows: Overflow[] = [];
  let reason: Reason | undefined;
  const tap: Tap = (value, data) => {
    if (reason) return;
    const at = data.findIndex((each) => !Number.isFinite(each));
    if (at >= 0) {
      const node = nodeOf.get(value.id);
      reason = sentence(node, value, data[at]!, overflows, keptFor(node, graph.nodes));
      return;
    }
    for (const dtype of roundings.get(value.id) ?? []) {
      if (fits(dtype, data)) continue;
      const largest = data.reduce(
        (most, each) => (Math.abs(each) > Math.abs(most) ? each : most),
        0,
      );
      overflows.push({ value, largest, dtype });
    }
  };
  return { tap, found: () => reason };
}

/** The ids of the keys and values that a node reads of the cache. */
function keptFor(node: GraphNode | undefined, nodes: readonly GraphNode[]): ReadonlySet<number> {
  if (node?.op !== "attention") return new Set();
  const written = nodes.filter((one) => one.op === "kv_write" && one.state === node.state);
  return new Set(written.flatMap((one) => (one.op === "kv_write" ? [one.k.id, one.v.id] : [])));
}

/** For each value, the types it is rounded to before it is used. */
function roundingsOf(nodes: readonly GraphNode[], kvType: KvDType): Map<number, Set<DType>> {
  const found = new Map<number, Set<DType>>();
  const note = ({ id }: Value, dtype: DType | undefined) => {
    if (!dtype) return;
    if (!found.has(id)) found.set(id, new Set());
    found.get(id)!.add(dtype);
  };
  const { k, v } = kvPair(kvType);
  for (const node of nodes) {
    if (node.op === "matmul" || node.op === "matmul_id")
      note(node.x, dtypeByName(node.weight.dtype.activation));
    if (node.op === "kv_write") {
      note(node.k, k);
      note(node.v, v);
    }
  }
  return found;
}

/** Whether finite values are still finite in this type. */
function fits(dtype: DType, data: Float32Array): boolean {
  const bytes = new Uint8Array(bytesFor(dtype, data.length));
  const blocks = data.length / dtype.blockElems;
  dtype.quantize!(data, 0, bytes, 0, blocks);
  const back = new Float32Array(data.length);
  dtype.dequantize(bytes, 0, back, 0, blocks);
  return back.every((each) => Number.isFinite(each));
}

function sentence(
  node: GraphNode | undefined,
  value: Value,
  found: number,
  overflows: readonly Overflow[],
  /** The keys and values that the node reads of the cache. */
  cached: ReadonlySet<number>,
): Reason {
  const name = `"${value.name}" holds ${found}`;
  const matmul = node?.op === "matmul" || node?.op === "matmul_id" ? node : undefined;
  const read = overflows.find((overflow) => overflow.value.id === matmul?.x.id);
  if (read && matmul) {
    const { weight } = matmul;
    const { value: x, largest, dtype } = read;
    return {
      reason: `the model's values leave what kernels for ${weight.dtype.name} weights can hold: "${x.name}" reaches ${largest} beside ${weight.name}; then ${name}. Use the model in another type: "lantern quantize" makes BF16, F32 and Q8_0`,
      widened: { value: x.name, weight: weight.name, dtype: dtype.name, largest },
    };
  }
  const kept = overflows.find((overflow) => cached.has(overflow.value.id));
  if (kept) {
    return {
      reason: name,
      kvOverflow: { value: kept.value.name, dtype: kept.dtype.name, largest: kept.largest },
    };
  }
  const weights = node ? weightsOf(node).map((weight) => weight.name) : [];
  const of = weights.length > 0 ? `, computed with ${weights.join(" and ")}` : "";
  return {
    reason: `the model computed nonsense: ${name}${of}, and everything before it was finite. The weights are damaged, or a sum is beyond what a float holds`,
  };
}
