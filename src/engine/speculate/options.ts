// The options of speculation (`speculate` of open() and generate()), checked.

import type { ModelInfo, SpeculateOptions } from "../../api/api.ts";
import type { Backend } from "../../backends/backend.ts";
import { UsageError } from "../../base/errors.ts";
import { checkOptionNames, givenOptions, type OptionNames } from "../../base/options.ts";
import { show } from "../../base/show.ts";

const DEFAULT_DEPTH = 16;
/** A state with a window can always go back by this many tokens. */
const MOST_DEPTH = 31;

/** Every drafter there is; which of them an engine has depends on the model. */
const drafterNames = ["ngram", "draft-model", "mtp"] as const;

const names: OptionNames<SpeculateOptions> = {
  drafters: true,
  maxDepth: true,
  minDepth: true,
  minChance: true,
};

/** The options of speculation, all decided. */
type Speculation = { [K in keyof SpeculateOptions]-?: Exclude<SpeculateOptions[K], undefined> };

/** The options of the engine, overridden by those of a generation; undefined: it does not speculate. */
export function resolveSpeculation(
  ...all: readonly (boolean | SpeculateOptions | undefined)[]
): Speculation | undefined {
  const chosen: Speculation = {
    maxDepth: DEFAULT_DEPTH,
    minDepth: 1,
    minChance: 0,
    drafters: [...drafterNames],
  };
  let isOn = true;
  for (const options of all) {
    if (options === undefined) continue;
    isOn = options !== false;
    if (typeof options === "boolean") continue;
    checkOptionNames("speculate", options, names);
    Object.assign(chosen, givenOptions(options));
  }
  checkDrafters(chosen.drafters);
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

function checkDrafters(drafters: unknown): void {
  const isKnown = (name: unknown) => drafterNames.some((known) => known === name);
  if (Array.isArray(drafters) && drafters.every(isKnown)) return;
  throw new UsageError(
    `speculate.drafters: got ${show(drafters)}, expected a list of some of ${drafterNames.join(", ")}`,
  );
}

function checkCount(name: string, count: number): void {
  if (Number.isSafeInteger(count) && count >= 0 && count <= MOST_DEPTH) return;
  throw new UsageError(
    `speculate.${name}: got ${show(count)}, expected a whole number from 0 to ${MOST_DEPTH}`,
  );
}

/** Whether these options let it draft. */
export function isWanted(
  drafter: string,
  speculate: boolean | SpeculateOptions | undefined,
): boolean {
  const wanted = typeof speculate === "object" ? speculate.drafters : undefined;
  return wanted === undefined || wanted.includes(drafter);
}

/** The default without options: on if a batch with at least one drafted token has the bits of single tokens. */
export function speculatesByDefault({
  sameBitsTokens = Infinity,
}: Pick<Backend, "sameBitsTokens">): boolean {
  return sameBitsTokens >= 2;
}

/** For ModelInfo. */
export function describeSpeculation(
  backend: Pick<Backend, "sameBitsTokens">,
  speculate: boolean | SpeculateOptions | undefined,
): NonNullable<ModelInfo["speculation"]> {
  const chosen = resolveSpeculation(speculate);
  const drafters = ["ngram"].filter((name) => isWanted(name, speculate)); // others: Engine.addDrafter()
  if (!chosen) return { isOn: false, drafters, text: "off, as asked" };
  if (speculate === undefined && !speculatesByDefault(backend)) {
    const why = "on this backend batches of other sizes are rounded otherwise";
    const text = `off: ${why}, which can change a text; exact turns it on, and so does asking for it`;
    return { isOn: false, drafters, text };
  }
  const most = Math.min(chosen.maxDepth, mostDrafted(backend));
  const text = `n-grams of the text so far, at most ${most} tokens, as many as pay`;
  return { isOn: true, drafters, text };
}

/**
 * The most drafted tokens of a batch with `others` further tokens: with more, a token could have other bits than alone. If that is so
 * even with one, a request for drafts gets any number.
 */
export function mostDrafted(
  { sameBitsTokens = Infinity }: Pick<Backend, "sameBitsTokens">,
  others = 1,
): number {
  return sameBitsTokens < 2 ? Infinity : Math.max(0, sameBitsTokens - others);
}
