// A draft model whose drafts are right with a given probability, whatever its weights are: made-up models of a real size have
// real costs, but no acceptance. The drafter knows the text from a run without speculation; it lets the draft model draft, so that its
// time is spent, and then proposes the true token with that probability, or a wrong one.
//
// Measured and predicted by depth. The prediction has the tokens of an average round, about 1 + a + ... + a^d of them, in the time of
// a batch of d + 1 tokens, by the median of what such batches took, and of d drafts, by their mean. The tokens are those of the runs themselves: in
// a few hundred rounds, chance alone would differ by some percent from the formula.

import { basename } from "node:path";
import { measure, median, medianRatio } from "../src/base/measure.ts";
import { kvDTypeOf } from "../src/dtypes/kv-types.ts";
import { Engine } from "../src/engine/engine.ts";
import { generate, type RunControl } from "../src/engine/generator.ts";
import { DraftModel } from "../src/engine/speculate/draft-model.ts";
import type { Drafter, DrafterKind } from "../src/engine/speculate/drafter.ts";
import { openModelFile } from "../src/formats/open-model-file.ts";
import { chooseBackend } from "../src/load/choose-backend.ts";
import { templateOf, tokenizerOf } from "../src/load/compose.ts";
import { chooseOptLevel } from "../src/machine/native.ts";
import { currentPlatform } from "../src/platform/current.ts";
import { Random } from "../test/support/random.ts";
import { load as loadAverage, sum } from "./harness.ts";
import type { Line } from "./speculate.ts";

export interface ForcedRequest {
  readonly path: string;
  readonly draft: string;
  readonly threads: number;
  readonly draftThreads: number | undefined;
  readonly tokens: number;
  readonly rounds: number;
  readonly acceptance: number;
  readonly depths: readonly number[];
  /** Of both models; undefined: the processor. */
  readonly backend: string | undefined;
}

const CONTEXT = 1024;

/** The engine on this thread: a drafter of our own cannot be sent to another. */
async function load(
  path: string,
  threads: number,
  backendName: string | undefined,
): Promise<Engine> {
  const platform = await currentPlatform();
  const file = await openModelFile(await platform.openModelSource(platform.describeSource(path)));
  const request = {
    ...(await chooseOptLevel({ level: undefined }, platform)),
    threads,
    startThread: () => platform.startThread("compute"),
  };
  const choice = { backend: backendName, gpuLayers: backendName === undefined ? 0 : undefined };
  const { backend } = await chooseBackend(choice, request, platform);
  const tokenizer = tokenizerOf(file);
  const parts = {
    name: file.name,
    format: file.format,
    metadata: file.metadata,
    tensors: file.tensors,
    readTensor: (name: string, target: Uint8Array, at?: number) =>
      file.readTensor(file.tensors.get(name)!, target, at),
    tokenizer,
    template: templateOf(undefined, file.metadata, tokenizer),
    backend,
  };
  const options = { contextSize: CONTEXT, kvType: kvDTypeOf("f16") };
  const engine = await Engine.load(parts, options, { progress: () => {}, check: () => {} });
  await file.close();
  return engine;
}

/** What drafting took: where vocabularies differ, a token takes several of the draft model's. */
interface DraftTimes {
  ms: number;
  drafts: number;
}

/** Pays for the drafts of `model`, and proposes `text` with errors. */
function forced(
  model: DraftModel,
  text: readonly number[],
  acceptance: number,
  times: DraftTimes,
): DrafterKind {
  const random = new Random(1); // the same errors in every run
  return {
    name: "forced",
    start: (prompt, most): Drafter => {
      const inner = model.start(prompt, most);
      let done = 0;
      return {
        name: "forced",
        accept: (token) => {
          done++;
          inner.accept(token);
        },
        chance: () => acceptance,
        draftMs: (count) => inner.draftMs(count),
        draft: async (limit, out) => {
          const since = performance.now();
          await inner.draft(limit, out);
          times.ms += performance.now() - since;
          times.drafts++;
          const count = Math.min(limit, text.length - done);
          for (let i = 0; i < count; i++) {
            const token = text[done + i]!;
            out[i] = random.unit() < acceptance ? token : token === 0 ? 1 : token - 1;
          }
          return Math.max(0, count);
        },
        verified: () => {},
        dispose: () => inner.dispose(),
      };
    },
  };
}

export async function forcedLines(
  request: ForcedRequest,
  onLine: (line: Line) => void,
): Promise<void> {
  const { path, draft, threads, tokens, rounds, acceptance, depths, backend } = request;
  const target = await load(path, threads, backend);
  const small = await load(draft, request.draftThreads || threads, backend);
  const model = new DraftModel(target, small, { endsEarly: false });
  const { yieldThread, now } = await currentPlatform();
  const control: RunControl = { aborted: false, yieldThread, now };
  const prompt = Array.from({ length: 32 }, (_, i) => 100 + 7 * i);
  const plainRun = { temperature: 0, maxTokens: tokens, ignoreEos: true, speculate: false };
  const run = async (drafters: readonly DrafterKind[], depth: number) => {
    const options = depth > 0 ? { ...plainRun, speculate: { maxDepth: depth } } : plainRun;
    const asked = { tokens: prompt, options, ...(depth > 0 && { drafters }) };
    const { timings, tokenIds } = await generate(target, asked, control, () => {});
    const { generatedMs, generatedTokens, speculation } = timings;
    const { drafted = 0, accepted = 0, draftedBatches = 0 } = speculation ?? {};
    const ms = generatedMs / generatedTokens;
    const batches = speculation?.batches ?? generatedTokens;
    return { tokenIds, ms, drafted, accepted, draftedBatches, batches, generatedTokens };
  };
  const known = (await run([], 0)).tokenIds;
  for (const depth of depths) {
    const times: DraftTimes = { ms: 0, drafts: 0 };
    const drafters = [forced(model, known, acceptance, times)];
    await run(drafters, depth);
    Object.assign(times, { ms: 0, drafts: 0 });
    const { samples } = await measure({
      contestants: [() => run([], 0), () => run(drafters, depth)],
      rounds,
      run: (one) => one(),
    });
    const [plainMs, fastMs] = samples.map((runs) => runs.map(({ ms }) => ms)) as [
      number[],
      number[],
    ];
    const fast = samples[1]!;
    const all = (pick: (one: (typeof fast)[number]) => number) => sum(fast.map(pick));
    const drafted = all((one) => one.drafted);
    const accepted = all((one) => one.accepted);
    const batches = all((one) => one.batches);
    const kept = 1 + accepted / all((one) => one.draftedBatches);
    onLine({
      model: basename(path),
      draft: `${basename(draft)}, forced ${acceptance}`,
      case: `depth ${depth}`,
      threads,
      ratio: medianRatio(plainMs, fastMs),
      tokensPerSecond: 1000 / median(fastMs),
      plainTokensPerSecond: 1000 / median(plainMs),
      drafted,
      accepted,
      batchTokens: all((one) => one.generatedTokens) / batches,
      batchSize: 1 + drafted / batches,
      predicted: predictedGain(target, kept, depth, times.ms / times.drafts, median(plainMs)),
      costs: {
        plain: target.costs.msOf(1),
        batch: target.costs.msOf(depth + 1),
        draft: times.ms / times.drafts / depth,
      },
      isSame: samples.flat().every(({ tokenIds }) => `${tokenIds}` === `${known}`),
      load: loadAverage(),
    });
  }
  target.dispose();
  model.dispose();
  await target.ended();
  await model.ended();
}

/** `kept`: tokens of a round. `draftMs`: of its drafts. `plainMs`: of a token without drafts; what is not its batch (sampling, text) takes as long with them. */
function predictedGain(
  target: Engine,
  kept: number,
  depth: number,
  draftMs: number,
  plainMs: number,
): number {
  const rest = Math.max(0, plainMs - target.costs.msOf(1));
  const round = target.costs.msOf(depth + 1) + draftMs;
  return (kept * plainMs) / (round + kept * rest);
}
