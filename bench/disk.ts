// How close generation with weights on disk comes to what the disk allows (docs/inside/disk.md):
//
//   npm run bench:disk -- MODEL.gguf --ram 4G [-n 32] [-r 5] [-t 2] [--experts never,all] [--json]
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
import { answer, bench, count, isOn, load, sum, text, texts, type Values } from "./harness.ts";

const flags = {
  ram: text(),
  predict: count(32, "n"),
  rounds: count(5, "r"),
  threads: count(undefined, "t"),
  experts: texts(["measured"]),
  json: isOn,
};

await bench("npm run bench:disk --", "MODEL.gguf", flags, async (given, [path]) => {
  const ramBytes = byteSizeOf(given.ram ?? "");
  if (ramBytes === undefined) throw new UsageError(`--ram: expected ${byteSizeText}`);
  for (const experts of given.experts) {
    process.env.LANTERN_DISK_EXPERTS = experts;
    const result = await measureOnce(path!, ramBytes, given);
    const title = given.experts.length > 1 ? `experts: ${experts}\n` : "";
    console.log(given.json ? JSON.stringify({ experts, ...result }) : `${title}${textOf(result)}`);
  }
});

async function measureOnce(path: string, ramBytes: number, given: Values<typeof flags>) {
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
  const [rates, speeds] = [taken.map(({ rate }) => rate), taken.map(({ speed }) => speed)];
  const [rate, speed] = [median(rates), median(speeds)];
  const tokenBytes = median(taken.map(({ bytes }) => bytes));
  const uses = sum(taken.map((one) => one.uses));
  return {
    disk_bytes_per_token: tokenBytes,
    expert_hit_percent: uses === 0 ? null : (100 * sum(taken.map(({ hits }) => hits))) / uses,
    memory_bytes: disk.memoryBytes,
    is_direct: disk.isDirect,
    disk_gb_per_second: { median: rate / 1e9, all: rates.map((each) => each / 1e9) },
    tokens_per_second: { median: speed, all: speeds },
    limit_tokens_per_second: rate / tokenBytes,
    percent_of_limit: (100 * speed * tokenBytes) / rate,
    load_average: load(),
  };
}

function textOf(result: Awaited<ReturnType<typeof measureOnce>>): string {
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;
  const { tokens_per_second: speed, expert_hit_percent: hits } = result;
  return [
    `weights in memory        ${mb(result.memory_bytes)}`,
    `read for each token      ${mb(result.disk_bytes_per_token)}${result.is_direct ? "" : " (through the system's cache of files)"}`,
    ...(hits === null ? [] : [`experts in memory        ${hits.toFixed(1)} % of uses`]),
    `disk                     ${result.disk_gb_per_second.median.toFixed(2)} GB/s`,
    `limit                    ${result.limit_tokens_per_second.toFixed(2)} tokens/s`,
    `generation               ${speed.median.toFixed(2)} tokens/s (${speed.all.map((each) => each.toFixed(2)).join(", ")})`,
    `percent of the limit     ${result.percent_of_limit.toFixed(0)} %`,
    `load average             ${result.load_average.toFixed(1)}`,
  ].join("\n");
}
