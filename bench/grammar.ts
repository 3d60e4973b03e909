// How many schemas the grammar engine gets right, and how long its masks take.
//
//   npm run bench:grammar -- FOLDER [--only TEXT] [--every N] [--wrong] [--refused] [--json]
//
// FOLDER has MaskBench's files (guidance-ai/jsonschemabench, maskbench/data: one schema with instances each) or those of
// JSON-Schema-Test-Suite (tests/draft2020-12: a list of schemas with tests each). A schema is right if it compiles and every
// instance is taken or refused as it should be; refused if it does not compile; wrong otherwise. The vocabulary is Llama 3's
// in ../shared. Times are microseconds on this machine; a mask's time includes taking the token, as MaskBench counts it.

import { GrammarError } from "../src/grammar/errors.ts";
import { type Grammar, GrammarCompiler } from "../src/grammar/grammar.ts";
import { bench, count, isOn, text, type Values } from "./harness.ts";
import { cases, dump, summary, tokenizerOf, vocabulary } from "./mask-bench.ts";

const flags = {
  only: text(),
  every: count(1),
  vocab: text(vocabulary),
  wrong: isOn,
  refused: isOn,
  json: isOn,
};
type Given = Values<typeof flags>;

await bench("npm run bench:grammar --", "FOLDER", flags, async (given, [folder]) => {
  await main(folder!, given);
});

/** Microseconds. */
const now = (): number => performance.now() * 1000;

async function main(folder: string, given: Given): Promise<void> {
  const maskTimes: number[] = [];
  const compileTimes: number[] = [];
  const tokenizer = await tokenizerOf(given.vocab);
  const compiler = new GrammarCompiler(tokenizer);
  const bits = new Uint32Array(compiler.compile({ choices: ["a"] }).maskWords);
  compiler.compile({ schema: { type: "object" } });

  const count = { right: 0, refused: 0, accepts: 0, rejects: 0, named: 0, failed: 0 };
  const reasons = new Map<string, number>();
  for (const { name, schema, tests } of cases(folder, given)) {
    let grammar: Grammar;
    const start = now();
    try {
      grammar = compiler.compile({ schema });
      compileTimes.push(now() - start);
    } catch (error) {
      if (!(error instanceof GrammarError)) throw new Error(name, { cause: error });
      // Nothing can be generated from a schema that nothing matches, so that an error is the right answer.
      if (error.message.includes("no text matches") && tests.every(({ valid }) => !valid)) {
        count.right++;
        continue;
      }
      count.refused++;
      const reason = error.message
        .replace(/#\S*\//, "#…/")
        .replaceAll(/"[^"]*"|\d+/g, "…")
        .slice(0, 110);
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      if (given.refused) console.log(`refused  ${name}: ${error.message.slice(0, 300)}`);
      continue;
    }
    let accepts = 0;
    let rejects = 0;
    try {
      for (const { data, valid } of tests) {
        const taken = takes(grammar, data, name);
        if (taken && !valid) accepts++;
        if (!taken && valid) rejects++;
        if (given.wrong && taken !== valid) {
          console.log(`${taken ? "accepts" : "rejects"}  ${name}: ${dump(data).slice(0, 300)}`);
        }
      }
    } catch (error) {
      if (!(error instanceof GrammarError)) throw new Error(name, { cause: error });
      count.failed++;
      console.log(`failed   ${name}: ${error.message}`);
      continue;
    }
    if (accepts > 0 && grammar.notes.length > 0) count.named++;
    else if (accepts > 0) count.accepts++;
    else if (rejects > 0) count.rejects++;
    else count.right++;
  }

  const report = {
    schemas: count,
    maskUs: summary(maskTimes),
    compileUs: summary(compileTimes),
  };
  if (given.json) console.log(JSON.stringify(report));
  else {
    console.table({ schemas: count });
    console.table({ "mask (us)": report.maskUs, "compile (us)": report.compileUs });
    const top = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 30);
    for (const [reason, times] of top) console.log(`${String(times).padStart(5)}  ${reason}`);
  }

  function takes(grammar: Grammar, data: unknown, name: string): boolean {
    const state = grammar.start();
    for (const token of tokenizer.encode(dump(data), { addSpecial: false, parseSpecial: false })) {
      const start = now();
      state.mask(bits);
      const isAllowed = ((bits[token >> 5]! >>> (token & 31)) & 1) === 1;
      const isTaken = isAllowed && state.accept(token);
      maskTimes.push(now() - start);
      if (isTaken) continue;
      if (state.accept(token))
        throw new Error(`${name}: the mask forbids token ${token}, accept takes it`);
      return false;
    }
    return state.isComplete;
  }
}
