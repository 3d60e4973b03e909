// What speculation gains: generation with it and without in the same process, in turns.
//
//   npm run bench:speculate -- MODEL.gguf ... [-t 1,2] [-n 200] [-r 5] [--json]           drafts from the text itself
//   npm run bench:speculate -- MODEL.gguf --backend webgpu                                on the GPU
//   npm run bench:speculate -- MODEL.gguf -md DRAFT.gguf ...                              drafts from a small model
//   npm run bench:speculate -- MODEL.gguf -md DRAFT.gguf --forced 0.8 ...                 right with this probability
//
// Cases are prompts: texts that repeat, a text with one change, quotes, and free prose. Each line has the median ratio of
// tokens per second to those without, both medians, how many drafted tokens were accepted, what the measured times of
// batches predict, the tokens of a batch (the ratio if more tokens cost nothing), and the load average. Every text is compared with the
// one without speculation: if it differs, the line says so. Runs with and without take turns, each first in every other round; many short
// rounds (-n 48 -r 60) tell more than a few long ones where the machine is not quiet.
//
// Models: scripts/make-model.ts writes llama-1b and llama-0.1b with made-up weights; stories15M and stories260K are
// ggml-org/models on Hugging Face (tinyllamas), minimind2-small is jingyaogong/MiniMind2-Small, converted with "lantern convert".

import { basename } from "node:path";
import { UsageError } from "../src/base/errors.ts";
import { measure, median, medianRatio } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { bench, count, counts, isOn, load, number, text, texts, type Values } from "./harness.ts";
import { type Case, cases } from "./speculate-cases.ts";
import { forcedLines } from "./speculate-forced.ts";

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

const flags = {
  threads: counts([1, 2], "t"),
  tokens: count(200, "n"),
  rounds: count(5, "r"),
  cases: texts(),
  modelDraft: text(),
  threadsDraft: count(),
  backend: text(),
  forced: number(),
  depths: counts([1, 2, 3, 4, 6, 8]),
  json: isOn,
};
type Given = Values<typeof flags>;

const argv = process.argv.slice(2).map((arg) => (arg === "-md" ? "--model-draft" : arg));
await bench("npm run bench:speculate --", "MODEL.gguf ...", flags, main, argv);

async function main(given: Given, paths: readonly string[]): Promise<void> {
  const { modelDraft: draft, tokens, rounds, depths, backend, forced, json } = given;
  const lines: Line[] = [];
  const add = (line: Line) => {
    lines.push(line);
    if (!json) console.log(lineText(line));
  };
  for (const path of paths) {
    for (const threads of given.threads) {
      const sizes = { path, threads, tokens, rounds };
      if (forced !== undefined) {
        if (!draft)
          throw new UsageError("--forced: a draft model (-md) is needed: its time counts");
        const { threadsDraft: draftThreads } = given;
        const asked = { draft, acceptance: forced, backend, depths, draftThreads, ...sizes };
        await forcedLines(asked, add);
      } else {
        await ownLines(path, threads, given, add);
      }
    }
  }
  if (json) console.log(JSON.stringify(lines, null, 1));
  if (lines.some(({ isSame }) => !isSame)) process.exitCode = 1;
}

/** With and without in turns, each first in every other round. */
async function ownLines(
  path: string,
  threads: number,
  given: Given,
  onLine: (line: Line) => void,
): Promise<void> {
  const { backend, modelDraft: draft, threadsDraft } = given;
  await using model = await open(path, {
    threads,
    ...(backend && { backend }),
    ...(draft && { draftModel: draft }),
    ...(threadsDraft && { draftThreads: threadsDraft }),
  });
  for (const one of chosenCases(given)) {
    const facts = { model: basename(path), draft: draft ? basename(draft) : "n-gram", threads };
    onLine({ ...facts, ...(await measureCase(model, one, given)) });
  }
}

async function measureCase(model: Model, one: Case, { tokens, rounds }: Given) {
  const prompt = await promptOf(model, one);
  const { samples } = await measure({
    contestants: [false, true],
    rounds,
    warmUps: 1,
    run: async (speculate, round) => {
      const seed = Math.max(0, round);
      const options = { maxTokens: tokens, temperature: one.temperature, seed, speculate };
      const { timings, text } = await model.generate(prompt, options).result;
      const { generatedTokens: made, generatedMs } = timings;
      const { drafted = 0, accepted = 0, batches = made, savedMs = 0 } = timings.speculation ?? {};
      const batch = { batchTokens: made / batches, batchSize: 1 + drafted / batches };
      const speed = (1000 * made) / generatedMs;
      return { text, speed, drafted, accepted, generatedMs, savedMs, ...batch };
    },
  });
  const [plain, fast] = samples as [Fast[], Fast[]];
  const speedOf = ({ speed }: Fast): number => speed;
  type Fast = (typeof samples)[number][number];
  const of = (pick: (run: Fast) => number) => median(fast.map(pick));
  return {
    case: one.name,
    ratio: medianRatio(fast.map(speedOf), plain.map(speedOf)),
    batchTokens: of(({ batchTokens }) => batchTokens),
    batchSize: of(({ batchSize }) => batchSize),
    predicted: median(plain.map(({ generatedMs: ms }, i) => ms / (ms - fast[i]!.savedMs))),
    tokensPerSecond: of(speedOf),
    plainTokensPerSecond: median(plain.map(speedOf)),
    drafted: of(({ drafted }) => drafted),
    accepted: of(({ accepted }) => accepted),
    isSame: fast.every(({ text }, round) => text === plain[round]!.text),
    load: load(),
  };
}

function chosenCases({ cases: names }: Given): readonly Case[] {
  const unknown = names?.find((name) => !cases.some((one) => one.name === name));
  if (unknown !== undefined) {
    const known = cases.map(({ name }) => name).join(", ");
    throw new UsageError(`--cases: got "${unknown}", expected some of ${known}`);
  }
  return names ? cases.filter(({ name }) => names.includes(name)) : cases;
}

async function promptOf(model: Model, { asked, prompt }: Case): Promise<string> {
  if (!model.info.hasChatTemplate) return prompt;
  return (await model.applyTemplate([{ role: "user", content: asked }])).text;
}

function lineText(line: Line): string {
  const { ratio, tokensPerSecond, plainTokensPerSecond, drafted, accepted, predicted } = line;
  const { batchTokens } = line;
  const parts = [
    `${line.model}, ${line.draft}, ${line.case}, ${line.threads} threads: ${ratio.toFixed(2)}x`,
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
