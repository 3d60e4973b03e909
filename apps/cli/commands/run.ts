// lantern run: continues a prompt and streams the text; timings at the end, or all of it as one JSON object.

import { Option } from "commander";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import type { Generation, GenerationResult, ModelInfo, Timings } from "../../../src/index.ts";
import { promptCache } from "../cache-explained.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { shiftNote } from "../context-flags.ts";
import { endNotes } from "../end-notes.ts";
import { noTuneOption, type TuneFlag } from "../first-tune.ts";
import { numberListFlag } from "../flag-values.ts";
import {
  addModelFlags,
  addPromptFlags,
  addSamplingFlags,
  addStateCacheFlags,
  generateOptions,
  type ModelFlags,
  modelOf,
  type PromptFlags,
  promptOf,
  type SamplingFlags,
  tuneFileOption,
} from "../flags.ts";
import { grammarOptions, warnOfGrammar } from "../grammar-flags.ts";
import { interruptExitCode, interruptible } from "../interrupt.ts";
import { checkGenerates, openModel } from "../load-model.ts";
import { type LimitFlags, limitHint, limitOption, timingsWithLimits } from "../machine-limits.ts";
import { profileJson, profileOption, profileText, takeProfile } from "../profile.ts";
import { speculationNote } from "../speculate-flags.ts";
import { outPlain } from "../text.ts";
import { timingsJson, timingsText } from "../timings.ts";

interface RunFlags extends ModelFlags, PromptFlags, SamplingFlags, LimitFlags, TuneFlag {
  tokens?: number[];
  json?: boolean;
  displayPrompt: boolean;
  parseSpecial: boolean;
}

const defaultPrompt = "Once upon a time";

export const runCommand: CommandBody = {
  examples: [
    'lantern run -p "Once upon a time, a small dragon" -n 100',
    "lantern run -m tinyllama-chat -f notes.txt --temp 0 --json",
    'lantern run -m tinyllama-chat -p \'A person as JSON: \' -j \'{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}\'',
    "lantern run -n 100 --profile trace.json",
  ],
  define(command, context) {
    addPromptFlags(
      addStateCacheFlags(addModelFlags(command, defaultModel, { usesGpu: true }), false),
      defaultPrompt,
    );
    addSamplingFlags(command)
      .addOption(tuneFileOption())
      .addOption(
        new Option(
          "--tokens <n,...>",
          "with --explain: estimate every kernel for these numbers of tokens, measured or not (default: 1 and a full batch)",
        )
          .argParser(numberListFlag({ integer: true, min: 1, max: 1 << 20 }))
          .implies({ explain: true }),
      )
      .addOption(noTuneOption())
      .option("--no-display-prompt", "show only the generated text, without the prompt")
      .option(
        "--no-parse-special",
        "treat special tokens in the prompt, such as <|im_start|>, as plain text",
      )
      .option("--json", "print one JSON object")
      .addOption(limitOption())
      .addOption(profileOption())
      .action((flags: RunFlags) => {
        const { tokens } = flags;
        return run({ ...flags, ...(tokens && { explainTokens: tokens }) }, context);
      });
  },
};

async function run(flags: RunFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  using interrupt = interruptible(terminal);
  const prompt = await promptOf(flags, defaultPrompt, terminal);
  const grammar = await grammarOptions(flags, terminal);
  const options = { ...generateOptions(flags), ...grammar };
  await using model = await openModel(modelOf(flags), flags, context, interrupt.signal);
  checkGenerates("run", modelOf(flags), model);
  await warnOfGrammar(model, grammar, context.log);
  const generation = model.generate(prompt, {
    ...options,
    parseSpecial: flags.parseSpecial,
    signal: interrupt.signal,
  });
  if (flags.json) {
    const result = await generation.result;
    const timings = await shownTimings(result, flags, model.info, context);
    const profile = await takeProfile(model, flags, context);
    const json = resultJson({ ...result, timings });
    terminal.out(
      `${JSON.stringify(profile ? { ...json, profile: profileJson(profile) } : json)}\n`,
    );
  } else {
    await streamText(generation, flags.displayPrompt ? prompt : "", context);
    const result = await generation.result;
    await showTimings(result, flags, model.info, context);
    if (flags.explain) {
      context.asked(`\n${promptCache(result.timings, (await model.status()).cache)}`);
    }
    const profile = await takeProfile(model, flags, context);
    if (profile) context.asked(`\n${profileText(profile)}`);
  }
  if ((await generation.result).stopReason === "aborted") context.exitCode = interruptExitCode;
  else if (terminal.startInBackground) await tuneLater(flags, model.info, context);
}

/** The tune begins when this process has ended. */
async function tuneLater(flags: RunFlags, info: ModelInfo, context: CliContext): Promise<void> {
  const { tuneAfterwards } = await import("../background-tune.ts");
  await tuneAfterwards(modelOf(flags), flags, info, context);
}

async function streamText(
  generation: Generation,
  prompt: string,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  terminal.out(context.color().out.dim(prompt));
  try {
    for await (const piece of generation) outPlain(terminal, piece);
  } finally {
    terminal.out("\n"); // also before the sentence about an error
  }
}

async function shownTimings(
  { stopReason, timings }: GenerationResult,
  flags: RunFlags,
  info: ModelInfo,
  context: CliContext,
): Promise<Timings> {
  return await timingsWithLimits(timings, info, flags, context, stopReason === "aborted");
}

async function showTimings(
  result: GenerationResult,
  flags: RunFlags,
  info: ModelInfo,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const { err } = context.color();
  terminal.err("\n");
  const timings = await shownTimings(result, flags, info, context);
  terminal.err(err.dim(timingsText(timings)));
  const notes = [
    shiftNote(timings, info),
    speculationNote(timings),
    endNotes[result.stopReason]?.(info),
    limitHint(timings, info, flags, context),
  ];
  for (const note of notes) {
    if (note) terminal.err(err.dim(`${note}\n`));
  }
}

function resultJson(result: GenerationResult): object {
  return {
    prompt_tokens: result.promptTokenIds,
    tokens: result.tokenIds,
    text: result.text,
    stop_reason: result.stopReason,
    timings: timingsJson(result.timings),
  };
}
