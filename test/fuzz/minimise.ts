// Makes the input of a finding smaller while the finding stays: leaves out items of lists and fields of objects, cuts strings
// in half, makes numbers round. Knows nothing of targets, since every input is JSON.

import type { Json } from "./target.ts";

export interface MinimiseLimits {
  /** Tries, and the time for all of them. */
  tries: number;
  seconds: number;
}

/** `stillFails` says whether a candidate has the same finding. Returns the smallest that had. */
export async function minimise(
  input: Json,
  stillFails: (candidate: Json) => boolean | Promise<boolean>,
  limits: MinimiseLimits,
): Promise<Json> {
  const until = Date.now() + limits.seconds * 1000;
  let smallest = input;
  let tries = 0;
  for (let progress = true; progress; ) {
    progress = false;
    for (const candidate of smaller(smallest)) {
      if (tries >= limits.tries || Date.now() > until) return smallest;
      tries++;
      if (!(await stillFails(candidate))) continue;
      smallest = candidate;
      progress = true;
      break; // its own smaller ones come next
    }
  }
  return smallest;
}

/** Smaller values of the same kind, the boldest first. */
export function* smaller(value: Json): Generator<Json> {
  if (Array.isArray(value)) {
    yield* shorterLists(value);
    for (const [i, item] of value.entries()) {
      for (const candidate of smaller(item)) yield value.with(i, candidate);
    }
  } else if (typeof value === "string") yield* shorterStrings(value);
  else if (typeof value === "number") {
    if (value !== 0) yield 0;
    if (Math.abs(value) > 1) yield Math.trunc(value / 2);
  } else if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value);
    for (let i = 0; i < entries.length; i++) yield Object.fromEntries(entries.toSpliced(i, 1));
    for (const [i, [key, item]] of entries.entries()) {
      for (const candidate of smaller(item)) {
        yield Object.fromEntries(entries.with(i, [key, candidate]));
      }
    }
  }
}

function* shorterLists(list: Json[]): Generator<Json[]> {
  for (
    let size = Math.ceil(list.length / 2);
    size >= 1;
    size = size > 1 ? Math.ceil(size / 2) : 0
  ) {
    for (let start = 0; start < list.length; start += size) yield list.toSpliced(start, size);
  }
}

function* shorterStrings(text: string): Generator<string> {
  for (let size = Math.ceil(text.length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let start = 0; start < text.length; start += size) {
      yield text.slice(0, start) + text.slice(start + size);
    }
  }
}
