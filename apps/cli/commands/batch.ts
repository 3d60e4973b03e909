// lantern batch: the requests of a JSONL file (OpenAI's format of batches), answered as fast as this machine can, into another. Answers
// are kept beside the output until all are there: an interrupted batch continues. And the batches of a running server.

import type { Command } from "commander";
import { pause } from "../../../src/base/backoff.ts";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import { AbortedError, type Model, UsageError } from "../../../src/index.ts";
import { batchFolder, createOutput, hashedInput } from "../../../src/platform/node-batch.ts";
import { packageVersion } from "../../../src/platform/node-cli.ts";
import { type Batch, endStates, type OutputLine } from "../../batch/batch.ts";
import { openLocalBatch, outputOf } from "../../batch/local-batch.ts";
import { BatchRunner } from "../../batch/runner.ts";
import { BatchStore } from "../../batch/store.ts";
import { batchPlace } from "../batch-place.ts";
import { defineServerBatches } from "../batch-server.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { numberFlag } from "../flag-values.ts";
import {
  addModelFlags,
  addSamplingFlags,
  generateOptions,
  type ModelFlags,
  modelOf,
  type SamplingFlags,
} from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { openModel } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { durationText, plural } from "../text.ts";

interface BatchFlags extends ModelFlags, SamplingFlags {
  output: string;
  parallel: number;
  restart?: boolean;
  json?: boolean;
}

/** Answers at a time: more sequences share each read of the weights, up to the point where arithmetic takes longer than reading. */
const defaultParallel = 32;

export const batchCommand: CommandBody = {
  examples: [
    "lantern batch requests.jsonl -o answers.jsonl -m tinyllama-chat",
    "lantern batch list --url http://127.0.0.1:8080",
  ],
  define(command, context) {
    const run = command
      .argument(
        "[input]",
        'a file with a request in each line: {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body"}',
      )
      .option("-o, --output <file>", "the file for the answers, in the order of the requests")
      .option(
        "--parallel <n>",
        "answers at a time",
        numberFlag({ integer: true, min: 1, max: 1024 }),
        defaultParallel,
      )
      .option("--restart", "forget what an earlier run with this output has answered")
      .option("--json", "print the numbers of the batch as one JSON object");
    addSamplingFlags(addModelFlags(run, defaultModel, { warmup: true, usesGpu: true })).action(
      (input: string | undefined, flags: BatchFlags) => answerFile(input, flags, context),
    );
    defineServerBatches(command as Command, context);
  },
};

async function answerFile(
  input: string | undefined,
  flags: BatchFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  if (input === undefined || flags.output === undefined) {
    const missing = input === undefined ? "no input file" : "no output file";
    throw new UsageError(
      `batch: got ${missing}, expected both: lantern batch requests.jsonl -o answers.jsonl`,
    );
  }
  using interrupt = interruptible(terminal);
  const source = await hashedInput(input, interrupt.signal);
  const output = await createOutput(flags.output); // errors are reported before the work
  let store: BatchStore | undefined;
  let folder: ReturnType<typeof batchFolder> | undefined;
  let isDone = false;
  try {
    folder = batchFolder(flags.output);
    if (flags.restart) await folder.remove();
    const started = terminal.now();
    const place = batchPlace(folder.database);
    store = new BatchStore(place.open(), place.folder);
    const { batch, isNew } = await openLocalBatch(store, source);
    if (!isNew) {
      const { done, failed } = batch.counts;
      terminal.err(
        `Going on with an earlier run: ${plural(done + failed, "request")} of ${batch.counts.total} ${done + failed === 1 ? "has its answer" : "have their answers"}. --restart begins again.\n`,
      );
    }
    const before = batch.counts;
    const ended = endStates.has(batch.state)
      ? batch
      : await answerAll(store, batch, flags, context, interrupt.signal);
    checkLines(ended, input);
    for await (const line of outputOf(store, ended)) {
      if (interrupt.signal.aborted) throw new AbortedError("the batch");
      await output.write(textOf(line));
    }
    await output.finish();
    isDone = true;
    const seconds = (terminal.now() - started) / 1000;
    const numbers = numbersOf(ended, before.done + before.failed, seconds);
    if (flags.json) terminal.out(`${JSON.stringify(numbers)}\n`);
    else terminal.err(summary(ended, numbers, flags.output));
    if (ended.counts.failed > 0) context.exitCode = 1;
  } finally {
    await output.discard();
    store?.close();
    if (isDone) await folder?.remove();
  }
}

/** Runs the batch to its end; Ctrl-C ends it earlier, and the finished answers stay. */
async function answerAll(
  store: BatchStore,
  { id }: Batch,
  flags: BatchFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<Batch> {
  const { terminal, log } = context;
  const name = modelOf(flags);
  await using model = await openModel(
    name,
    { ...flags, parallel: flags.parallel },
    context,
    signal,
  );
  const answerer = await routesOf(model, flags, context, signal);
  const runner = new BatchRunner(store, answerer, {
    log: (line) => log.error(`lantern: ${line}\n`),
  });
  const bar = new ShareBar(terminal, "answering");
  const started = terminal.now();
  const first = store.batch(id);
  runner.start();
  try {
    for (;;) {
      const batch = store.batch(id);
      if (endStates.has(batch.state)) return batch;
      if (signal.aborted) {
        terminal.err("\nWhat was answered is kept: the same command goes on.\n");
        throw new AbortedError("the batch");
      }
      showProgress(bar, batch, first, (terminal.now() - started) / 1000);
      await pause(100, signal);
    }
  } finally {
    bar.done();
    await runner.stop();
  }
}

async function routesOf(model: Model, flags: BatchFlags, { log }: CliContext, signal: AbortSignal) {
  const { localRoutes } = await import("../../server/serve.ts"); // other commands start without it
  return localRoutes(
    {
      models: { [model.info.name]: model },
      version: packageVersion(),
      parallel: flags.parallel,
      sampling: generateOptions(flags),
      log: (line) => log.error(`lantern: ${line}\n`),
    },
    signal,
  );
}

function showProgress(bar: ShareBar, batch: Batch, first: Batch, seconds: number): void {
  const { total, done, failed } = batch.counts;
  if (total === 0) return;
  const tokens = batch.usage.output - first.usage.output;
  const rate = seconds > 0 ? `${(tokens / seconds).toFixed(1)} tokens/s` : "";
  const wrong = failed > 0 ? `, ${failed} failed` : "";
  bar.update(
    (done + failed) / total,
    `${done + failed} of ${plural(total, "request")}${wrong}, ${rate}`,
  );
}

/** Refuses a file whose lines are wrong, with the first of them. */
function checkLines({ state, errors }: Batch, input: string): void {
  if (state !== "failed") return;
  const shown = errors.slice(0, 10).map(({ message }) => `  ${message}`);
  const more = errors.length > 10 ? `\n  and ${errors.length - 10} more` : "";
  throw new UsageError(`batch: "${input}" was not begun:\n${shown.join("\n")}${more}`);
}

interface Numbers {
  requests: number;
  answered: number;
  failed: number;
  /** The part of them that earlier runs answered. */
  earlier: number;
  inputTokens: number;
  cachedTokens: number;
  outputTokens: number;
  seconds: number;
}

function numbersOf({ counts, usage }: Batch, earlier: number, seconds: number): Numbers {
  return {
    ...{ requests: counts.total, answered: counts.done, failed: counts.failed, earlier },
    ...{ inputTokens: usage.input, cachedTokens: usage.cached, outputTokens: usage.output },
    seconds: Math.round(seconds * 1000) / 1000,
  };
}

function summary({ usage }: Batch, numbers: Numbers, output: string): string {
  const { requests, failed, earlier, seconds } = numbers;
  const wrong = failed > 0 ? ` (${failed} of them refused: see "response" in the file)` : "";
  const hours = `${durationText(seconds)}, ${(seconds / 3600).toFixed(3)} hours of this machine`;
  const rate = earlier === 0 ? `, ${(usage.output / seconds).toFixed(1)} generated tokens/s` : "";
  return `${plural(requests, "answer")}${wrong} in ${output}
  prompt     ${usage.input} tokens, ${usage.cached} of them not computed again
  generated  ${usage.output} tokens
  time       ${hours}${rate}
`;
}

const utf8 = new TextEncoder();

function textOf(line: OutputLine): Uint8Array {
  return utf8.encode(`${JSON.stringify(line)}\n`);
}
