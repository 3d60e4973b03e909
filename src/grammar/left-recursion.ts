// Refuses rules that call themselves before they take a byte: they would be called forever.
//
// Two positions are joined if one leads to the other without a byte: by a call, or by an edge that can be passed. A call with both
// ends in one cycle is left recursion. The cycles are found by Tarjan's algorithm, with a stack of its own: a chain of rules may be
// long.

import { GrammarError } from "./errors.ts";
import { EDGE, type PositionTable } from "./position-table.ts";
import type { Expressions } from "./regex/expressions.ts";

export function refuseLeftRecursion(table: PositionTable, of: Expressions): void {
  const { first, after, kind, what, to, starts, counters, names } = table;
  of.meter.spend((first.length + to.length) / 4);
  const calledBy = (edge: number): number => {
    if (kind[edge] === EDGE.rule) return what[edge]!;
    return kind[edge] === EDGE.counter ? counters[what[edge]!]!.rule : -1;
  };
  const order = new Int32Array(first.length); // 0: not seen
  const lowest = new Int32Array(first.length);
  const circle = new Int32Array(first.length); // 0: still open
  const open: number[] = [];
  const path: number[] = [];
  /** For each position of the path: its next edge, and whether the edge's call was followed. */
  const edges: number[] = [];
  const isCalled: boolean[] = [];
  let seen = 0;
  let circles = 0;
  const enter = (position: number): void => {
    order[position] = ++seen;
    lowest[position] = seen;
    open.push(position);
    path.push(position);
    edges.push(first[position]!);
    isCalled.push(false);
  };
  const follow = (from: number, position: number): void => {
    if (order[position] === 0) enter(position);
    else if (circle[position] === 0) lowest[from] = Math.min(lowest[from]!, order[position]!);
  };
  for (let root = 0; root < first.length; root++) {
    if (order[root] !== 0) continue;
    enter(root);
    while (path.length > 0) {
      const top = path.length - 1;
      const position = path[top]!;
      const edge = edges[top]!;
      if (edge >= 0) {
        const called = calledBy(edge);
        if (called >= 0 && !isCalled[top]) {
          isCalled[top] = true;
          follow(position, starts[called]!);
        } else {
          isCalled[top] = false;
          edges[top] = after[edge]!;
          if (table.isFree(edge, of)) follow(position, to[edge]!);
        }
        continue;
      }
      path.pop();
      edges.pop();
      isCalled.pop();
      const below = path[top - 1];
      if (below !== undefined) lowest[below] = Math.min(lowest[below]!, lowest[position]!);
      if (lowest[position] !== order[position]) continue;
      circles++;
      for (;;) {
        const member = open.pop()!;
        circle[member] = circles;
        if (member === position) break;
      }
    }
  }
  for (let position = 0; position < first.length; position++) {
    for (let edge = first[position]!; edge >= 0; edge = after[edge]!) {
      const called = calledBy(edge);
      if (called < 0 || circle[starts[called]!] !== circle[position]) continue;
      throw new GrammarError(
        `grammar: the rule ${names[called]} calls itself before it takes a character (left recursion). Write a repetition instead: x ::= y (op y)*`,
      );
    }
  }
}
