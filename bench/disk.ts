// How close generation with weights on disk comes to what the disk allows (docs/memory.md):
//
//   npm run bench:disk -- MODEL.gguf --ram 4G [-n 32] [-r 5] [-t 2] [--experts never,all] [--json]
//
// In turns: the file is read past the system's cache, with as many reads at once as the engine makes, and a text is generated. Prints
// the medians of both, and the percent of the disk's rate at which weights were read. Each generated token reads them once; of
// experts, it reads those that it uses and memory does not hold. --experts compares ways to read them, one model after the other
// (LANTERN_DISK_EXPERTS, docs/memory.md): on demand (never ahead, always ahead, or measured), and all for every token.

import { closeSync, openSync } from "node:fs";
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { byteSizeOf, byteSizeText } from "../src/base/byte-sizes.ts";
import { UsageError } from "../src/base/errors.ts";
import { open } from "../src/index.ts";
import { measureDisk } from "../src/machine/disk.ts";
import { nodePlatform } from "../src/platform/node.ts";

const usage =
  "npm run bench:disk -- MODEL.gguf --ram 4G [-n 32] [-r 5] [-t 2] [--experts never,all] [--json]";

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      ram: { type: "string" },
      predict: { type: "string", short: "n", default: "32" },
      rounds: { type: "string", short: "r", default: "5" },
      threads: { type: "string", short: "t" },
      experts: { type: "string", default: "measured" },
      json: { type: "boolean", default: false },
    },
  });
  const [path] = positionals;
  const ramBytes = byteSizeOf(values.ram ?? "");
  if (path === undefined || ramBytes === undefined) {
    throw new UsageError(`bench:disk: expected a model and --ram with ${byteSizeText}: ${usage}`);
  }
  for (const experts of values.experts.split(",")) {
    process.env.LANTERN_DISK_EXPERTS = experts;
    const result = await measure(path, ramBytes, values);
    if (values.json) console.log(JSON.stringify({ experts, ...result }));
    else
      console.log(`${values.experts === experts ? "" : `experts: ${experts}\n`}${textOf(result)}`);
  }
}

async function measure(
  path: string,
  ramBytes: number,
  values: { ram?: string; predict: string; rounds: string; threads?: string },
) {
  const threads = values.threads === undefined ? {} : { threads: Number(values.threads) };
  const descriptor = openSync(path, "r");
  const direct = nodePlatform.openDirect!(descriptor);
  const model = await open(path, { ramBytes, contextSize: 1024, ...threads });
  const { disk } = model.info;
  if (!disk) throw new UsageError(`bench:disk: ${path} fits in ${values.ram}: give it less`);
  const prompt = "Once upon a time there was";
  // Drafted tokens would share reads. The likeliest text of a made-up model repeats itself, and so do the experts that it uses.
  const how = { temperature: 1, topK: 0, topP: 1, ignoreEos: true, speculate: false } as const;
  let seed = 0;
  const generate = async (maxTokens: number) =>
    (await model.generate(prompt, { maxTokens, seed: seed++, ...how }).result).timings;
  await generate(4);
  const rates: number[] = [];
  const speeds: number[] = [];
  const bytes: number[] = [];
  let [hits, uses] = [0, 0];
  for (let round = 0; round < Number(values.rounds); round++) {
    rates.push((await measureDisk(direct, { mostMs: 1000, mostBytes: 2 ** 40 }))!);
    const { generatedTokens, generatedMs, experts } = await generate(Number(values.predict));
    speeds.push((1000 * generatedTokens) / generatedMs);
    bytes.push(disk.batchBytes + (experts?.generatedBytes ?? 0) / generatedTokens);
    hits += experts?.hits ?? 0;
    uses += (experts?.hits ?? 0) + (experts?.misses ?? 0);
  }
  await model.dispose();
  direct.close();
  closeSync(descriptor);
  const rate = median(rates);
  const speed = median(speeds);
  const tokenBytes = median(bytes);
  return {
    disk_bytes_per_token: tokenBytes,
    expert_hit_percent: uses === 0 ? null : (100 * hits) / uses,
    memory_bytes: disk.memoryBytes,
    is_direct: disk.isDirect,
    disk_gb_per_second: { median: rate / 1e9, all: rates.map((each) => each / 1e9) },
    tokens_per_second: { median: speed, all: speeds },
    limit_tokens_per_second: rate / tokenBytes,
    percent_of_limit: (100 * speed * tokenBytes) / rate,
    load_average: loadavg()[0],
  };
}

function textOf(result: {
  disk_bytes_per_token: number;
  expert_hit_percent: number | null;
  memory_bytes: number;
  is_direct: boolean;
  disk_gb_per_second: { median: number };
  tokens_per_second: { median: number; all: number[] };
  limit_tokens_per_second: number;
  percent_of_limit: number;
  load_average: number | undefined;
}): string {
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
    `load average             ${result.load_average?.toFixed(1)}`,
  ].join("\n");
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

await main();
