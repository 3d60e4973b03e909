// The options of speculation (`speculate` of open() and generate()), checked.

import type { SpeculateOptions } from "../../api/api.ts";
import type { Backend } from "../../backends/backend.ts";
import { UsageError } from "../../base/errors.ts";
import { show } from "../../base/show.ts";

const DEFAULT_DEPTH = 16;
/** A state with a window can always go back by so many tokens. */
const MOST_DEPTH = 31;

const names = [
  "maxDepth",
  "minDepth",
  "minChance",
] as const satisfies readonly (keyof SpeculateOptions)[];

/** The options of the engine, and over them those of a generation; undefined: it does not speculate. */
export function resolveSpeculation(
  ...given: readonly (boolean | SpeculateOptions | undefined)[]
): Required<SpeculateOptions> | undefined {
  const chosen: Required<SpeculateOptions> = { maxDepth: DEFAULT_DEPTH, minDepth: 1, minChance: 0 };
  let isOn = true;
  for (const options of given) {
    if (options === undefined) continue;
    isOn = options !== false;
    if (typeof options === "boolean") continue;
    checkNames(options);
    for (const name of names) if (options[name] !== undefined) chosen[name] = options[name];
  }
  checkCount("maxDepth", chosen.maxDepth);
  checkCount("minDepth", chosen.minDepth);
  const { minChance } = chosen;
  if (!(typeof minChance === "number" && minChance >= 0 && minChance <= 1)) {
    throw new UsageError(
      `speculate.minChance: got ${show(minChance)}, expected a number from 0 to 1`,
    );
  }
  return isOn && chosen.maxDepth > 0 ? chosen : undefined;
}

function checkNames(options: SpeculateOptions): void {
  if (typeof options !== "object" || options === null) {
    throw new UsageError(`speculate: got ${show(options)}, expected true, false or an object`);
  }
  const unknown = Object.keys(options).find((name) => !names.some((known) => known === name));
  if (unknown === undefined) return;
  throw new UsageError(`speculate: unknown option "${unknown}". Known are ${names.join(", ")}`);
}

function checkCount(name: string, count: number): void {
  if (Number.isSafeInteger(count) && count >= 0 && count <= MOST_DEPTH) return;
  throw new UsageError(
    `speculate.${name}: got ${show(count)}, expected a whole number from 0 to ${MOST_DEPTH}`,
  );
}

/** For --explain. */
export function speculationText(
  { variesWithBatch }: Pick<Backend, "variesWithBatch">,
  speculate: boolean | SpeculateOptions | undefined,
): string {
  const chosen = resolveSpeculation(speculate);
  if (!chosen) return "off, as asked";
  if (speculate === undefined && variesWithBatch) {
    return "off: on this backend batches of other sizes are rounded otherwise, which can change a text; exact, or asking for it, turns it on";
  }
  return `n-grams of the text so far, at most ${chosen.maxDepth} tokens, as many as pay`;
}
