// Where the test data that is not part of the project lives: real models, llama.cpp's golden outputs and vectors.
// A clone without it still has a green `npm test`: what needs the data is skipped, with the reason in the title.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, test } from "vitest";

const root: string =
  process.env.LANTERN_SHARED ?? fileURLToPath(new URL("../../../shared", import.meta.url));

export function sharedPath(relative: string): string {
  return `${root}/${relative}`;
}

export function hasShared(relative: string): boolean {
  return existsSync(sharedPath(relative));
}

/** describe(), skipped with its reason where `relative` is not there; the body then does not even run. */
export function describeShared(title: string, relative: string, body: () => void): void {
  if (hasShared(relative)) describe(title, body);
  else test.skip(`${title} [skipped: ../shared/${relative} is not on this machine]`, () => {});
}
