// The least time of decoding, token by token. Every token reads all weights and the KV cache up to itself, so its
// latency is a straight line: (n - 1) / W + B milliseconds for token n, where W is the number of tokens that add one
// millisecond, and B is the latency of the first token. Arithmetic has a line of its own, which matters only on
// devices that compute slowly. The lines count layers with a window as if they attended to one token: a limit may be
// too high.

import type { Device, Work } from "../api/rates.ts";
import { type ModelCost, pairsOf, windowWork } from "./model-cost.ts";
import { type Limit, limitOf, opsSum } from "./roofline.ts";

/** Latency of token n: (n - 1) / W + B. */
export interface DecodeLine {
  /** W: tokens that add one millisecond of latency. */
  readonly tokensPerMs: number;
  /** B: milliseconds of the first token; the same as for a prompt of one token. */
  readonly firstMs: number;
}

/** The work of token `n`, counted from 1: it attends to n tokens, itself included. */
export function decodeWork(cost: ModelCost, n: number): Work {
  const windows = windowWork(cost, (window) => Math.min(n, window));
  return {
    bytes: cost.weightBytes + cost.rowBytes + n * cost.kvBytes + windows.bytes,
    ...opsSum([1, cost.token], [1, cost.output], [n, cost.pair], [1, windows]),
  };
}

/** The work of `tokens` tokens, one after another, after `context` others: everything is read again for each. */
export function decodeTotalWork(cost: ModelCost, context: number, tokens: number): Work {
  // Without windows the cost is linear in the position, so all tokens together cost as much as the average one times
  // their number.
  const work = decodeWork({ ...cost, windows: undefined }, context + (tokens + 1) / 2);
  const windows = windowWork(cost, (window) => pairsOf(tokens, context, window));
  return { bytes: tokens * work.bytes + windows.bytes, ...opsSum([tokens, work], [1, windows]) };
}

export function decodeLimit(cost: ModelCost, device: Device, n: number): Limit {
  return limitOf(decodeWork(cost, n), device);
}

/** The line of the memory bandwidth: W and B. */
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

/** The same for both resources: for each token, the slower one counts. */
export function decodeTotalMs(cost: ModelCost, device: Device, from: number, to: number): number {
  const read = lineOf(cost, device, "bandwidthSeconds");
  const compute = lineOf(cost, device, "arithmeticSeconds");
  const slower = (n: number): DecodeLine =>
    lineMs(read, n) >= lineMs(compute, n) ? read : compute;
  // Two straight lines cross at most once.
  const steepness = 1 / compute.tokensPerMs - 1 / read.tokensPerMs;
  const crossing = Math.floor((read.firstMs - compute.firstMs) / steepness + 1);
  const cut = crossing > from && crossing < to ? crossing : from;
  return lineTotalMs(slower(Math.max(1, from + 1)), from, cut) + lineTotalMs(slower(to), cut, to);
}
