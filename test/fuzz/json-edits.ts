// Damage to a JSON document as data: what is done at which place. A place that an earlier edit removed is left alone, so that
// any part of a list of edits can be applied, which the minimiser does.

import type { Random } from "../formats/mutate.ts";
import { awkwardJson, awkwardStrings } from "./awkward.ts";
import type { Json } from "./target.ts";

export type Path = (string | number)[];

export type JsonEdit =
  | { at: Path; put: Json }
  | { at: Path; drop: true }
  | { at: Path; rename: string }
  /** The list or text so many times. */
  | { at: Path; times: number }
  /** What stands elsewhere. */
  | { at: Path; copy: Path };

type Box = Record<string, Json>;

const isBox = (value: unknown): value is Box => typeof value === "object" && value !== null;

/** Places of a document; a large list or table gives a few of its own. */
export function* places(value: Json, random: Random, at: Path = []): Generator<Path> {
  if (at.length > 0) yield at;
  if (!isBox(value)) return;
  const keys = Object.keys(value);
  const chosen =
    keys.length <= 12 ? keys : Array.from({ length: 6 }, () => keys[random.below(keys.length)]!);
  for (const key of chosen) {
    const step = Array.isArray(value) ? Number(key) : key;
    yield* places(value[key]!, random, [...at, step]);
  }
}

export function randomJsonEdit(document: Json, random: Random): JsonEdit {
  const all = [...places(document, random)];
  if (all.length === 0) return { at: [], put: awkwardJson(random) };
  const at = random.pick(all);
  switch (random.below(8)) {
    case 0:
      return { at, drop: true };
    case 1:
      return { at, rename: random.pick(awkwardStrings) };
    case 2:
      return { at, times: random.pick([2, 3, 50, 1000]) };
    case 3:
      return { at, copy: random.pick(all) };
    case 4:
      return { at: [...at, random.pick(awkwardStrings)], put: awkwardJson(random) };
    default:
      return { at, put: awkwardJson(random) };
  }
}

/** A damaged copy. */
export function applyJsonEdits(document: Json, edits: readonly JsonEdit[]): Json {
  const root: Box = { root: structuredClone(document) };
  for (const edit of edits) {
    // A minimiser may have left out parts of an edit.
    if (!Array.isArray(edit?.at)) continue;
    const box = valueAt(root, ["root", ...edit.at.slice(0, -1)]);
    const key = edit.at.length === 0 ? undefined : edit.at.at(-1)!;
    if (key === undefined) {
      if ("put" in edit) root.root = edit.put;
    } else if (isBox(box)) applyAt(root, box, key, edit);
  }
  return root.root!;
}

function applyAt(root: Box, box: Box, key: string | number, edit: JsonEdit): void {
  const old = Object.hasOwn(box, key) ? box[key] : undefined;
  if ("put" in edit) set(box, key, edit.put);
  else if ("drop" in edit) {
    if (Array.isArray(box)) box.splice(Number(key), 1);
    else delete box[key];
  } else if ("copy" in edit) {
    const copy = Array.isArray(edit.copy) ? valueAt(root, ["root", ...edit.copy]) : undefined;
    if (copy !== undefined && JSON.stringify(copy).length < 100_000) {
      set(box, key, structuredClone(copy));
    }
  } else if (old === undefined) return;
  else if ("rename" in edit) {
    if (Array.isArray(box)) return;
    delete box[key];
    set(box, edit.rename, old);
  } else if ("times" in edit) {
    const times = Math.min(Math.max(Number(edit.times), 0), 1000);
    if (typeof old === "string") set(box, key, old.repeat(times).slice(0, 20_000));
    else if (Array.isArray(old)) set(box, key, Array(times).fill(old).flat(1).slice(0, 20_000));
  }
}

/** As JSON.parse does it: a key "__proto__" is a field like another. */
function set(box: Box, key: string | number, value: Json): void {
  if (Array.isArray(box) && !(Number(key) >= 0 && Number(key) <= box.length)) return;
  Object.defineProperty(box, key, { value, writable: true, enumerable: true, configurable: true });
}

function valueAt(root: Box, path: Path): Json | undefined {
  let value: Json | undefined = root;
  for (const key of path) {
    if (!isBox(value) || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}
