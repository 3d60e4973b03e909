// The drafters that a generation gets of the engine.

import type { GenerateOptions } from "../../api/api.ts";
import type { Engine } from "../engine.ts";
import { ownerOf } from "../tiers/owners.ts";
import type { DecoderParts } from "./decoder.ts";
import type { Drafter, DrafterKind } from "./drafter.ts";
import { resolveSpeculation } from "./options.ts";

type Drafting = Pick<DecoderParts, "drafters" | "maxDepth" | "minDepth" | "minChance" | "always">;

/** `isWhole`: its context does not shift. A shifting context drops tokens in the middle, so nothing is drafted for it. */
export async function draftersOf(
  engine: Engine,
  request: {
    readonly tokens: readonly number[];
    readonly options: GenerateOptions;
    readonly drafters?: readonly DrafterKind[];
  },
  isWhole: boolean,
  stop: () => boolean,
): Promise<Drafting> {
  const { tokens, options } = request;
  const always = request.drafters !== undefined;
  const chosen = resolveSpeculation(always || engine.speculate, options.speculate);
  const kinds =
    request.drafters ?? engine.drafters.filter(({ name }) => chosen?.drafters.includes(name));
  if (!chosen || !isWhole || kinds.length === 0) {
    return { drafters: [], maxDepth: 0, minDepth: 0, minChance: 0, always };
  }
  const most = Math.min(engine.info.contextSize, tokens.length + (options.maxTokens ?? Infinity));
  const owner = ownerOf(options.conversation, options.cacheDisk);
  const drafters: Drafter[] = [];
  for (const kind of kinds) {
    const drafter = await kind.start(tokens, most, { minChance: chosen.minChance, stop, owner });
    if (drafter) drafters.push(drafter);
  }
  return { ...chosen, drafters, always };
}
