// What a fuzz target is to the runner, and what an execution ends with.
//
// An input is a JSON value: small, readable in a diff, and cut down by one minimiser for all targets (minimise.ts). Targets
// that damage files therefore describe the damage ("edits"), not the damaged bytes.

import { LanternError } from "../../src/base/errors.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface FuzzTarget {
  readonly name: string;
  /** One line for --help. */
  readonly describe: string;
  /** An execution that takes longer is a finding (default 20 s: machines may be busy). */
  readonly limitMs?: number;
  prepare?(): void | Promise<void>;
  /** The input of one execution, made from nothing or from `base`. The same arguments, the same input. */
  make?(seed: number, base?: Json): Json;
  /**
   * Runs one input (without `make`: what the seed stands for). What it throws is a finding, so a refusal that is right is
   * caught inside. Returns the outcome in words: an input whose words are new is kept in the corpus.
   */
  run(seed: number, input?: Json): unknown;
  dispose?(): void | Promise<void>;
}

export type FindingKind = "throw" | "hang" | "memory" | "death";

export interface Finding {
  target: string;
  kind: FindingKind;
  message: string;
  /** Findings of one shape are one finding. */
  shape: string;
  /** Of the execution; together with the corpus it makes the input again. */
  seed: number;
  input: Json;
}

/** Seed of the n-th execution of a run: neighbours have nothing in common. */
export function executionSeed(seed: number, n: number): number {
  let t = (Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) + Math.imul(n + 1, 0xc2b2ae35)) >>> 0;
  t = Math.imul(t ^ (t >>> 16), 0x7feb352d);
  t = Math.imul(t ^ (t >>> 15), 0x846ca68b);
  return (t ^ (t >>> 16)) >>> 0;
}

/** A sentence without what differs from input to input: numbers, and whatever is quoted. */
export function shapeOf(text: string): string {
  return text
    .replaceAll(/"(?:\\.|[^"\\])*"|'[^']*'|`[^`]*`/g, '"…"')
    .replaceAll(/[-+]?\d[\d.,e+]*/g, "N")
    .replaceAll(/N(?:[\s,]+N)+/g, "N…")
    .slice(0, 160);
}

/** What a refusal looks like; anything but a LanternError is thrown on, as a finding. */
export function refusal(error: unknown): string {
  if (error instanceof LanternError) return shapeOf(`${error.code}: ${error.message}`);
  throw error;
}

/** Where in our sources an error comes from: errors with one message from two places are two findings. */
export function placeOf(error: unknown): string {
  const stack = error instanceof Error ? String(error.stack) : "";
  return /\/(src\/[\w./-]+?\.ts)/.exec(stack)?.[1] ?? "";
}
