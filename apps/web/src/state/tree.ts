// A conversation as a tree, and queries on it for the pages. Pure functions on messages; no state, no server.

import type { Message } from "../api-types.ts";

export type Tree = ReadonlyMap<string, Message>;

export function treeOf(messages: readonly Message[]): Tree {
  return new Map(messages.map((message) => [message.id, message]));
}

/** From the first message down to `leaf`. */
export function pathTo(tree: Tree, leaf: string | null): Message[] {
  const path: Message[] = [];
  for (let at = leaf; at !== null; ) {
    const message = tree.get(at);
    if (!message) break;
    path.unshift(message);
    at = message.parent;
  }
  return path;
}

/** Siblings of a message, oldest first, itself included. */
export function siblings(tree: Tree, message: Message): Message[] {
  return [...tree.values()].filter(({ parent }) => parent === message.parent);
}

export function children(tree: Tree, id: string | null): Message[] {
  return [...tree.values()].filter(({ parent }) => parent === id);
}

/** The newest message at or below `id`: the end of a branch. */
export function newestBelow(tree: Tree, id: string): string {
  let at = id;
  for (;;) {
    const next = children(tree, at).at(-1);
    if (!next) return at;
    at = next.id;
  }
}

/** The number of messages after `id` along its newest branch. */
export function countBelow(tree: Tree, id: string | null): number {
  let count = 0;
  for (let at = children(tree, id).at(-1); at; at = children(tree, at.id).at(-1)) count++;
  return count;
}
