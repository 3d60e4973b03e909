// Measures the number of prompt tokens from which a device is faster that copies weights for each batch: made-up batches on either side, a
// few sizes, once. Both times are lines between the measured sizes. They end with the first generated token, on the host: copying keys and
// values back counts, and so do weights that the processor's caches have lost meanwhile.
// The result is a number that is decided before the first batch, so that no text depends on how fast a batch happened to be.

import { Batch, KV_BLOCK_TOKENS, NO_SLOT } from "../../graph/batch.ts";
import { kvGroups, recurrentStates } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { Backend } from "../backend.ts";

/** The time of a prompt of `tokens` tokens, and of the token after it. */
export interface SizeTime {
  readonly tokens: number;
  readonly ms: number;
}

export interface Crossover {
  /** The fewest tokens; undefined: the host is faster with any number, or not clearly slower. */
  readonly fewest: number | undefined;
  readonly host: readonly SizeTime[];
  readonly device: readonly SizeTime[];
}

/** Sizes that are tried: fewer tokens than the first never gain, since every weight is brought for them. */
const HOST_TOKENS = [32, 128, 512] as const;
const STEP = 32;
/** Only a clear gain is worth other kernels. */
const GAIN = 1.15;
/** A host that would take longer for the next size is not asked. */
const MOST_MS = 2500;

/** Two backends that were prepared for the same plan. */
export interface Sides {
  readonly sides: readonly [Backend, Backend];
  readonly plan: Plan;
  /** Bytes of a cache block, by group. */
  readonly blockBytes: readonly number[];
  /** For as many the cache has blocks. */
  readonly heldTokens: number;
}

/** `check`: throws if the load was aborted. */
export async function measureCrossover(
  both: Sides,
  now: () => number,
  check: () => void | Promise<void>,
): Promise<Crossover> {
  const { plan } = both;
  const [host, device] = both.sides;
  const most = Math.floor(Math.min(plan.limits.maxTokens, both.heldTokens) / STEP) * STEP;
  const sizes = [...HOST_TOKENS.filter((size) => size < most), most].filter((size) => size > 0);
  if (sizes.length === 0) return { fewest: undefined, host: [], device: [] };
  /** A prompt and its first token, which the host computes. */
  const timed = async (backend: Backend, tokens: number): Promise<SizeTime> => {
    await check();
    const [prompt, token] = [madeUpBatch(plan, tokens, 0), madeUpBatch(plan, 1, tokens - 1)];
    const since = now();
    await backend.run(prompt);
    if (backend === device) await bringBack(device, both, tokens);
    await host.run(token, { phase: "generation" });
    return { tokens, ms: now() - since };
  };
  const onHost: SizeTime[] = [];
  await timed(host, sizes[0]!); // pages, caches and compiled code
  for (const tokens of sizes) {
    const last = onHost.at(-1);
    if (last && (last.ms * tokens) / last.tokens > MOST_MS) break;
    onHost.push(await timed(host, tokens));
  }
  await timed(device, most);
  const onDevice: SizeTime[] = [];
  for (const tokens of new Set([sizes[0]!, most])) onDevice.push(await timed(device, tokens));
  return { fewest: crossing(onHost, onDevice, most), host: onHost, device: onDevice };
}

/** The fewest tokens from which on the device is clearly faster with any number up to `most`. */
export function crossing(
  host: readonly SizeTime[],
  device: readonly SizeTime[],
  most: number,
): number | undefined {
  let fewest: number | undefined;
  for (let tokens = most; tokens >= STEP; tokens -= STEP) {
    if (msOf(host, tokens) < GAIN * msOf(device, tokens)) break;
    fewest = tokens;
  }
  return fewest;
}

/** On the lines between measured sizes; beyond the last size, in proportion to it. */
export function msOf(times: readonly SizeTime[], tokens: number): number {
  const after = times.findIndex((time) => time.tokens >= tokens);
  if (after < 0) {
    const last = times.at(-1)!;
    return (last.ms * tokens) / last.tokens;
  }
  const high = times[after]!;
  const low = times[after - 1];
  if (!low) return high.ms;
  const part = (tokens - low.tokens) / (high.tokens - low.tokens);
  return low.ms + part * (high.ms - low.ms);
}

/** Tokens of one sequence from a position on, the last of them an output. */
function madeUpBatch(plan: Plan, tokens: number, position: number): Batch {
  const batch = new Batch(plan.limits);
  const hasSlots = recurrentStates(plan.graph).length > 0;
  const blocks = Math.ceil((position + tokens) / KV_BLOCK_TOKENS);
  const sequence = {
    blocks: Int32Array.from({ length: blocks }, (_, i) => i),
    ...(hasSlots && { slots: { from: NO_SLOT, to: 0 } }),
  };
  for (let i = 0; i < tokens; i++) {
    batch.add(i % 16, position + i, sequence, i === tokens - 1, position > 0);
  }
  return batch;
}

/** Copies the blocks that a batch has written to the device's cache to the host. */
async function bringBack(
  { transfer }: Backend,
  { plan: { graph }, blockBytes }: Sides,
  tokens: number,
): Promise<void> {
  for (const [group] of kvGroups(graph).entries()) {
    const bytes = new Uint8Array(blockBytes[group]!);
    for (let block = 0; block * KV_BLOCK_TOKENS < tokens; block++) {
      await transfer?.readBlock(group, block, bytes);
    }
  }
}
