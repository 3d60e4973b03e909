// Where a mixture of experts is computed, and how fast: all on the processor, all on the GPU, attention on the GPU and experts on the
// processor (--cpu-moe, and half of the layers: --n-cpu-moe), and experts in so many slots of GPU memory (--expert-slots).
//
//   npm run bench:placement -- [MODEL.gguf] [--slots 16,32,64,96] [--tokens 64] [--prompt 256] [--shape S --type T] [--threads N] [--json]
//
// Without a model it writes a made-up one (scripts/make-model.ts) into a temporary folder, whose routes are random: hit rates of a
// real text are higher. The text of all places on the GPU with slots must be that of all experts on the GPU.

import { type OpenOptions, open } from "../src/index.ts";
import {
  answer,
  bench,
  count,
  counts,
  isOn,
  text,
  timed,
  type Values,
  withMadeModel,
} from "./harness.ts";

const flags = {
  slots: counts([32, 64, 96]),
  tokens: count(64),
  prompt: count(256),
  shape: text("qwen3-moe-4b-a0.6b"),
  type: text("q4_0"),
  threads: count(),
  json: isOn,
};
type Given = Values<typeof flags>;

const words =
  "the river runs past an old mill where two children once found a small brass lantern ";

await bench("npm run bench:placement --", "[MODEL.gguf]", flags, async (given, [path]) => {
  if (path !== undefined) await compare(path, given);
  else await withMadeModel(given.shape, given.type, (made) => compare(made, given));
});

async function compare(path: string, given: Given): Promise<void> {
  await measureAt(path, "all on the processor", { gpuLayers: 0 }, given);
  const onGpu = await measureAt(path, "all on the GPU", { gpuLayers: "all" }, given);
  const half = Math.ceil(onGpu.layers / 2);
  const parts: [string, OpenOptions][] = [
    ["experts on the processor", { cpuExperts: "all" }],
    [`experts of ${half} layers on the processor`, { cpuExperts: half }],
  ];
  for (const [where, options] of parts) {
    await measureAt(path, where, { gpuLayers: "all", ...options }, given);
  }
  for (const expertSlots of given.slots) {
    const options: OpenOptions = { gpuLayers: "all", expertSlots };
    const where = `experts in ${expertSlots} slots`;
    const { isSame } = await measureAt(path, where, options, given, onGpu.ids);
    if (!isSame) process.exitCode = 1;
  }
}

/** `wanted`: the text that it must be. */
async function measureAt(
  path: string,
  where: string,
  options: OpenOptions,
  { threads, prompt, tokens, json }: Given,
  wanted?: readonly number[],
) {
  const shared = { contextSize: 4096, profile: true, ...(threads && { threads }) };
  const { result, ms } = await timed(() => open(path, { ...shared, ...options }));
  await using model = result;
  const repeated = words.repeat(Math.ceil(prompt / 16)).split(" ");
  // Compiles what is compiled on first use.
  await answer(model, "a lantern", { maxTokens: 8 });
  const asked = repeated.slice(0, prompt).join(" ");
  const { tokenIds: ids, ...speeds } = await answer(model, asked, { maxTokens: tokens });
  const { notes = [] } = await model.profile();
  const hits = /experts in slots: ([\d.]+) %/.exec(notes.join("\n"))?.[1];
  const isSame = wanted && `${ids}` === `${wanted}`;
  const row = {
    where,
    loadSeconds: ms / 1000,
    promptPerSecond: speeds.promptPerSecond,
    generatedPerSecond: speeds.generatedPerSecond,
    /** Of uses of experts; undefined: all are where they are computed. */
    hitPercent: hits === undefined ? undefined : Number(hits),
  };
  if (json) console.log(JSON.stringify({ ...row, ...(wanted && { sameText: isSame }) }));
  else {
    const inSlots = hits === undefined ? "" : `, ${row.hitPercent} % of experts in slots`;
    const same = isSame === undefined ? "" : isSame ? ", the same text" : ", ANOTHER TEXT";
    console.log(
      `${where}: prompt ${row.promptPerSecond.toFixed(1)}, generation ${row.generatedPerSecond.toFixed(1)} tokens/s${inSlots}${same} (loaded in ${row.loadSeconds.toFixed(1)} s)`,
    );
  }
  return { ids, layers: model.info.layers, isSame };
}
