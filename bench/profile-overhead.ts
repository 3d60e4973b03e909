// What a profile costs: the same model opened with and without one, answers of both in turns, medians. On a busy machine the CPU
// time of the process says more than the clock, so both are given.
//
//   node bench/profile-overhead.ts MODEL [tokens] [rounds] [threads]

import { availableParallelism } from "node:os";
import { measure, median, medianRatio } from "../src/base/measure.ts";
import { open } from "../src/index.ts";
import { answer, bench, load } from "./harness.ts";

const takes = "MODEL [tokens] [rounds] [threads]";
await bench("node bench/profile-overhead.ts", takes, {}, async (_, [path, ...numbers]) => {
  const usual = [64, 15, availableParallelism()];
  const [tokens, rounds, threads] = usual.map((value, i) => Number(numbers[i] ?? value));
  await using off = await open(path!, { threads: threads!, profile: false });
  await using on = await open(path!, { threads: threads!, profile: true });
  const { samples } = await measure({
    contestants: [off, on],
    rounds: rounds!,
    warmUps: 2,
    run: (model) => answer(model, [1], { maxTokens: tokens! }),
  });
  console.log(
    `${threads} threads, load ${load().toFixed(2)}; ${tokens} tokens written, median of ${rounds} rounds in turns`,
  );
  const clock = samples.map((all) => all.map(({ timings }) => timings.generatedMs / tokens!));
  const cpu = samples.map((all) => all.map((one) => one.cpuMs / tokens!));
  for (const [name, [without, having]] of [
    ["clock", clock],
    ["CPU time", cpu],
  ] as [string, [number[], number[]]][]) {
    const [a, b] = [median(without), median(having)];
    console.log(
      `${name}: ${a.toFixed(3)} ms per token without, ${b.toFixed(3)} with: ${percent(b / a)}; median of the rounds' ratios ${percent(medianRatio(having, without))}`,
    );
  }
});

function percent(ratio: number): string {
  return `${ratio >= 1 ? "+" : ""}${((ratio - 1) * 100).toFixed(1)}%`;
}
