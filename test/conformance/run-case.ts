// Runs a case of the conformance table on a backend, and says whether its values are the reference's. Without the test
// runner, so that a child process can (guarded-child.ts).

import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";

import { Batch, NO_SLOT } from "../../src/graph/batch.ts";
import {
  adapterOf,
  type Graph,
  inputsOf,
  kvGroups,
  type Rows,
  type Weight,
} from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { kvOf } from "../support/kv.ts";

/** Batch by batch: how many tokens of two sequences. */
export type Batches = readonly (readonly [first: number, second: number])[];

/**
 * The largest difference that a row may have, relative to its largest value. 0: the same bits. As an object: so for a
 * `share` of a value's rows, and at most `worst` for the others, where an activation may round to its other neighbour.
 */
export type Tolerance =
  | number
  | { readonly usual: number; readonly share: number; readonly worst: number };

export interface Case {
  readonly name: string;
  make(): CaseModel;
  readonly batches: Batches;
  readonly tolerance: Tolerance;
  /** Names of values that are the same bits. */
  readonly exact?: readonly string[];
}

export interface CaseModel {
  readonly graph: Graph;
  bytesOf(weight: Weight): Uint8Array;
  /** Tokens are below it. */
  readonly vocab: number;
  /** Type of the KV cache; default f32. */
  readonly kvType?: string;
}

/** A value after its op: one row for each token, or for each that is read. */
interface Seen {
  readonly batch: number;
  readonly name: string;
  readonly rows: Rows;
  readonly cols: number;
  readonly values: Float32Array;
}

/** Every value of every batch. */
export async function runCase(
  backend: Backend,
  { graph, bytesOf, vocab, kvType = "f32" }: CaseModel,
  batches: Batches,
): Promise<Seen[]> {
  const most = Math.max(...batches.map(([first, second]) => first + second));
  const plan = makePlan(graph, { maxTokens: most, maxOutputs: most });
  const kv = { ...evenCapacity(4, kvOf(kvType), kvGroups(graph).length), slots: 4 };
  await backend.prepare(plan, kv);
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  // Recurrent state goes back and forth between two slots.
  const sequences = [
    { blocks: Int32Array.of(3, 1), slots: { from: NO_SLOT, to: 2 }, spare: 0, scales: scales[0] },
    { blocks: Int32Array.of(0, 2), slots: { from: NO_SLOT, to: 1 }, spare: 3, scales: scales[1] },
  ];
  const lengths = [0, 0];
  const seen: Seen[] = [];
  const batch = new Batch(plan.limits);
  for (const [number, counts] of batches.entries()) {
    batch.clear();
    counts.forEach((count, sequence) => {
      for (let i = 0; i < count; i++) {
        const position = lengths[sequence]!++;
        const token = tokenAt(sequence, position, vocab);
        batch.add(token, position, sequences[sequence]!, isRead(position));
      }
    });
    await backend.run(batch, {
      tap: ({ name, rows, cols }, data) => {
        seen.push({ batch: number, name, rows, cols, values: data.slice() });
      },
    });
    counts.forEach((count, i) => {
      const sequence = sequences[i]!;
      const { slots } = sequence;
      if (count === 0) return;
      Object.assign(sequence, { slots: { from: slots.to, to: sequence.spare }, spare: slots.to });
    });
  }
  return seen;
}

/** Of each sequence, the scales of adapters: the first uses only the second adapter. */
const scales = [Float32Array.of(0, -0.75), Float32Array.of(0.5, 2)] as const;

function isIn(rows: Rows, sequence: number, position: number): boolean {
  const own = adapterOf(rows);
  if (own && scales[sequence]![own.adapter] === 0) return false;
  return (own?.rows ?? rows) === "tokens" || isRead(position);
}

/** The same token of a sequence however batches are cut. */
function tokenAt(sequence: number, position: number, vocab: number): number {
  return (position * 11 + sequence * 5 + 3) % vocab;
}

function isRead(position: number): boolean {
  return position % 3 !== 1;
}

/** What the reference computes: once for all targets that a process compares with it. */
const references = new WeakMap<CaseModel, Map<Batches, Promise<Seen[]>>>();

async function referenceOf(model: CaseModel, batches: Batches): Promise<Seen[]> {
  const known = references.get(model) ?? new Map<Batches, Promise<Seen[]>>();
  references.set(model, known);
  const made = known.get(batches) ?? runCase(new ReferenceBackend(), model, batches);
  known.set(batches, made);
  return await made;
}

/** The first value that is not what the reference computes, as a sentence; undefined: all are. */
export async function firstDifference(
  backend: Backend,
  model: CaseModel,
  { tolerance, exact = [] }: Pick<Case, "tolerance" | "exact">,
  batches: Batches,
): Promise<string | undefined> {
  for (const node of model.graph.nodes) {
    const why = backend.supports(node);
    if (why !== true) return `${node.name} (${node.op}) is refused: ${why}`;
  }
  const expected = await referenceOf(model, batches);
  const got = await runCase(backend, model, batches);
  const names = (list: Seen[]) => list.map(({ batch, name }) => `${batch} ${name}`).join();
  if (names(got) !== names(expected)) return `values ${names(got)}, expected ${names(expected)}`;
  for (const [i, one] of got.entries()) {
    const allowed = exact.includes(one.name) ? 0 : tolerance;
    const wrong = tooFar(one, expected[i]!, allowed);
    if (wrong !== undefined) return `batch ${one.batch}, ${one.name}: ${wrong}`;
  }
  return undefined;
}

function tooFar(got: Seen, expected: Seen, tolerance: Tolerance): string | undefined {
  const apart = rowDistances(got, expected.values);
  const { usual, share, worst } =
    typeof tolerance === "number" ? { usual: tolerance, share: 1, worst: tolerance } : tolerance;
  const row = apart.findIndex((distance) => !(distance <= worst));
  if (row >= 0) return `row ${row} is ${apart[row]} apart, expected at most ${worst}`;
  const near = apart.filter((distance) => distance <= usual).length;
  if (near >= share * apart.length) return undefined;
  return `${near} of ${apart.length} rows are within ${usual}, expected ${100 * share} %: ${apart}`;
}

/** Of each row: the largest difference, relative to its largest value. In a case about NaN, its name says so. */
function rowDistances(
  { name, values: got, cols }: Pick<Seen, "name" | "values" | "cols">,
  expected: Float32Array,
): number[] {
  if (got.length !== expected.length) return [Number.NaN];
  const mayBeNaN = name.includes("NaN");
  return Array.from({ length: expected.length / cols }, (_, row) => {
    let [most, size] = [0, 1e-6];
    for (let i = row * cols; i < (row + 1) * cols; i++) {
      if (mayBeNaN && Object.is(got[i], expected[i])) continue;
      most = Math.max(most, Math.abs(got[i]! - expected[i]!));
      size = Math.max(size, Math.abs(expected[i]!));
    }
    return most / size;
  });
}

/**
 * The first row that the reference computes differently when tokens come one by one; undefined: none. What the reference
 * is held against: how batches are cut must not matter. Without a causal mask it does: a token then attends to all of its
 * batch (attention-cases.ts holds that against doubles).
 */
export async function firstBatchDifference(
  model: CaseModel,
  batches: Batches,
): Promise<string | undefined> {
  const whole = rowsOf(await referenceOf(model, batches), batches);
  const single: Batches = batches.flatMap(([first, second]) => [
    ...new Array<readonly [number, number]>(first).fill([1, 0]),
    ...new Array<readonly [number, number]>(second).fill([0, 1]),
  ]);
  const alone = rowsOf(await runCase(new ReferenceBackend(), model, single), single);
  if ([...whole.keys()].toSorted().join() !== [...alone.keys()].toSorted().join()) {
    return "other values come of single tokens";
  }
  const uncut = [...withoutMask(model.graph)].map((name) => `${name}, `);
  for (const [key, row] of whole) {
    if (uncut.some((name) => key.startsWith(name))) continue;
    const single = { name: key, values: alone.get(key)!, cols: row.length };
    const [apart] = rowDistances(single, row);
    if (apart !== 0) return `${key}: ${apart} apart, expected the same bits`;
  }
  return undefined;
}

/** Names of the values of attention without a causal mask, and of what is computed from them. */
function withoutMask({ nodes }: Graph): Set<string> {
  const names = new Set<string>();
  for (const node of nodes) {
    const isUncut = node.op === "attention" && !node.causal;
    if (isUncut || inputsOf(node).some(({ name }) => names.has(name))) names.add(node.name);
  }
  return names;
}

/** Each value's rows by sequence and position. */
function rowsOf(seen: readonly Seen[], batches: Batches): Map<string, Float32Array> {
  const lengths = [0, 0];
  const placed = batches.map((counts) =>
    counts.flatMap((count, sequence) =>
      Array.from({ length: count }, () => ({ sequence, position: lengths[sequence]!++ })),
    ),
  );
  const all = new Map<string, Float32Array>();
  for (const { batch, name, rows, cols, values } of seen) {
    const tokens = placed[batch]!.filter(({ sequence, position }) =>
      isIn(rows, sequence, position),
    );
    tokens.forEach(({ sequence, position }, row) => {
      const key = `${name}, sequence ${sequence}, position ${position}`;
      all.set(key, values.subarray(row * cols, (row + 1) * cols));
    });
  }
  return all;
}
