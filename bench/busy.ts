// Generation with one and with two threads (or as many as there are cores), first alone, then while other processes keep
// half of the cores busy: threads must not make it slower. (Engines with a barrier between ops become several times
// slower with all threads than with one.)
//
//   node bench/busy.ts MODEL [tokens]

import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { measure, median } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { answer, bench, load } from "./harness.ts";

const cores = availableParallelism();
const rounds = 5;

await bench("node bench/busy.ts", "MODEL [tokens]", {}, async (_, [path, tokens = "24"]) => {
  const maxTokens = Number(tokens) + 1;
  await using one = await open(path!, { threads: 1 });
  await using all = await open(path!, { threads: cores });
  console.log(`${cores} cores, load ${load().toFixed(2)} before; tokens/s, median of ${rounds}`);
  await compare("alone", [one, all], maxTokens);
  const busy = Array.from({ length: Math.ceil(cores / 2) }, () =>
    spawn(process.execPath, ["-e", "for (;;) {}"], { stdio: "ignore" }),
  );
  await compare(
    `beside ${busy.length} busy process${busy.length > 1 ? "es" : ""}`,
    [one, all],
    maxTokens,
  );
  for (const process of busy) process.kill();
});

async function compare(situation: string, models: readonly Model[], maxTokens: number) {
  const { samples } = await measure({
    contestants: models,
    rounds,
    warmUps: 1,
    run: async (model) => (await answer(model, [1], { maxTokens })).generatedPerSecond,
  });
  const [one, all] = samples.map(median) as [number, number];
  console.log(
    `${situation}: 1 thread ${one.toFixed(2)}, ${cores} threads ${all.toFixed(2)}, ratio ${(all / one).toFixed(2)}`,
  );
}
