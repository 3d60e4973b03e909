// Expressions as data, to be sent from one thread to another: each after its operands.

import { KIND } from "./expression-table.ts";
import type { Expressions } from "./expressions.ts";

/** Few large arrays: many small objects would take the receiving thread long. */
export interface ExpressionList {
  readonly ids: Int32Array<ArrayBuffer>; // ascending
  /** [ids, 4]: kind, left, right, high; `left` of bytes is an index in `sets`. */
  readonly nodes: Float64Array<ArrayBuffer>;
  readonly sets: Uint32Array<ArrayBuffer>; // [sets, 8]
  readonly parts: Int32Array<ArrayBuffer>; // of all, one after the other
  readonly partEnds: Int32Array<ArrayBuffer>; // [ids]
}

/** Expressions that are taken over at a time: a millisecond or two. */
const TAKEN_AT_ONCE = 2000;

/** These expressions, and all that they are made of. */
export function listExpressions(of: Expressions, roots: Iterable<number>): ExpressionList {
  const isNeeded = new Uint8Array(of.size);
  for (const root of roots) isNeeded[root] = 1;
  let count = 0;
  // The operands of an expression have lower numbers.
  for (let id = of.size - 1; id >= 0; id--) {
    if (isNeeded[id] === 0) continue;
    count++;
    const { kind, left, right, parts } = of.node(id);
    if (kind === KIND.concat || kind === KIND.not || kind === KIND.repeat) isNeeded[left] = 1;
    if (kind === KIND.concat) isNeeded[right] = 1;
    for (const part of parts) isNeeded[part] = 1;
  }
  const ids = new Int32Array(count);
  const nodes = new Float64Array(4 * count);
  const partEnds = new Int32Array(count);
  const sets: number[] = [];
  const allParts: number[] = [];
  let at = 0;
  for (let id = 0; id < of.size; id++) {
    if (isNeeded[id] === 0) continue;
    const { kind, left, right, high, parts } = of.node(id);
    ids[at] = id;
    nodes.set([kind, kind === KIND.bytes ? sets.length / 8 : left, right, high], 4 * at);
    if (kind === KIND.bytes) sets.push(...of.byteSets.get(left));
    for (const part of parts) allParts.push(part);
    partEnds[at++] = allParts.length;
  }
  return { ids, nodes, sets: Uint32Array.from(sets), parts: Int32Array.from(allParts), partEnds };
}

/** Adds another list's expressions, a few at a time; the result: their numbers here, indexed by their numbers there. */
export function* takeExpressions(
  of: Expressions,
  { ids, nodes, sets, parts, partEnds }: ExpressionList,
): Generator<void, ReadonlyMap<number, number>> {
  const here = new Map<number, number>();
  let taken = 0; // parts
  for (let i = 0; i < ids.length; i++) {
    if (i % TAKEN_AT_ONCE === TAKEN_AT_ONCE - 1) yield;
    const kind = nodes[4 * i]!;
    const left = nodes[4 * i + 1]!;
    const right = nodes[4 * i + 2]!;
    const isOfOne = kind === KIND.concat || kind === KIND.not || kind === KIND.repeat;
    const inner: number[] = [];
    for (; taken < partEnds[i]!; taken++) inner.push(here.get(parts[taken]!)!);
    const set = (): number => of.byteSets.add(sets.slice(8 * left, 8 * left + 8));
    const node = {
      kind,
      left: kind === KIND.bytes ? set() : isOfOne ? here.get(left)! : left,
      right: kind === KIND.concat ? here.get(right)! : right,
      high: nodes[4 * i + 3]!,
      parts: inner,
    };
    here.set(ids[i]!, of.make(node));
  }
  return here;
}
