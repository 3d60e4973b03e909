// How close generation with weights on disk comes to what the disk allows (docs/inside/disk.md):
//
//   npm run bench:disk -- MODEL.gguf --ram 4G [-n 32] [-r 5] [-t 2] [--experts never,all]
//
// In turns: the file is read past the system's cache, with as many reads at once as the engine makes, and a text is generated. Prints
// the medians of both, and the percent of the disk's rate at which weights were read. Each generated token reads them once; of
// experts, it reads those that it uses and memory does not hold. --experts compares ways to read them, one model after the other
// (LANTERN_DISK_EXPERTS, docs/inside/disk.md): on demand (never ahead, always ahead, or measured), and all for every token.

import { closeSync, openSync } from "node:fs";
import { byteSizeOf, byteSizeText } from "../src/base/byte-sizes.ts";
import { UsageError } from "../src/base/errors.ts";
import { median, takeRounds } from "../src/base/measure.ts";
import { open } from "../src/index.ts";
import { measureDisk } from "../src/machine/disk.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { answer, bench, count, load, sum, text, texts, type Values } from "./harness.ts";

const flags = {
  ram: text(),
  predict: count(32, "n"),
  rounds: count(5, "r"),
  threads: count(undefined, "t"),
  experts: texts(["measured"]),
};

await bench("npm run bench:disk --", "MODEL.gguf", flags, async (given, [path]) => {
  const ramBytes = byteSizeOf(given.ram ?? "");
  if (ramBytes === undefined) throw new UsageError(`--ram: expected ${byteSizeText}`);
  for (const experts of given.experts) {
    process.env.LANTERN_DISK_EXPERTS = experts;
    await measureOnce(path!, ramBytes, experts, given);
  }
});

async function measureOnce(
  path: string,
  ramBytes: number,
  experts: string,
  given: Values<typeof flags>,
): Promise<void> {
  const { threads, predict, rounds, ram } = given;
  const descriptor = openSync(path, "r");
  const direct = nodePlatform.openDirect!(descriptor);
  await using model = await open(path, {
    ramBytes,
    contextSize: 1024,
    ...(threads && { threads }),
  });
  const { disk } = model.info;
  if (!disk) throw new UsageError(`bench:disk: ${path} fits in ${ram}: give it less`);
  // The likeliest text of a made-up model repeats itself, and so do the experts that it uses.
  const how = { temperature: 1, topK: 0, topP: 1 };
  const write = (maxTokens: number, seed: number) =>
    answer(model, "Once upon a time there was", { maxTokens, seed, ...how });
  await write(4, 0);
  const taken: { rate: number; speed: number; bytes: number; hits: number; uses: number }[] = [];
  await takeRounds({
    rounds,
    measure: async (round) => {
      const rate = (await measureDisk(direct, { mostMs: 1000, mostBytes: 2 ** 40 }))!;
      const { generatedTokens, generatedMs, experts } = (await write(predict, round + 1)).timings;
      const { hits = 0, misses = 0, generatedBytes = 0 } = experts ?? {};
      const bytes = disk.batchBytes + generatedBytes / generatedTokens;
      const speed = (1000 * generatedTokens) / generatedMs;
      return { rate, speed, bytes, hits, uses: hits + misses };
    },
    keep: (round) => void taken.push(round),
  });
  direct.close();
  closeSync(descriptor);
  const of = (pick: (round: (typeof taken)[number]) => number) => taken.map(pick);
  const [rate, speeds] = [median(of((one) => one.rate)), of((one) => one.speed)];
  const [bytes, uses] = [median(of((one) => one.bytes)), sum(of((one) => one.uses))];
  const hitPercent = (100 * sum(of(({ hits }) => hits))) / uses;
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;
  const lines = [
    `experts: ${experts}`,
    `weights in memory        ${mb(disk.memoryBytes)}`,
    `read for each token      ${mb(bytes)}${disk.isDirect ? "" : " (through the system's cache of files)"}`,
    ...(uses === 0 ? [] : [`experts in memory        ${hitPercent.toFixed(1)} % of uses`]),
    `disk                     ${(rate / 1e9).toFixed(2)} GB/s`,
    `limit                    ${(rate / bytes).toFixed(2)} tokens/s`,
    `generation               ${median(speeds).toFixed(2)} tokens/s (${speeds.map((each) => each.toFixed(2)).join(", ")})`,
    `percent of the limit     ${((100 * median(speeds) * bytes) / rate).toFixed(0)} %`,
    `load average             ${load().toFixed(1)}`,
  ];
  console.log(lines.join("\n"));
}
