// Stop strings in a stream of text: which text can be shown now, which must wait, and when to end.
//
// The text comes in pieces, and a stop string may start in the middle of one and end three pieces later. Text is held
// back only while it could still become a stop string, and not one character more. The stop string that is complete
// first ends the text; of two that are complete at the same character, the longer. So the result depends on the text
// alone, not on how it was split into pieces.
//
// It is an Aho-Corasick automaton over UTF-16 code units: its state is the longest suffix of the text that is a prefix
// of a stop string, which is exactly the text to hold back.

import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";

interface Node {
  /** Depth in code units: the length of the text held back in this state. */
  depth: number;
  next: Map<number, Node>;
  /** The node of the longest proper suffix of this node's text that is also in the tree. */
  fallback: Node | undefined;
  /** The longest stop string that this node's text ends with. */
  stop: string | undefined;
}

export class StopMatcher {
  readonly #root: Node;
  #node: Node;
  #held = "";
  #matched: string | undefined;

  constructor(stops: readonly string[]) {
    if (!Array.isArray(stops)) {
      throw new UsageError(`stop strings: got ${typeof stops}, expected a list of strings`);
    }
    for (const [index, stop] of stops.entries()) checkStop(stop, index);
    this.#root = buildAutomaton(stops);
    this.#node = this.#root;
  }

  /** The stop string that ended the text; undefined while none has. */
  get matched(): string | undefined {
    return this.#matched;
  }

  /** Takes the next piece of text and returns the text that can no longer be part of a stop string. */
  push(piece: string): string {
    if (this.#matched !== undefined) return "";
    const text = this.#held + piece;
    for (let at = this.#held.length; at < text.length; at++) {
      this.#node = this.#step(text.charCodeAt(at));
      if (this.#node.stop !== undefined) {
        this.#matched = this.#node.stop;
        this.#held = "";
        return text.slice(0, at + 1 - this.#node.stop.length);
      }
    }
    const certain = text.length - this.#node.depth;
    this.#held = text.slice(certain);
    return text.slice(0, certain);
  }

  /** The text has ended: returns the held-back text. */
  end(): string {
    const rest = this.#held;
    this.#held = "";
    this.#node = this.#root;
    return rest;
  }

  #step(unit: number): Node {
    let node: Node | undefined = this.#node;
    while (node !== undefined) {
      const next = node.next.get(unit);
      if (next !== undefined) return next;
      node = node.fallback;
    }
    return this.#root;
  }
}

function checkStop(stop: unknown, index: number): void {
  // Half a surrogate pair could hold back half a character.
  if (typeof stop === "string" && stop !== "" && stop.isWellFormed()) return;
  throw new UsageError(
    `stop strings: stop[${index}]: got ${show(stop)}, expected a string of at least one character`,
  );
}

function buildAutomaton(stops: readonly string[]): Node {
  const root: Node = { depth: 0, next: new Map(), fallback: undefined, stop: undefined };
  for (const stop of stops) {
    let node = root;
    for (let i = 0; i < stop.length; i++) node = childOf(node, stop.charCodeAt(i));
    node.stop = stop;
  }
  // Breadth first: a node's fallback is nearer to the root, so it is complete when it is needed.
  const queue: Node[] = [root];
  for (const node of queue) {
    for (const [unit, child] of node.next) {
      let fallback = node.fallback;
      while (fallback !== undefined && !fallback.next.has(unit)) fallback = fallback.fallback;
      child.fallback = fallback?.next.get(unit) ?? root;
      child.stop ??= child.fallback.stop;
      queue.push(child);
    }
  }
  return root;
}

function childOf(node: Node, unit: number): Node {
  let child = node.next.get(unit);
  if (child === undefined) {
    child = { depth: node.depth + 1, next: new Map(), fallback: undefined, stop: undefined };
    node.next.set(unit, child);
  }
  return child;
}
