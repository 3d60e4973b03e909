// Drafters for tests: they know the text that will come, or say they do. And a generation with and without them.

import type { GenerateOptions, TokenEvent } from "../../../src/api/api.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { type Generated, generate, type RunControl } from "../../../src/engine/generator.ts";
import type { DrafterKind } from "../../../src/engine/speculate/drafter.ts";
import { Random } from "../../support/random.ts";

export function control(): RunControl & { aborted: boolean } {
  const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { aborted: false, yieldThread, now: () => performance.now() };
}

export interface Run extends Generated {
  events: TokenEvent[];
}

/** `drafters`: none: nothing is drafted. */
export async function run(
  engine: Engine,
  tokens: readonly number[],
  options: GenerateOptions,
  drafters: readonly DrafterKind[] = [],
  watch: RunControl = control(),
): Promise<Run> {
  const events: TokenEvent[] = [];
  const request = { tokens, options, drafters };
  const generated = await generate(engine, request, watch, (event) => events.push(event));
  return { ...generated, events };
}

/** What a caller sees of a text. */
export function seen({ text, tokenIds, stopReason, stopString, events }: Run): object {
  return { text, tokenIds, stopReason, stopString, events };
}

/** Proposes what `propose` says of the number of tokens generated so far and of the place in the draft. */
function drafterOf(name: string, propose: (at: number) => number | undefined): DrafterKind {
  return {
    name,
    start: () => {
      let done = 0;
      return {
        name,
        accept: () => {
          done++;
        },
        chance: () => 0.9,
        draftMs: () => 0,
        draft: (limit, out) => {
          for (let i = 0; i < limit; i++) {
            const token = propose(done + i);
            if (token === undefined) return i;
            out[i] = token;
          }
          return limit;
        },
        verified: () => {},
        dispose: () => {},
      };
    },
  };
}

/** Knows the text; each token is wrong with a probability of `wrong`. */
export function oracle(text: readonly number[], vocab: number, wrong = 0, seed = 1): DrafterKind {
  const random = new Random(seed);
  const damaged = text.map((token) => (random.unit() < wrong ? (token + 1) % vocab : token));
  return drafterOf("oracle", (at) => damaged[at]);
}

/** Never right. */
export function alwaysWrong(text: readonly number[], vocab: number): DrafterKind {
  return drafterOf("wrong", (at) => ((text[at] ?? 0) + 1) % vocab);
}

export function anything(vocab: number, seed = 7): DrafterKind {
  const random = new Random(seed);
  return drafterOf("anything", () => random.below(vocab));
}

/** The same as `kind`, but it has to be waited for. */
export function slow(kind: DrafterKind): DrafterKind {
  return {
    name: `slow ${kind.name}`,
    start: async (prompt, most) => {
      const drafter = (await kind.start(prompt, most))!;
      return {
        name: drafter.name,
        accept: (token) => drafter.accept(token),
        chance: (index) => drafter.chance(index),
        draftMs: () => 1,
        draft: async (limit, out) => {
          await new Promise((resolve) => setTimeout(resolve, 1));
          return await drafter.draft(limit, out);
        },
        verified: () => {},
        dispose: () => {},
      };
    },
  };
}
