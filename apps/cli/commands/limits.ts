// lantern limits: the limits of a model on a device: parameters, memory, the least time of prompts and of generated
// tokens, and the effect of other bit widths, GQA or speculation. src/limits computes the numbers; this file prints
// them.

import { Option } from "commander";
import { messageOf } from "../../../src/base/errors.ts";
import {
  type LimitsOptions,
  type LimitsReport,
  type LimitsSource,
  limits,
  limitsNames,
  limitsPicture,
  type MachineMeasurement,
  type ModelShape,
  rememberedMachine,
  type Sla,
  UsageError,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp, plotHelp } from "../flag-help.ts";
import { numberFlag, svgFlag } from "../flag-values.ts";
import { openFlag } from "../flags.ts";
import { limitsText, namesText } from "../limits-text.ts";
import { measureGpuWatched, measureWatched, noteTo } from "../machine-limits.ts";
import { slaFlag, slaHelp } from "../serving-text.ts";

interface LimitsFlags extends Partial<Record<SizeFlag, number>> {
  config?: string;
  tied?: boolean;
  qkvBias?: boolean;
  device?: string;
  threads?: number;
  weights?: string;
  kv?: string;
  context?: number;
  memory?: number;
  ram?: number;
  rate?: NonNullable<LimitsOptions["rate"]>;
  acceptance?: number;
  draft?: string;
  draftTokens?: number;
  users?: number;
  sla?: Sla;
  prompt?: number;
  predict?: number;
  batch?: number;
  price?: number;
  measured?: string;
  plot?: string;
  list?: boolean;
  article?: boolean;
  json?: boolean;
}

/** The sizes of a plain transformer that has no file, by flag; those with a default may be left out. */
const sizeFlags = {
  layers: { flag: "--layers", about: "layers" },
  hidden: { flag: "--hidden", about: "values of the hidden state" },
  heads: { flag: "--heads", about: "query heads" },
  kvHeads: { flag: "--kv-heads", about: "KV heads (default: as many as query heads)" },
  headDim: { flag: "--head-dim", about: "values of a head (default: hidden / heads)" },
  ffn: { flag: "--ffn", about: "values between the matrices of the feed-forward network" },
  vocab: { flag: "--vocab", about: "tokens of the vocabulary" },
} as const;
type SizeFlag = keyof typeof sizeFlags;

const gib = 1024 ** 3;
/** Without --draft: an n-gram lookup or the like, which costs nothing. */
const freeDraft = 0;

export const limitsCommand: CommandBody = {
  examples: [
    "lantern limits qwen1.5-7b --device rtx4090",
    "lantern limits model.gguf --device this-gpu",
    "lantern limits model.gguf --ram 4G",
    "lantern limits --config config.json --device rtx4090 --weights 4",
    "lantern limits --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256",
    "lantern limits model.gguf --context 16384 --plot limits.svg",
    "lantern limits llama-3-70b --device h100-sxm --weights 4 --draft llama-3-8b --acceptance 0.8",
    "lantern limits qwen2.5-7b --device rtx4090 --weights 4 --users 32 --sla 2s,20 -p 512 -n 256",
    "lantern limits llama-3-8b --device h100-sxm --batch 10000 --price 2.5 -p 512 -n 256",
  ],
  define(command, context) {
    const count = numberFlag({ integer: true, min: 1, max: 1 << 24 });
    command
      .argument("[model]", 'a file, a folder, a name from "lantern models", or a model from --list')
      .option(
        "--config <file>",
        "in place of a model: its config.json, as Hugging Face folders have it, without any weights",
      );
    for (const { flag, about } of Object.values(sizeFlags)) {
      command.option(`${flag} <n>`, `a model of one's own: ${about}`, count);
    }
    command
      .option("--tied", "a model of one's own: the output matrix is the embedding table")
      .option("--qkv-bias", "a model of one's own: queries, keys and values have biases")
      .option(
        "--device <name>",
        "a device from --list, or this-gpu: this machine's GPU (default: this machine)",
      )
      .option(
        "-t, --threads <n>",
        "threads of this machine (default: as many as the model would use)",
        numberFlag({ integer: true, min: 1, max: 1024 }),
      )
      .option("--weights <bits>", "bits per weight, or a type (default: as stored, or 16)")
      .option(
        "--kv <bits>",
        "bits per value of the KV cache, or a type, or types of keys and values, as in q8_0/q4_0 (default: 16)",
      )
      .option(
        "-c, --context <n>",
        "size of the context, in tokens (default: 4096)",
        numberFlag({ integer: true, min: 1, max: 1 << 24 }),
      )
      .option(
        "--memory <GiB>",
        "memory of the device, in GiB (default: as in its data sheet)",
        numberFlag({ min: 0.001, max: 1e6 }),
      )
      .addOption(openFlag("ramBytes"))
      .option(
        "--article",
        "count as the article in docs/use/limits.md does: arithmetic in F32, the KV cache read again for every token",
      )
      .addOption(
        new Option("--rate <type>", "count all arithmetic at the peak of this type").choices([
          "f32",
          "f16",
          "int8",
        ]),
      )
      .option(
        "--acceptance <p>",
        "speculative decoding: the fraction of drafted tokens that is accepted, 0 to 1",
        numberFlag({ min: 0, max: 1 }),
      )
      .option(
        "--draft <model>",
        "speculative decoding: the draft model, or its time per token as a fraction of the model's (default: 0)",
      )
      .option(
        "--draft-tokens <n>",
        "speculative decoding: tokens drafted at a time (default: the best number)",
        numberFlag({ integer: true, min: 0, max: 1024 }),
      )
      .option(
        "--users <n>",
        "many users at once: whether so many are served, and how many are at most",
        count,
      )
      .option("--sla <time,rate>", slaHelp, slaFlag)
      .option("-p, --prompt <n>", "many users: tokens of each prompt (default: 64)", count)
      .option(
        "-n, --predict <n>",
        "many users: tokens of each answer (default: 64)",
        numberFlag({ integer: true, min: 2, max: 1 << 24 }),
      )
      .option("--batch <n>", "the least time of so many requests that nobody waits for", count)
      .option(
        "--price <amount>",
        "price of the device per hour, for the cost of --batch",
        numberFlag({ min: 0, max: 1e9 }),
      )
      .option(
        "--measured <file>",
        'compare with measured speeds, as "lantern bench --json" prints them; with --acceptance: with gains of "bench:speculate --json"',
      )
      .option("--plot <file.svg>", plotHelp, svgFlag)
      .option("--list", "list the models and devices that have a name")
      .option("--json", jsonHelp)
      .action((model: string | undefined, flags: LimitsFlags) => show(model, flags, context));
  },
};

async function show(
  model: string | undefined,
  flags: LimitsFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  if (flags.list) {
    const names = await limitsNames();
    terminal.out(flags.json ? `${JSON.stringify(names)}\n` : namesText(names));
    return;
  }
  const report = await reportFor(await sourceOf(model, flags, context), flags, context);
  if (flags.plot !== undefined) await terminal.writeText(flags.plot, await limitsPicture(report));
  terminal.out(
    flags.json ? `${JSON.stringify(report)}\n` : limitsText(report, context.color().out),
  );
  if (flags.plot !== undefined) terminal.err(`Chart written to ${flags.plot}\n`);
}

/** The named model, a config.json, or sizes: exactly one of them. */
async function sourceOf(
  model: string | undefined,
  flags: LimitsFlags,
  { terminal }: CliContext,
): Promise<LimitsSource> {
  const names = Object.keys(sizeFlags) as SizeFlag[];
  const sizes = names
    .filter((name) => flags[name] !== undefined)
    .map((name) => sizeFlags[name].flag);
  const extras = [...(flags.tied ? ["--tied"] : []), ...(flags.qkvBias ? ["--qkv-bias"] : [])];
  const given = [
    ...(model === undefined ? [] : [`the model "${model}"`]),
    ...(flags.config === undefined ? [] : [`--config ${flags.config}`]),
    ...(sizes.length + extras.length === 0 ? [] : [[...sizes, ...extras].join(", ")]),
  ];
  if (given.length > 1) {
    throw new UsageError(`limits: got ${given.join(" and ")}, expected one of them`);
  }
  if (model !== undefined) return model;
  if (flags.config !== undefined) {
    const text = await terminal.readText(flags.config);
    return { config: parseJson(text, "config", flags.config, "a config.json"), name: flags.config };
  }
  if (given.length > 0) return { shape: shapeOf(flags) };
  throw new UsageError(
    'limits: got no model, expected a file or a name from "lantern limits --list". For example: lantern limits qwen1.5-7b --device rtx4090',
  );
}

function shapeOf(flags: LimitsFlags): ModelShape {
  const size = (name: SizeFlag, usual?: number): number => {
    const value = flags[name] ?? usual;
    if (value !== undefined) return value;
    const { flag, about } = sizeFlags[name];
    throw new UsageError(
      `limits: ${flag}: got nothing, expected a whole number: ${about}. A model of one's own needs --layers, --hidden, --heads, --ffn and --vocab`,
    );
  };
  const [embed, heads] = [size("hidden"), size("heads")];
  if (flags.headDim === undefined && embed % heads !== 0) {
    throw new UsageError(
      `limits: --hidden: got ${embed}, expected a multiple of the ${heads} heads. Where heads have another size, give --head-dim`,
    );
  }
  return {
    ...{ vocabSize: size("vocab"), layers: size("layers"), feedForward: size("ffn") },
    ...{ embed, heads, kvHeads: size("kvHeads", heads), headDim: size("headDim", embed / heads) },
    ...{ qkvBias: flags.qkvBias === true, headNorms: false, tied: flags.tied === true },
  };
}

async function reportFor(
  model: LimitsSource,
  flags: LimitsFlags,
  context: CliContext,
): Promise<LimitsReport> {
  const measured =
    flags.measured === undefined
      ? undefined
      : parseJson(
          await context.terminal.readText(flags.measured),
          "measured",
          flags.measured,
          'what "lantern bench --json" prints',
        );
  return await limits(model, {
    device: flags.device,
    threads: flags.threads,
    weights: flags.weights,
    kv: flags.kv,
    context: flags.context,
    memoryBytes: flags.memory === undefined ? undefined : flags.memory * gib,
    ramBytes: flags.ram,
    rate: flags.rate,
    counting: flags.article ? "article" : "best",
    speculation: speculationOf(flags),
    serving: servingOf(flags),
    ...(measured !== undefined && { measured, measuredName: flags.measured }),
    machine: () => thisMachine(context),
    gpu: () => measureGpuWatched(context, { onNote: noteTo(context) }),
  });
}

async function thisMachine(context: CliContext): Promise<MachineMeasurement> {
  const onNote = noteTo(context);
  const remembered = await rememberedMachine({ onNote });
  return remembered ?? (await measureWatched(context, { anew: true, onNote }));
}

function speculationOf(flags: LimitsFlags): LimitsOptions["speculation"] {
  const { acceptance, draft, draftTokens } = flags;
  if (acceptance === undefined) {
    if (draft === undefined && draftTokens === undefined) return undefined;
    throw new UsageError(
      "limits: --draft and --draft-tokens need --acceptance, the fraction of drafted tokens that is accepted (0.8 is usual)",
    );
  }
  const share = Number(draft ?? freeDraft);
  return { acceptance, draftTokens, draft: Number.isNaN(share) ? draft! : share };
}

function servingOf(flags: LimitsFlags): LimitsOptions["serving"] {
  const { users, sla, prompt, predict, batch, price } = flags;
  if (users === undefined && sla === undefined && batch === undefined) {
    if (prompt === undefined && predict === undefined && price === undefined) return undefined;
    throw new UsageError(
      "limits: --prompt, --predict and --price describe requests of many users. Add --users N or --batch N",
    );
  }
  if (price !== undefined && batch === undefined) {
    throw new UsageError(
      "limits: got --price without --batch, expected both. Add --batch with the number of requests",
    );
  }
  return {
    users,
    sla,
    ...(prompt !== undefined && { promptTokens: prompt }),
    ...(predict !== undefined && { answerTokens: predict }),
    batch,
    pricePerHour: price,
  };
}

function parseJson(text: string, what: string, file: string, expected: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(
      `${what}: ${file} is not JSON (${messageOf(error)}), expected ${expected}`,
      { cause: error },
    );
  }
}
