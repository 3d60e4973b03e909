// lantern run: continues a prompt and streams the text; timings at the end, or all of it as one JSON object.

import { defaultModel } from "../../catalog/catalog.ts";
import type { Generation, GenerationResult, Model, ModelInfo } from "../../index.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { endNotes } from "../end-notes.ts";
import {
  addModelFlags,
  addPromptFlags,
  addSamplingFlags,
  generateOptions,
  type ModelFlags,
  modelOf,
  type PromptFlags,
  promptOf,
  type SamplingFlags,
} from "../flags.ts";
import { interruptExitCode, interruptible } from "../interrupt.ts";
import { openModel } from "../load-model.ts";
import { timingsJson, timingsText } from "../timings.ts";

interface RunFlags extends ModelFlags, PromptFlags, SamplingFlags {
  json?: boolean;
  displayPrompt: boolean;
}

const defaultPrompt = "Once upon a time";

export const runCommand: CliCommand = {
  name: "run",
  summary: "continue a text",
  examples: [
    'lantern run -p "Once upon a time, a small dragon" -n 100',
    "lantern run -m tinyllama-chat -f notes.txt --temp 0 --json",
  ],
  define(command, context) {
    addPromptFlags(addModelFlags(command, defaultModel), defaultPrompt);
    addSamplingFlags(command)
      .option("--no-display-prompt", "show only what is generated, not the prompt before it")
      .option("--json", "print one JSON object instead of text")
      .action((flags: RunFlags) => run(flags, context));
  },
};

async function run(flags: RunFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  using interrupt = interruptible(terminal);
  const prompt = await promptOf(flags, defaultPrompt, terminal);
  await using model = await openModel(modelOf(flags), flags, context, interrupt.signal);
  const generation = startGeneration(model, prompt, flags, interrupt.signal);
  if (flags.json) terminal.out(`${JSON.stringify(resultJson(await generation.result))}\n`);
  else await streamText(generation, flags.displayPrompt ? prompt : "", model.info, context);
  if (interrupt.signal.aborted) context.exitCode = interruptExitCode;
}

function startGeneration(
  model: Model,
  prompt: string,
  flags: RunFlags,
  signal: AbortSignal,
): Generation {
  return model.generate(prompt, { ...generateOptions(flags), signal });
}

async function streamText(
  generation: Generation,
  prompt: string,
  info: ModelInfo,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const { out, err } = context.color();
  terminal.out(out.dim(prompt));
  try {
    for await (const piece of generation) terminal.out(piece);
  } finally {
    terminal.out("\n"); // also before the sentence about an error
  }
  const { stopReason, timings } = await generation.result;
  terminal.err(`\n${err.dim(timingsText(timings))}`);
  const note = endNotes[stopReason]?.(info);
  if (note) terminal.err(err.dim(`${note}\n`));
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
