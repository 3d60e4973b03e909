// llama.cpp on the requests of bench/batch.ts: node-llama-cpp with as many sequences in one context, which it batches itself.

import { type BatchRequest, inLanes } from "./batch-requests.ts";
import { sum, timed } from "./harness.ts";
import { loadLlama } from "./llama-cpp.ts";

/** Tokens per second, of prompts and answers. */
export async function peerSpeed(
  path: string,
  threads: number,
  sequences: number,
  requests: readonly BatchRequest[],
): Promise<number> {
  const llama = await loadLlama();
  const model = await llama.loadModel({ modelPath: path });
  const longest = Math.max(...requests.map(({ prompt, tokens }) => prompt.length + tokens));
  const contextSize = 32 * Math.ceil((longest + 1) / 32);
  const context = await model.createContext({ contextSize, batchSize: 512, threads, sequences });
  const free = Array.from({ length: sequences }, () => context.getSequence());
  const run = async ({ prompt, tokens }: BatchRequest): Promise<boolean> => {
    const sequence = free.pop()!;
    await sequence.clearHistory();
    const answer = sequence.evaluate([...prompt], { temperature: 0, yieldEogToken: true });
    for (let i = 0; i < tokens; i++) if ((await answer.next()).done) break;
    await answer.return();
    free.push(sequence);
    return true;
  };
  await run(requests[0]!);
  const { ms } = await timed(() => inLanes(requests, sequences, run));
  await context.dispose();
  await model.dispose();
  return (1000 * sum(requests.map((one) => one.prompt.length + one.tokens))) / ms;
}
