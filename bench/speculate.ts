// What speculation gains: generation with it and without in the same process, in turns.
//
//   npm run bench:speculate -- MODEL.gguf ... [-t 1,2] [-n 200] [-r 5] [--json]           drafts from the text itself
//   npm run bench:speculate -- MODEL.gguf --backend webgpu                                on the GPU
//   npm run bench:speculate -- MODEL.gguf -md DRAFT.gguf ...                              drafts from a small model
//   npm run bench:speculate -- MODEL.gguf -md DRAFT.gguf --forced 0.8 ...                 right with this probability
//   npm run bench:speculate -- MODEL.gguf -md DRAFT.gguf --forced own ...                 its own drafts, also where they do not pay
//   LANTERN_PEERS=DIR npm run bench:speculate -- MODEL.gguf --peer                        node-llama-cpp's own beside it
//
// Cases are prompts: texts that repeat, a text with one change, quotes, and free prose. Each line has the median ratio of
// tokens per second to those without and its quartiles, both medians, how many drafted tokens were accepted, what the measured times of
// batches predict, the tokens of a batch (the ratio if more tokens cost nothing), and the load average. Every text is compared with the
// one without speculation: if it differs, the line says so. Runs with and without take turns, each first in every other round; many short
// rounds (-n 48 -r 60) tell more than a few long ones where the machine is not quiet.
//
// Models: scripts/make-model.ts writes llama-1b and llama-0.1b with made-up weights; stories15M and stories260K are
// ggml-org/models on Hugging Face (tinyllamas), minimind2-small is jingyaogong/MiniMind2-Small, converted with "lantern convert".

import { loadavg } from "node:os";
import { basename } from "node:path";
import { parseArgs } from "node:util";
import { LanternError, UsageError } from "../src/base/errors.ts";
import { type Model, open } from "../src/index.ts";
import { type Case, cases, median, quantile } from "./speculate-cases.ts";
import { forcedLines } from "./speculate-forced.ts";
import { peerLines } from "./speculate-peer.ts";

/** One row of the table. */
export interface Line {
  model: string;
  draft: string;
  case: string;
  threads: number;
  /** Tokens per second: with speculation / without, the median of the rounds. */
  ratio: number;
  tokensPerSecond: number;
  plainTokensPerSecond: number;
  drafted: number;
  accepted: number;
  /** The quartiles of the ratio. */
  quartiles?: readonly [number, number];
  /** Tokens of the text for each batch; and tokens of each batch: those, and drafted ones that were wrong. */
  batchTokens?: number;
  batchSize?: number;
  /** What the costs of batches predict. */
  predicted?: number;
  /** Milliseconds of a token without, of the batch that verifies, and of a drafted token, where that was asked for. */
  costs?: { plain: number; batch: number; draft: number };
  isSame: boolean;
  load: number;
}

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  args: process.argv.slice(2).map((arg) => (arg === "-md" ? "--model-draft" : arg)),
  options: {
    threads: { type: "string", short: "t", default: "1,2" },
    tokens: { type: "string", short: "n", default: "200" },
    rounds: { type: "string", short: "r", default: "5" },
    cases: { type: "string" },
    "model-draft": { type: "string" },
    "threads-draft": { type: "string" },
    backend: { type: "string" },
    forced: { type: "string" },
    depths: { type: "string", default: "1,2,3,4,6,8" },
    peer: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});

const draft = flags["model-draft"];
const draftThreads = flags["threads-draft"] && Number(flags["threads-draft"]);
const [tokens, rounds] = [Number(flags.tokens), Number(flags.rounds)];

/** With and without in turns, each first in every other round. */
async function ownLines(
  path: string,
  threads: number,
  onLine: (line: Line) => void,
): Promise<void> {
  const model = await open(path, {
    threads,
    ...(flags.backend && { backend: flags.backend }),
    ...(draft && { draftModel: draft }),
    ...(draftThreads && { draftThreads }),
  });
  try {
    for (const one of chosenCases()) onLine(await measure(model, one, basename(path), threads));
  } finally {
    await model.dispose();
  }
}

async function measure(model: Model, one: Case, name: string, threads: number): Promise<Line> {
  const prompt = await promptOf(model, one);
  const run = async (speculate: boolean, seed: number) => {
    const options = { maxTokens: tokens, temperature: one.temperature, seed, speculate };
    const { timings, text } = await model.generate(prompt, options).result;
    const { generatedTokens: written, generatedMs } = timings;
    const { drafted = 0, accepted = 0, batches = written, savedMs = 0 } = timings.speculation ?? {};
    const speed = (1000 * written) / generatedMs;
    const batch = { batchTokens: written / batches, batchSize: 1 + drafted / batches };
    return { text, speed, drafted, accepted, generatedMs, savedMs, ...batch };
  };
  const plain: Awaited<ReturnType<typeof run>>[] = [];
  const fast: Awaited<ReturnType<typeof run>>[] = [];
  await run(false, 0);
  await run(true, 0);
  for (let round = 0; round < rounds; round++) {
    const isFirst = round % 2 === 0;
    if (isFirst) plain.push(await run(false, round));
    fast.push(await run(true, round));
    if (!isFirst) plain.push(await run(false, round));
  }
  const ratios = fast.map(({ speed }, i) => speed / plain[i]!.speed);
  return {
    model: name,
    draft: draft ? basename(draft) : "n-gram",
    case: one.name,
    threads,
    ratio: median(ratios),
    quartiles: [quantile(ratios, 0.25), quantile(ratios, 0.75)],
    batchTokens: median(fast.map(({ batchTokens }) => batchTokens)),
    batchSize: median(fast.map(({ batchSize }) => batchSize)),
    predicted: median(plain.map(({ generatedMs: ms }, i) => ms / (ms - fast[i]!.savedMs))),
    tokensPerSecond: median(fast.map(({ speed }) => speed)),
    plainTokensPerSecond: median(plain.map(({ speed }) => speed)),
    drafted: median(fast.map(({ drafted }) => drafted)),
    accepted: median(fast.map(({ accepted }) => accepted)),
    isSame: fast.every(({ text }, round) => text === plain[round]!.text),
    load: loadavg()[0]!,
  };
}

function chosenCases(): readonly Case[] {
  const names = flags.cases?.split(",");
  const unknown = names?.find((name) => !cases.some((one) => one.name === name));
  if (unknown !== undefined) {
    const known = cases.map(({ name }) => name).join(", ");
    throw new UsageError(`--cases: got "${unknown}", expected some of ${known}`);
  }
  return names ? cases.filter(({ name }) => names.includes(name)) : cases;
}

/** The cases with the prompts that this model is given here. */
async function promptsOf(path: string): Promise<{ name: string; prompt: string }[]> {
  const model = await open(path);
  try {
    const all = chosenCases().map(async (one) => ({
      name: one.name,
      prompt: await promptOf(model, one),
    }));
    return await Promise.all(all);
  } finally {
    await model.dispose();
  }
}

async function promptOf(model: Model, { asked, prompt }: Case): Promise<string> {
  if (!model.info.hasChatTemplate) return prompt;
  return (await model.applyTemplate([{ role: "user", content: asked }])).text;
}

function lineText(line: Line): string {
  const { ratio, tokensPerSecond, plainTokensPerSecond, drafted, accepted, predicted } = line;
  const { quartiles, batchTokens } = line;
  const spread = quartiles ? ` (${quartiles.map((one) => one.toFixed(2)).join(" to ")})` : "";
  const parts = [
    `${line.model}, ${line.draft}, ${line.case}, ${line.threads} threads: ${ratio.toFixed(2)}x${spread}`,
    `${tokensPerSecond.toFixed(1)} instead of ${plainTokensPerSecond.toFixed(1)} tokens/s`,
    `${accepted} of ${drafted} drafted tokens accepted`,
    ...(batchTokens === undefined ? [] : [`${batchTokens.toFixed(2)} tokens for each batch`]),
    ...(predicted === undefined
      ? []
      : [`predicted ${predicted.toFixed(2)}x, measured ${(ratio / predicted).toFixed(2)} of that`]),
    ...(line.costs ? [costsText(line.costs)] : []),
    `load ${line.load.toFixed(1)}`,
  ];
  return parts.join("; ") + (line.isSame ? "" : "; THE TEXT DIFFERS");
}

function costsText({ plain, batch, draft }: NonNullable<Line["costs"]>): string {
  const ms = (value: number) => `${value.toFixed(2)} ms`;
  return `a token takes ${ms(plain)}, a batch ${ms(batch)}, a draft ${ms(draft)}`;
}

async function main(): Promise<void> {
  if (positionals.length === 0) throw new UsageError("bench: no model was given");
  const lines: Line[] = [];
  const add = (line: Line) => {
    lines.push(line);
    if (!flags.json) console.log(lineText(line));
  };
  for (const path of positionals) {
    for (const threads of flags.threads.split(",").map(Number)) {
      if (flags.forced !== undefined) {
        if (!draft)
          throw new UsageError("--forced: a draft model (-md) is needed: its time counts");
        const depths = flags.depths.split(",").map(Number);
        const acceptance = flags.forced === "own" ? undefined : Number(flags.forced);
        const sizes = { threads, draftThreads, tokens, rounds, depths };
        await forcedLines({ path, draft, acceptance, backend: flags.backend, ...sizes }, add);
      } else if (flags.peer) {
        const sizes = { threads, tokens, rounds };
        await peerLines({ path, draft, ...sizes, cases: await promptsOf(path) }, add);
      } else {
        await ownLines(path, threads, add);
      }
    }
  }
  if (flags.json) console.log(JSON.stringify(lines, null, 1));
  if (lines.some(({ isSame }) => !isSame)) process.exitCode = 1;
}

try {
  await main();
} catch (error) {
  if (!(error instanceof LanternError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
