// Compares the types for a model: makes every type of it, and prints a Markdown table of size, perplexity, divergence
// from the original, speed of generation, and the fraction of this machine's limit.
//
//   node scripts/compare-types.ts MODEL TEXT [-c 128] [--chunks N] [--types Q8_0,Q4_0] [-n 32] [-r 5] [--folder DIR]
//   [--chat]
//
// With --chat the types are compared on chats, for a model that predicts nothing else: the starts of the text's lines
// are the user's messages, and the original's answers, in its template, are scored.
//
// MODEL is the original (F32, F16 or BF16), in any format. Speeds are medians of rounds over all types, so that a
// machine that gets busy affects all alike; on a busy machine the best round is more reliable than the median. The
// files are made in a temporary folder, unless --folder is given.

import { mkdir, mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { UsageError } from "../src/base/errors.ts";
import { measure, median } from "../src/base/measure.ts";
import {
  convert,
  inspect,
  type Model,
  machineMeasurement,
  open,
  type PerplexityResult,
  perplexity,
  quantize,
  quantizeTypes,
} from "../src/index.ts";

interface Settings {
  model: string;
  text: string;
  window: number;
  chunks: number | undefined;
  types: readonly string[];
  generated: number;
  rounds: number;
  folder: string | undefined;
  chat: boolean;
}

interface Row {
  type: string;
  path: string;
  bytes: number;
  quality: PerplexityResult;
  /** Tokens per second, one for each round. */
  speeds: number[];
  /** The limit of this machine; undefined if it was not measured. */
  limit: number | undefined;
}

const prompt = "Once upon a time";

async function settingsOf(args: readonly string[]): Promise<Settings> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      "ctx-size": { type: "string", short: "c", default: "128" },
      chunks: { type: "string" },
      types: { type: "string" },
      predict: { type: "string", short: "n", default: "32" },
      rounds: { type: "string", short: "r", default: "5" },
      folder: { type: "string" },
      chat: { type: "boolean", default: false },
    },
  });
  const [model, text] = positionals;
  if (!model || !text) throw new UsageError("compare-types: expected MODEL and TEXT");
  return {
    model,
    text: await readFile(text, "utf8"),
    window: Number(values["ctx-size"]),
    chunks: values.chunks === undefined ? undefined : Number(values.chunks),
    types: values.types?.split(",") ?? (await quantizeTypes()),
    generated: Number(values.predict),
    rounds: Number(values.rounds),
    folder: values.folder,
    chat: values.chat,
  };
}

/** The original as a GGUF file, which quantize() needs. */
async function originalOf(model: string, folder: string): Promise<string> {
  const { format } = await inspect(model);
  if (/^gguf/i.test(format)) return model;
  const path = join(folder, "original.gguf");
  await convert(model, path, { replace: true });
  return path;
}

/**
 * Chats with the original, as text with its special tokens. Each fills a window, so that its scored second half is
 * part of an answer. Answers that end earlier, or whose text has other tokens, are left out.
 */
async function chatText(
  original: string,
  { text, window, chunks = 16 }: Settings,
): Promise<string> {
  await using model = await open(original, { contextSize: window });
  const lines = text.split("\n").map((line) => line.trim().split(" ").slice(0, 6).join(" "));
  const chats: string[] = [];
  for (const [seed, content] of lines.filter((line) => line.length > 20).entries()) {
    if (chats.length === chunks) break;
    const question = { role: "user" as const, content };
    const start = await model.applyTemplate([question], { addGenerationPrompt: true });
    const prompt = await model.tokenize(start);
    if (prompt.length > window / 2) continue;
    const options = { maxTokens: window - prompt.length, temperature: 0.7, seed };
    const chat = start.text + (await model.generate(prompt, options).result).text;
    const tokens = await model.tokenize(chat, { parseSpecial: true });
    if (tokens.length === window) chats.push(chat);
  }
  return chats.join("");
}

/** Makes a type and measures its quality. Types of the original's own kind show that nothing is lost. */
async function rowOf(
  type: string,
  original: string,
  base: string,
  folder: string,
  { chunks }: Settings,
): Promise<Row> {
  const path = join(folder, `${type}.gguf`);
  await quantize(original, path, type, { replace: true });
  const limited = chunks === undefined ? {} : { chunks };
  const quality = await perplexity(path, undefined, { base, ...limited });
  return { type, path, bytes: (await stat(path)).size, quality, speeds: [], limit: undefined };
}

/** All types take turns; a round before them warms up. */
async function measureSpeeds(rows: readonly Row[], settings: Settings): Promise<void> {
  await machineMeasurement();
  const models: Model[] = [];
  try {
    for (const { path } of rows) models.push(await open(path, { contextSize: 128 }));
    await measure({
      contestants: [...rows.entries()],
      rounds: settings.rounds,
      warmUps: 1,
      onRound: (round) =>
        void process.stderr.write(`speed: round ${round + 1} of ${settings.rounds}\n`),
      run: ([at, row], round) => measureSpeed(models[at]!, row, round, settings),
    });
  } finally {
    for (const model of models) await model.dispose();
  }
}

async function measureSpeed(
  model: Model,
  row: Row,
  round: number,
  { generated }: Settings,
): Promise<void> {
  const options = { maxTokens: generated, temperature: 0, ignoreEos: true };
  const { timings } = await model.generate(prompt, options).result;
  if (round < 0) return;
  row.speeds.push((timings.generatedTokens * 1000) / timings.generatedMs);
  row.limit = timings.limits?.generation?.tokensPerSecond;
}

/** Ratios are to the original's own perplexity: a saved base has it only approximately (docs/use/perplexity.md). */
function tableOf(rows: readonly Row[], original: PerplexityResult): string {
  const header = [
    "type",
    "size (MB)",
    "perplexity",
    "ratio to the original",
    "KL divergence",
    "same likeliest token",
    "generation (tokens/s)",
    "of limit",
    "best round",
    "of limit",
  ];
  const lines = rows.map(({ type, bytes, quality, speeds, limit }) => {
    const { divergence, sameTop } = quality.base!;
    const ratio = quality.perplexity.value / original.perplexity.value;
    const ofLimit = (speed: number) =>
      limit === undefined ? "" : `${((100 * speed) / limit).toFixed(0)}%`;
    const [middle, best] = [median(speeds), Math.max(...speeds)];
    return [
      type,
      (bytes / 1e6).toFixed(1),
      `${quality.perplexity.value.toFixed(3)} ± ${quality.perplexity.error.toFixed(3)}`,
      ratio.toFixed(4),
      Math.max(0, divergence.value).toFixed(5),
      `${(100 * sameTop.value).toFixed(1)}%`,
      middle.toFixed(0),
      ofLimit(middle),
      best.toFixed(0),
      ofLimit(best),
    ];
  });
  const right = header.map((_, column) => (column === 0 ? ":--" : "--:"));
  return [header, right, ...lines].map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

async function main(): Promise<void> {
  const settings = await settingsOf(process.argv.slice(2));
  if (settings.folder) await mkdir(settings.folder, { recursive: true });
  const folder = settings.folder ?? (await mkdtemp(join(tmpdir(), "lantern-types-")));
  try {
    const original = await originalOf(settings.model, folder);
    const base = join(folder, "original.base");
    const { window: contextSize, chunks } = settings;
    const limited = chunks === undefined ? {} : { chunks };
    const text = settings.chat ? await chatText(original, settings) : settings.text;
    const saved = await perplexity(original, text, {
      contextSize,
      parseSpecial: settings.chat,
      ...limited,
      saveBase: base,
      replace: true,
    });
    const rows: Row[] = [];
    for (const type of settings.types) {
      process.stderr.write(`${type}\n`);
      rows.push(await rowOf(type, original, base, folder, settings));
    }
    await measureSpeeds(rows, settings);
    const { windows, scored } = saved;
    const kind = settings.chat ? " of chats" : "";
    const measured = `${windows} windows of ${contextSize} tokens${kind}, ${scored} scored`;
    const load = loadavg()[0]!.toFixed(1);
    process.stdout.write(`${measured}; load of the machine ${load}, ${cpus().length} cores\n\n`);
    process.stdout.write(
      tableOf(
        rows.toSorted((a, b) => b.bytes - a.bytes),
        saved,
      ),
    );
  } finally {
    if (!settings.folder) await rm(folder, { recursive: true });
  }
}

await main();
