// What a feature gains or costs: one model in several ways, which take turns with the same prompts.
//
//   npm run bench:lora -- MODEL.gguf [-k 16]            LoRA adapters of a rank: opened without any, and with 0, 1 and 2 of 2 in use
//   npm run bench:sparse -- MODEL.gguf                  neurons of ReLU networks that are zero left out, beside all of them
//   npm run bench:hot-neurons -- MODEL.gguf [--share 0.25]   hot neurons on a GPU, beside layers of as many bytes there
//   npm run bench:offload -- MODEL.gguf [--layers N] [--forced]   prompts with half of the layers off the GPU: op offload, and none
//   npm run bench:placement -- [MODEL.gguf] [--slots 32,64]   experts on the processor, on the GPU, in slots of GPU memory
//   npm run bench:lookahead -- MODEL.gguf --users 1,8   tokens submitted ahead to a GPU, beside one after the other
//   npm run bench:splits -- MODEL.gguf [--inexact]      every split between processor and GPU: with --exact the same bits
//   npm run bench:grammar-generate -- MODEL.gguf        free text, a grammar of JSON, and that of an answer that may call tools
//   npm run bench:variants -- profile|threads MODEL.gguf   a profile; one thread and all cores, also beside busy processes
//
// Printed are medians of the rounds: tokens per second of prompt and generation (of all users), CPU time for each generated token, which
// says more than the clock on a busy machine, and the median of the rounds' ratios to the first way. "text": whether it is the first
// way's; where it must be, another one is an error. Synthetic models: scripts/make-model.ts.

import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { UsageError } from "../src/base/errors.ts";
import { measure, median, medianRatio, summarize } from "../src/base/measure.ts";
import { type GenerateOptions, inspect, type Model, type OpenOptions, open } from "../src/index.ts";
import { adapterFile } from "../test/support/adapter-file.ts";
import {
  type Answer,
  answer,
  bench,
  count,
  counts,
  firstDifference,
  isOn,
  load,
  number,
  printTable,
  sum,
  text,
  timed,
  tokensOf,
  type Values,
  withFolder,
  withMadeModel,
} from "./harness.ts";
import { jsonObjects, toolCalls } from "./variant-grammars.ts";

const flags = {
  threads: count(undefined, "t"),
  prompt: count(128, "p"),
  tokens: count(64, "n"),
  rounds: count(5, "r"),
  /** That ask at once. */
  users: counts([1]),
  /** Of adapters. */
  rank: count(16, "k"),
  gpuLayers: text(),
  /** With op offload: on the GPU. */
  layers: count(),
  forced: isOn,
  /** Of hot neurons. */
  share: number(0.25),
  slots: counts([32, 64, 96]),
  /** Of the model that is made where none is given. */
  shape: text("qwen3-moe-4b-a0.6b"),
  type: text("q4_0"),
  inexact: isOn,
  json: isOn,
};
type Given = Values<typeof flags>;

interface Way {
  readonly name: string;
  /** Ways with the same object share a model. */
  readonly options: OpenOptions;
  readonly env?: Readonly<Record<string, string>>;
  readonly ask?: GenerateOptions;
  /** The way whose text this one must have. */
  readonly like?: string;
  /** The last column. */
  note?(model: Model): string | Promise<string>;
}

interface Asked extends Given {
  readonly path: string;
  /** Removed at the end. */
  readonly folder: string;
}

const gpu = { gpuLayers: "all" } as const;
const noOffload = { contextSize: 64, opOffload: false };

const kinds: Readonly<Record<string, (asked: Asked) => Way[] | Promise<Way[]>>> = {
  lora,
  offload,
  placement,
  "hot-neurons": hotNeurons,
  splits: async ({ path, inexact }) => {
    const processor = { name: "-ngl 0", options: { gpuLayers: 0 }, ask: { logprobs: 2 } };
    const splits = Array.from({ length: (await layersOf(path)) + 1 }, (_, i): Way => {
      const options = { gpuLayers: i + 1, exact: !inexact };
      const name = `-ngl ${i + 1}${inexact ? "" : " --exact"}`;
      return { ...processor, name, options, ...(!inexact && { like: "-ngl 0" }) };
    });
    return [processor, ...splits];
  },
  sparse: () => [
    { name: "all neurons", options: { sparse: false } },
    { name: "sparse", options: { sparse: true }, like: "all neurons" },
  ],
  profile: () => [
    { name: "without a profile", options: { profile: false } },
    { name: "with one", options: { profile: true } },
  ],
  threads: () =>
    [1, availableParallelism()].map((threads) => ({
      name: `${threads} threads`,
      options: { threads },
    })),
  lookahead: () => {
    const drawn = { temperature: 0.8, topK: 40, seed: 1 };
    const settings = { greedy: {}, drawn: { ...drawn, topP: 0.95, minP: 0.05 } };
    const penalised = { penalties: { repeatPenalty: 1.1 }, both: { ...drawn, repeatPenalty: 1.1 } };
    const [off, on] = [{ backend: "webgpu" }, { backend: "webgpu" }];
    return Object.entries({ ...settings, ...penalised }).flatMap(([name, ask]): Way[] => [
      { name: `${name}, in order`, options: off, env: { LANTERN_LOOKAHEAD: "0" }, ask },
      {
        ...{ name: `${name}, ahead`, options: on, ask, like: `${name}, in order` },
        note: async (model) => {
          const { submitted = 0, dropped = 0 } = (await model.status()).lookahead ?? {};
          return `${submitted} ahead, ${dropped} in vain`;
        },
      },
    ]);
  },
  grammar: () => {
    const options = {};
    const grammar = jsonObjects;
    return [
      { name: "free", options },
      { name: "grammar", options, ask: { grammar } },
      { name: "grammar, nothing forced", options, ask: { grammar, forceTokens: false } },
      { name: "tools (auto)", options, ask: { grammar: toolCalls } },
    ];
  },
};

await bench(
  "npm run bench:variants --",
  "KIND [MODEL.gguf]",
  flags,
  async (given, [kind, file]) => {
    const waysOf = kinds[kind!];
    if (!waysOf) {
      throw new UsageError(`got "${kind}", expected ${Object.keys(kinds).join(", ")}`);
    }
    const run = (path: string) =>
      withFolder(async (folder) => {
        const ways = await waysOf({ ...given, path, folder });
        // Too many for one GPU: each is open alone.
        const isAlone = kind === "placement" || kind === "splits";
        const groups = isAlone ? ways.map((way) => [way]) : [ways];
        for (const users of given.users) await compare(path, groups, users, given);
        if (kind !== "threads") return;
        const busy = Array.from({ length: Math.ceil(availableParallelism() / 2) }, () =>
          spawn(process.execPath, ["-e", "for (;;) {}"], { stdio: "ignore" }),
        );
        console.log(`beside ${busy.length} busy processes:`);
        await compare(path, groups, 1, given).finally(() => busy.map((one) => one.kill()));
      });
    if (file !== undefined) await run(file);
    else if (kind === "placement") await withMadeModel(given.shape, given.type, run);
    else throw new UsageError("got no model, expected one");
  },
);

interface Run extends Pick<Answer, "promptPerSecond" | "tokenIds" | "logprobs"> {
  /** Of all users, after their prompts where there is one. */
  readonly generatedPerSecond: number;
  readonly cpuMs: number;
  readonly sampleUs: number;
}

async function compare(
  path: string,
  groups: readonly (readonly Way[])[],
  users: number,
  given: Given,
): Promise<void> {
  const found = new Map<Way, { runs: Run[]; note: string }>();
  for (const ways of groups) {
    const models = new Map<OpenOptions, Model>();
    try {
      for (const way of ways) {
        if (!models.has(way.options))
          models.set(way.options, await opened(path, way, users, given));
      }
      const modelOf = ({ options }: Way): Model => models.get(options)!;
      const { samples } = await measure({
        contestants: ways,
        rounds: given.rounds,
        warmUps: 1,
        run: (way, round) => ask(modelOf(way), way, users, round, given),
      });
      for (const [i, way] of ways.entries()) {
        found.set(way, { runs: samples[i]!, note: (await way.note?.(modelOf(way))) ?? "" });
      }
    } finally {
      for (const model of models.values()) await model.dispose();
    }
  }
  report(path, found, users, given);
}

async function opened(path: string, { options, env }: Way, users: number, given: Given) {
  const { prompt, tokens, threads } = given;
  const sizes = { contextSize: prompt + tokens + 16, parallel: users };
  Object.assign(process.env, env);
  try {
    return await open(path, { ...sizes, ...(threads && { threads }), ...options });
  } finally {
    for (const name of Object.keys(env ?? {})) delete process.env[name];
  }
}

async function ask(
  model: Model,
  way: Way,
  users: number,
  round: number,
  { prompt, tokens: maxTokens }: Given,
): Promise<Run> {
  await model.clearCache();
  const { vocabSize } = model.info;
  const {
    result: all,
    ms,
    cpuMs,
  } = await timed(() =>
    Promise.all(
      Array.from({ length: users }, (_, user) =>
        answer(model, tokensOf(vocabSize, prompt, 1000 * (round + 1) + user), {
          ...{ maxTokens, cachePrompt: false },
          ...way.ask,
        }),
      ),
    ),
  );
  const made = sum(all.map(({ timings }) => timings.generatedTokens));
  const [first] = all as [Answer];
  const { sampleMs, sampledTokens } = first.timings;
  return {
    promptPerSecond: first.promptPerSecond,
    generatedPerSecond: users === 1 ? first.generatedPerSecond : (1000 * made) / ms,
    cpuMs: cpuMs / made,
    sampleUs: (1000 * sampleMs) / sampledTokens,
    tokenIds: all.flatMap(({ tokenIds }) => tokenIds),
    logprobs: all.flatMap(({ logprobs }) => logprobs),
  };
}

function report(
  path: string,
  found: ReadonlyMap<Way, { runs: readonly Run[]; note: string }>,
  users: number,
  { rounds, prompt, tokens, json }: Given,
): void {
  const { runs: first } = [...found.values()][0]!;
  const runsOf = (name: string) => [...found].find(([way]) => way.name === name)?.[1].runs;
  const rows = [...found].map(([{ name, like }, { runs, note }]) => {
    const of = (pick: (run: Run) => number) => runs.map(pick);
    const ratio = (pick: (run: Run) => number) => medianRatio(of(pick), first.map(pick));
    const { min, max } = summarize(of((run) => run.generatedPerSecond));
    const wanted = (like === undefined ? undefined : runsOf(like)) ?? first;
    const others = runs.map((run, i) => firstDifference(run.tokenIds, wanted[i]!.tokenIds));
    const differs = others.find((at) => at >= 0);
    const otherBits = sum(
      runs.map(({ logprobs }, i) => {
        return logprobs.filter((one, at) => !Object.is(one, wanted[i]!.logprobs[at])).length;
      }),
    );
    const isSame = differs === undefined && otherBits === 0;
    if (like !== undefined && !isSame) process.exitCode = 1;
    return {
      name,
      promptPerSecond: median(of((run) => run.promptPerSecond)),
      promptRatio: ratio((run) => run.promptPerSecond),
      generatedPerSecond: median(of((run) => run.generatedPerSecond)),
      range: [min, max] as const,
      generatedRatio: ratio((run) => run.generatedPerSecond),
      cpuMsPerToken: median(of((run) => run.cpuMs)),
      cpuRatio: ratio((run) => run.cpuMs),
      sampleUs: median(of((run) => run.sampleUs)),
      text: `${differs === undefined ? "same" : `other from ${differs} on`}${otherBits > 0 ? `, ${otherBits} other log probabilities` : ""}`,
      note,
    };
  });
  const model = basename(path);
  if (json) {
    console.log(JSON.stringify({ model, users, prompt, tokens, load: load(), rows }));
    return;
  }
  console.log(
    `${model}, ${users} user${users > 1 ? "s" : ""}, prompts of ${prompt}, ${tokens} tokens; medians of ${rounds} rounds in turns, load ${load().toFixed(1)}`,
  );
  const speeds = ["prompt, tokens/s", "ratio", "generation, tokens/s", "least to most", "ratio"];
  printTable(
    ["way", ...speeds, "CPU ms a token", "ratio", "sampling, us", "text", ""],
    rows.map((row) => [
      row.name,
      ...[row.promptPerSecond.toFixed(1), row.promptRatio.toFixed(3)],
      row.generatedPerSecond.toFixed(2),
      row.range.map((speed) => speed.toFixed(2)).join(" to "),
      row.generatedRatio.toFixed(3),
      ...[row.cpuMsPerToken.toFixed(2), row.cpuRatio.toFixed(3), row.sampleUs.toFixed(0)],
      ...[row.text, row.note],
    ]),
  );
}

/** The factors (F16) are random, for all matrices of layers but those of experts. */
async function lora({ path, folder, rank, gpuLayers }: Asked): Promise<Way[]> {
  const { tensors, architecture = "llama" } = await inspect(path);
  const matrices = /^blk\..*(attn_(q|k|v|output|qkv)|ffn_(gate|up|down))\.weight$/;
  const used = tensors.filter(({ name }) => matrices.test(name));
  const isTied = !tensors.some(({ name }) => name === "output.weight");
  const read = tensors.filter(({ name }) => isTied || name !== "token_embd.weight");
  const modelBytes = sum(read.map(({ bytes }) => bytes));
  /** Of F16: two for each value. */
  const adapterBytes = sum(used.map(({ shape }) => 2 * rank * (shape[0]! + shape[1]!)));
  const made = (seed: number) => {
    const facts = { seed, rank, type: "f16", size: 0.01, architecture };
    return adapterFile(
      folder,
      `${seed}`,
      used.map((tensor) => [tensor.name, tensor] as const),
      facts,
    );
  };
  const where =
    gpuLayers === undefined
      ? {}
      : { gpuLayers: gpuLayers === "all" ? ("all" as const) : Number(gpuLayers) };
  const options = { ...where, adapters: [await made(1), await made(2)] };
  const inUse = [0, 1, 2].map((some): Way => {
    const limit = (100 * modelBytes) / (modelBytes + some * adapterBytes);
    const adapters = Array.from({ length: some }, (_, id) => ({ id, scale: 1 }));
    const note = () => `bytes allow ${limit.toFixed(1)} %`;
    return { name: `${some} of 2 in use`, options, ask: { adapters }, note };
  });
  return [{ name: "opened without adapters", options: where }, ...inUse];
}

async function layersOf(path: string): Promise<number> {
  await using model = await open(path, { ...noOffload, gpuLayers: 1 });
  return model.info.layers;
}

async function offload({ path, layers, forced }: Asked): Promise<Way[]> {
  const gpuLayers = layers ?? Math.floor((await layersOf(path)) / 2) + 1;
  const said = /op offload: (no|prompts|demanded)|come from the host for each batch/;
  const note = ({ info }: Model) => info.backend.notes.filter((one) => said.test(one)).join("; ");
  return [
    { name: `-ngl ${gpuLayers}`, options: { gpuLayers, opOffload: false } },
    { name: "with op offload", options: { gpuLayers, ...(forced && { opOffload: true }) }, note },
  ];
}

async function placement({ path, slots }: Asked): Promise<Way[]> {
  const half = Math.ceil((await layersOf(path)) / 2);
  const onGpu = "all on the GPU";
  const hits = async (model: Model) => {
    const { notes = [] } = await model.profile();
    const percent = /experts in slots: ([\d.]+) %/.exec(notes.join("\n"))?.[1];
    return percent === undefined ? "" : `${percent} % of uses in slots`;
  };
  const at = (name: string, options: OpenOptions, more: Partial<Way> = {}): Way => {
    return { name, options: { ...options, profile: true }, ...more };
  };
  return [
    at("all on the processor", { gpuLayers: 0 }),
    at(onGpu, gpu),
    at("experts on the processor", { ...gpu, cpuExperts: "all" }),
    at(`experts of ${half} layers there`, { ...gpu, cpuExperts: half }),
    ...slots.map((expertSlots) =>
      at(`experts in ${expertSlots} slots`, { ...gpu, expertSlots }, { like: onGpu, note: hits }),
    ),
  ];
}

/** Layers of the divided ones are as many as take the GPU memory of the hot neurons. */
async function hotNeurons({ path, share }: Asked): Promise<Way[]> {
  const hot = { ...gpu, hotNeurons: share, sparse: true, opOffload: false };
  const bytesWith = async (options: OpenOptions) => {
    await using model = await open(path, { ...noOffload, ...options });
    return gpuBytes(model);
  };
  const [two, three] = [await bytesWith({ gpuLayers: 2 }), await bytesWith({ gpuLayers: 3 })];
  const gpuLayers = Math.floor(((await bytesWith(hot)) - two) / (three - two)) + 2;
  const note = (model: Model) => `${(gpuBytes(model) / 2 ** 20).toFixed(0)} MiB on the GPU`;
  const split = { gpuLayers, opOffload: false };
  return [
    { name: "processor", options: { gpuLayers: 0, sparse: true }, note },
    { name: `-ngl ${gpuLayers}, all neurons`, options: { ...split, sparse: false }, note },
    { name: `-ngl ${gpuLayers}, sparse`, options: { ...split, sparse: true }, note },
    { name: "hot neurons", options: hot, note },
  ];
}

function gpuBytes({ info }: Model): number {
  const own = info.backend.placement.filter(({ isDevice }) => isDevice);
  return sum(own.map(({ weightBytes }) => weightBytes));
}
