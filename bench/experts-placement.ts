// Where a mixture of experts is computed, and how fast: all on the processor, all on the GPU, attention on the GPU and experts on the
// processor (--cpu-moe, and half of the layers: --n-cpu-moe), and experts in so many slots of GPU memory (--expert-slots).
//
//   npm run bench:placement -- [MODEL.gguf] [--slots 16,32,64,96] [--tokens 64] [--prompt 256] [--shape S --type T] [--threads N] [--json]
//
// Without a model it writes a made-up one (scripts/make-model.ts) into a temporary folder, whose routes are random: hit rates of a
// real text are higher. The text of all places on the GPU with slots must be that of all experts on the GPU.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { writeModel } from "../scripts/make-model.ts";
import { syntheticModel } from "../scripts/synthetic-model.ts";
import { type OpenOptions, open } from "../src/index.ts";

interface Flags {
  slots: number[];
  tokens: number;
  prompt: number;
  shape: string;
  type: string;
  threads?: number;
  json?: boolean;
}

interface Row {
  where: string;
  loadSeconds: number;
  promptPerSecond: number;
  generatedPerSecond: number;
  /** Of uses of experts; undefined: all are where they are computed. */
  hitPercent: number | undefined;
  ids: readonly number[];
  layers: number;
}

const count = (text: string): number => {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new Error(`expected a whole number above 0, got "${text}"`);
};

const program = new Command("bench:placement")
  .argument("[model]", "a GGUF file with experts (default: a made-up one)")
  .option(
    "--slots <list>",
    "values of --expert-slots",
    (text) => text.split(",").map(count),
    [32, 64, 96],
  )
  .option("--tokens <n>", "tokens to generate", count, 64)
  .option("--prompt <n>", "words of the prompt", count, 256)
  .option("--shape <name>", "the made-up model's", "qwen3-moe-4b-a0.6b")
  .option("--type <name>", "the made-up model's", "q4_0")
  .option("--threads <n>", "threads of the processor", count)
  .option("--json", "a line of JSON for each place");

const words =
  "the river runs past an old mill where two children once found a small brass lantern ";

async function measure(
  path: string,
  where: string,
  options: OpenOptions,
  flags: Flags,
): Promise<Row> {
  const begin = performance.now();
  const { threads } = flags;
  await using model = await open(path, {
    contextSize: 4096,
    profile: true,
    ...(threads && { threads }),
    ...options,
  });
  const loadSeconds = (performance.now() - begin) / 1000;
  const text = words
    .repeat(Math.ceil(flags.prompt / 16))
    .split(" ")
    .slice(0, flags.prompt)
    .join(" ");
  // Made-up texts repeat themselves: drafts would be measured, and places differ in how many tokens they verify at once.
  const settings = { temperature: 0, maxTokens: flags.tokens, ignoreEos: true, speculate: false };
  // Compiles what is compiled on first use.
  await model.generate("a lantern", { ...settings, maxTokens: 8 }).result;
  const { tokenIds, timings } = await model.generate(text, settings).result;
  const { notes = [] } = await model.profile();
  const hits = /experts in slots: ([\d.]+) %/.exec(notes.join("\n"))?.[1];
  return {
    where,
    loadSeconds,
    promptPerSecond: timings.promptTokens / (timings.promptMs / 1000),
    generatedPerSecond: timings.generatedTokens / (timings.generatedMs / 1000),
    hitPercent: hits === undefined ? undefined : Number(hits),
    ids: tokenIds,
    layers: model.info.layers,
  };
}

function show(row: Row, same: boolean | undefined, { json }: Flags): void {
  const { ids: _, layers: _layers, ...numbers } = row;
  if (json) {
    console.log(JSON.stringify({ ...numbers, ...(same !== undefined && { sameText: same }) }));
    return;
  }
  const hits = row.hitPercent === undefined ? "" : `, ${row.hitPercent} % of experts in slots`;
  const text = same === undefined ? "" : same ? ", the same text" : ", ANOTHER TEXT";
  console.log(
    `${row.where}: prompt ${row.promptPerSecond.toFixed(1)}, generation ${row.generatedPerSecond.toFixed(1)} tokens/s${hits}${text} (loaded in ${row.loadSeconds.toFixed(1)} s)`,
  );
}

function placesOf(layers: number, { slots }: Flags): [string, OpenOptions][] {
  const half = Math.ceil(layers / 2);
  return [
    ["experts on the processor", { gpuLayers: "all", cpuExperts: "all" }],
    [`experts of ${half} layers on the processor`, { gpuLayers: "all", cpuExperts: half }],
    ...slots.map((expertSlots): [string, OpenOptions] => [
      `experts in ${expertSlots} slots`,
      { gpuLayers: "all", expertSlots },
    ]),
  ];
}

async function run(path: string, flags: Flags): Promise<number> {
  show(await measure(path, "all on the processor", { gpuLayers: 0 }, flags), undefined, flags);
  const onGpu = await measure(path, "all on the GPU", { gpuLayers: "all" }, flags);
  show(onGpu, undefined, flags);
  let wrong = 0;
  for (const [where, options] of placesOf(onGpu.layers, flags)) {
    const row = await measure(path, where, options, flags);
    const same = options.expertSlots === undefined ? undefined : `${row.ids}` === `${onGpu.ids}`;
    if (same === false) wrong++;
    show(row, same, flags);
  }
  return wrong;
}

async function main(): Promise<void> {
  const flags = program.parse().opts<Flags>();
  const [given] = program.args;
  if (given !== undefined) {
    process.exitCode = (await run(given, flags)) > 0 ? 1 : 0;
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), "placement-"));
  try {
    const path = join(folder, "experts.gguf");
    await writeModel(syntheticModel(flags.shape, flags.type), path);
    process.exitCode = (await run(path, flags)) > 0 ? 1 : 0;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

await main();
