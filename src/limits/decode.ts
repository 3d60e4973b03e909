// The least time that generating tokens can take, one after another. Every token reads all weights and the KV cache up
// to itself, so its latency is a straight line: (n - 1) / W + B milliseconds for token n, where W is how many
// tokens make it one millisecond longer and B is the first token's. The arithmetic has such a line of its own, which
// binds only on devices that compute slowly. Lines count layers with a window as if they looked at one token: a limit may be
// too high.

import type { Device } from "./device.ts";
import { type ModelCost, pairsOf, windowWork } from "./model-cost.ts";
import { type Limit, limitOf, opsSum, type Work } from "./roofline.ts";

/** Latency of token n: (n - 1) / W + B. */
export interface DecodeLine {
  /** W: tokens that make the latency one millisecond longer. */
  readonly tokensPerMs: number;
  /** B: milliseconds of the first token; a prompt of one token takes as long. */
  readonly firstMs: number;
}

/** The work of token `n`, counted from 1: it looks at n tokens, itself included. */
export function decodeWork(cost: ModelCost, n: number): Work {
  const windows = windowWork(cost, (window) => Math.min(n, window));
  return {
    bytes: cost.weightBytes + cost.rowBytes + n * cost.kvBytes + windows.bytes,
    ...opsSum([1, cost.token], [1, cost.output], [n, cost.pair], [1, windows]),
  };
}

/** The work of `tokens` tokens, one after another, after `context` ones: everything is read anew for each. */
export function decodeTotalWork(cost: ModelCost, context: number, tokens: number): Work {
  // Without windows a token costs linearly with its number, so all of them cost what the average one does.
  const work = decodeWork({ ...cost, windows: undefined }, context + (tokens + 1) / 2);
  const windows = windowWork(cost, (window) => pairsOf(tokens, context, window));
  return { bytes: tokens * work.bytes + windows.bytes, ...opsSum([tokens, work], [1, windows]) };
}

export function decodeLimit(cost: ModelCost, device: Device, n: number): Limit {
  return limitOf(decodeWork(cost, n), device);
}

/** What bandwidth allows: W and B. */
export function decodeLine(cost: ModelCost, device: Device): DecodeLine {
  return lineOf(cost, device, "bandwidthSeconds");
}

function lineOf(
  cost: ModelCost,
  device: Device,
  part: "bandwidthSeconds" | "arithmeticSeconds",
): DecodeLine {
  const first = limitOf(decodeWork(cost, 1), device)[part];
  const pair = limitOf({ bytes: cost.kvBytes, ...cost.pair }, device)[part];
  return { tokensPerMs: 1 / (pair * 1000), firstMs: first * 1000 };
}

/** Milliseconds of token n, counted from 1. */
export function lineMs(line: DecodeLine, n: number): number {
  return (n - 1) / line.tokensPerMs + line.firstMs;
}

/** Milliseconds of the tokens after the first `from`, up to number `to`. */
export function lineTotalMs(line: DecodeLine, from: number, to: number): number {
  const before = (to * (to - 1) - from * (from - 1)) / 2;
  return before / line.tokensPerMs + (to - from) * line.firstMs;
}

/** The same under both resources: whichever takes longer binds, token by token. */
export function decodeTotalMs(cost: ModelCost, device: Device, from: number, to: number): number {
  const read = lineOf(cost, device, "bandwidthSeconds");
  const compute = lineOf(cost, device, "arithmeticSeconds");
  const slower = (n: number): DecodeLine =>
    lineMs(read, n) >= lineMs(compute, n) ? read : compute;
  // Two straight lines cross once at most.
  const steepness = 1 / compute.tokensPerMs - 1 / read.tokensPerMs;
  const crossing = Math.floor((read.firstMs - compute.firstMs) / steepness + 1);
  const cut = crossing > from && crossing < to ? crossing : from;
  return lineTotalMs(slower(Math.max(1, from + 1)), from, cut) + lineTotalMs(slower(to), cut, to);
}
