// node-llama-cpp's own speculation on the cases of bench/speculate.ts, as a ratio to its own speed without: prompt lookup
// (InputLookupTokenPredictor), or a draft model (DraftSequenceTokenPredictor), with their default options.

import { basename } from "node:path";
import { measure, median, medianRatio } from "../src/base/measure.ts";
import { load } from "./harness.ts";
import { type LlamaSequence, loadLlama, loadPackage } from "./llama-cpp.ts";
import type { Line } from "./speculate.ts";
import type { Case } from "./speculate-cases.ts";

export interface PeerRequest {
  readonly path: string;
  readonly draft: string | undefined;
  readonly threads: number;
  readonly tokens: number;
  readonly rounds: number;
  /** Their prompts are what the model is given: with its chat template, if it has one. */
  readonly cases: readonly Pick<Case, "name" | "prompt">[];
}

const CONTEXT = 1024;

export async function peerLines(request: PeerRequest, onLine: (line: Line) => void): Promise<void> {
  const { path, threads, tokens, rounds, cases } = request;
  const peer = await loadPackage();
  const llama = await loadLlama();
  const sizes = { contextSize: CONTEXT, batchSize: CONTEXT, threads };
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ ...sizes, sequences: 2 });
  const plainSequence = context.getSequence();
  const draftModel = request.draft && (await llama.loadModel({ modelPath: request.draft }));
  const draftContext = draftModel && (await draftModel.createContext(sizes));
  const lookup = new peer.InputLookupTokenPredictor();
  const tokenPredictor = draftContext
    ? new peer.DraftSequenceTokenPredictor(draftContext.getSequence())
    : lookup;
  const fastSequence = context.getSequence({ tokenPredictor });
  const run = async (sequence: LlamaSequence, prompt: readonly number[]) => {
    await sequence.clearHistory();
    const all = sequence.evaluate([...prompt], { temperature: 0, yieldEogToken: true });
    const found: number[] = [];
    const next = async () => {
      const { value, done } = await all.next();
      if (!done) found.push(value);
    };
    await next();
    const started = performance.now();
    for (let i = 0; i < tokens; i++) await next();
    const ms = performance.now() - started;
    await all.return();
    return { ids: `${found}`, speed: (1000 * tokens) / ms };
  };
  for (const one of cases) {
    const prompt = model.tokenize(one.prompt, true);
    lookup.updateInputTokens(prompt);
    const { validated, refuted } = fastSequence.tokenPredictions;
    await run(plainSequence, prompt);
    const { samples } = await measure({
      contestants: [plainSequence, fastSequence],
      rounds,
      run: (sequence) => run(sequence, prompt),
    });
    const [plain, fast] = samples.map((runs) => runs.map(({ speed }) => speed));
    const ids = samples.flatMap((runs) => runs.map((one) => one.ids));
    const accepted = fastSequence.tokenPredictions.validated - validated;
    onLine({
      model: basename(path),
      draft: `node-llama-cpp, ${request.draft ? basename(request.draft) : "lookup"}`,
      case: one.name,
      threads,
      ratio: medianRatio(fast!, plain!),
      tokensPerSecond: median(fast!),
      plainTokensPerSecond: median(plain!),
      drafted: accepted + fastSequence.tokenPredictions.refuted - refuted,
      accepted,
      isSame: ids.every((one) => one === ids[0]),
      load: load(),
    });
  }
  await context.dispose();
  await model.dispose();
}
