// Two models that generate at once in one process, as `lantern serve -m A -m B` has them: how long both together take beside
// one after the other. 1 means that sharing the cores costs nothing.
//
//   node bench/two-models.ts A.gguf B.gguf [-t 2] [-n 200] [-r 7] [--json]
//
// In turns: A, B, both at once. Prints the median of the ratios, tokens per second, CPU time for each token (which says what
// sharing costs also on a busy machine) and the load average.

import { basename } from "node:path";
import { measure, median } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { answer, bench, count, isOn, load, rounded, sum, timed } from "./harness.ts";

const flags = {
  threads: count(undefined, "t"),
  tokens: count(200, "n"),
  rounds: count(7, "r"),
  json: isOn,
};
await bench("node bench/two-models.ts", "A.gguf B.gguf", flags, async (values, paths) => {
  const options = values.threads === undefined ? {} : { threads: values.threads };
  await using a = await open(paths[0]!, options);
  await using b = await open(paths[1]!, options);
  const loads: number[] = [];
  const { samples } = await measure({
    contestants: [[a], [b], [a, b]],
    rounds: values.rounds,
    warmUps: 1,
    onRound: () => void loads.push(load()),
    run: async (models: readonly Model[]) => {
      const ask = (model: Model) => answer(model, "Once upon a time", { maxTokens: values.tokens });
      const { result, ms, cpuMs } = await timed(() => Promise.all(models.map(ask)));
      const tokens = sum(result.map(({ timings }) => timings.generatedTokens));
      return { ms, speed: (1000 * tokens) / ms, cpu: cpuMs / tokens };
    },
  });
  const of = (which: number, pick: (run: { speed: number; cpu: number }) => number) =>
    median(samples[which]!.map(pick));
  const ratios = samples[2]!.map(({ ms }, i) => (samples[0]![i]!.ms + samples[1]![i]!.ms) / ms);
  const facts = {
    models: paths.map((path) => basename(path)),
    rounds: values.rounds,
    tokens_per_second: [0, 1].map((i) => Math.round(of(i, ({ speed }) => speed))),
    together: Math.round(of(2, ({ speed }) => speed)),
    cpu_ms_per_token: [0, 1].map((i) =>
      rounded(
        of(i, ({ cpu }) => cpu),
        2,
      ),
    ),
    together_cpu_ms: rounded(
      of(2, ({ cpu }) => cpu),
      2,
    ),
    ratio: rounded(median(ratios), 2),
    load_average: [Math.min(...loads), Math.max(...loads)],
  };
  if (values.json) return console.log(JSON.stringify(facts));
  const [first, second] = facts.tokens_per_second;
  console.log(
    `${facts.models.join(" and ")}: alone ${first} and ${second} tokens/s, together ${facts.together}; ` +
      `one after the other they take ${facts.ratio} times as long as at once; ` +
      `CPU per token ${facts.cpu_ms_per_token.join(" and ")} ms alone, ${facts.together_cpu_ms} ms together; ` +
      `medians of ${facts.rounds}, load average ${facts.load_average.map((one) => one.toFixed(1)).join("-")}`,
  );
});
