// Masks of Lantern beside those of llama.cpp on the same JSON schemas, with Llama 3's vocabulary.
//
//   LANTERN_PEERS=DIR npm run bench:grammar-peer -- FOLDER [--every N] [--only TEXT] [--masks N] [--json]
//
// FOLDER has MaskBench's files (mask-bench.ts). llama.cpp runs in node-llama-cpp (llama-cpp.ts), which turns a schema into GBNF
// itself: what it has no rule for, it leaves out. It shows no mask, but says of a token whether it may come next: a mask is that
// question for every token of the vocabulary. At most --masks positions of a schema's first valid instance are timed, in turns.

import { GrammarError } from "../src/grammar/errors.ts";
import { GrammarCompiler } from "../src/grammar/grammar.ts";
import { bench, count, isOn, load, text } from "./harness.ts";
import { type LlamaGrammars, llamaGrammars } from "./llama-cpp.ts";
import { cases, dump, summary, tokenizerOf, vocabulary } from "./mask-bench.ts";

const flags = { only: text(), every: count(300), masks: count(2), json: isOn };

interface Counts {
  right: number;
  refused: number;
  accepts: number;
  rejects: number;
}

/** What a contestant does with one schema; undefined: it refuses it. */
interface Contestant {
  readonly counts: Counts;
  readonly compileUs: number[];
  readonly maskUs: number[];
  compile(schema: unknown): Promise<Matcher | undefined>;
}

interface Matcher {
  /** Whether the tokens are a whole text; masks are timed at these positions. */
  takes(tokens: readonly number[], timed: ReadonlySet<number>): boolean;
}

const newCounts = (): Counts => ({ right: 0, refused: 0, accepts: 0, rejects: 0 });
const tokenizer = await tokenizerOf(vocabulary);

function lantern(): Contestant {
  const compiler = new GrammarCompiler(tokenizer);
  const bits = new Uint32Array(compiler.compile({ choices: ["a"] }).maskWords);
  const maskUs: number[] = [];
  return {
    ...{ counts: newCounts(), compileUs: [], maskUs },
    async compile(schema) {
      try {
        const grammar = compiler.compile({ schema });
        return {
          takes(tokens, timed) {
            const state = grammar.start();
            for (const [at, token] of tokens.entries()) {
              const started = performance.now();
              state.mask(bits);
              if (timed.has(at)) maskUs.push((performance.now() - started) * 1000);
              if (!state.accept(token)) return false;
            }
            return state.isComplete;
          },
        };
      } catch (error) {
        if (error instanceof GrammarError) return undefined;
        throw error;
      }
    },
  };
}

function llamaCpp(grammars: LlamaGrammars): Contestant {
  const maskUs: number[] = [];
  return {
    ...{ counts: newCounts(), compileUs: [], maskUs },
    async compile(schema) {
      const start = await grammars.compile(schema).catch(() => undefined);
      return (
        start && {
          takes(tokens, timed) {
            const state = start();
            for (const [at, token] of tokens.entries()) {
              if (timed.has(at)) {
                const started = performance.now();
                for (let id = 0; id < tokenizer.vocabSize; id++) state.allows(id);
                maskUs.push((performance.now() - started) * 1000);
              }
              if (!state.allows(token)) return false;
              state.accept(token);
            }
            return state.isComplete;
          },
        }
      );
    },
  };
}

/** Spread over the tokens. */
function positionOf(index: number, count: number, { length }: { readonly length: number }): number {
  return Math.floor(((index + 0.5) * length) / count);
}

await bench("npm run bench:grammar-peer --", "FOLDER", flags, async (given, [folder]) => {
  const contestants = {
    Lantern: lantern(),
    "llama.cpp": llamaCpp(await llamaGrammars(vocabulary)),
  };
  for (const { schema, tests } of cases(folder!, given)) {
    const first = tests.findIndex(({ valid }) => valid);
    for (const contestant of Object.values(contestants)) {
      const { counts, compileUs } = contestant;
      const started = performance.now();
      const matcher = await contestant.compile(schema);
      if (!matcher) {
        counts.refused++;
        continue;
      }
      compileUs.push((performance.now() - started) * 1000);
      let [accepts, rejects] = [0, 0];
      for (const [i, { data, valid }] of tests.entries()) {
        const tokens = tokenizer.encode(dump(data), { addSpecial: false, parseSpecial: false });
        const masks = i === first ? given.masks : 0;
        const timed = new Set(
          Array.from({ length: masks }, (_, k) => positionOf(k, masks, tokens)),
        );
        const isTaken = matcher.takes(tokens, timed);
        if (isTaken && !valid) accepts++;
        if (!isTaken && valid) rejects++;
      }
      if (accepts > 0) counts.accepts++;
      else if (rejects > 0) counts.rejects++;
      else counts.right++;
    }
  }

  const report = Object.fromEntries(
    Object.entries(contestants).map(([name, { counts, compileUs, maskUs }]) => {
      return [name, { schemas: counts, compileUs: summary(compileUs), maskUs: summary(maskUs) }];
    }),
  );
  const average = load().toFixed(1);
  if (given.json) console.log(JSON.stringify({ ...report, load: average }));
  else {
    for (const [name, { schemas, compileUs, maskUs }] of Object.entries(report)) {
      console.log(`${name} (load ${average})`);
      console.table({ schemas });
      console.table({ "mask (us)": maskUs, "compile (us)": compileUs });
    }
  }
});
