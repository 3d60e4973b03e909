// Users of bench/host.ts, on a thread of their own: all ask at the same moment, and count the events that come back.

import { Agent, request } from "node:http";
import { parentPort, workerData } from "node:worker_threads";

export interface UsersPlan {
  readonly users: number;
  readonly rounds: number;
  readonly promptTokens: number;
  /** Of the prompts: others than before, so that nothing of them is known. */
  readonly seed: number;
  /** Of the request, besides its prompt. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface UsersSeen {
  tokens: number;
  ms: number;
  /** Of each answer, in ms. */
  firsts: number[];
}

const agent = new Agent({ keepAlive: true, maxSockets: 1024 });
const { url, plan } = workerData as { url: string; plan: UsersPlan };

let { seed } = plan;
function promptOf(count: number): number[] {
  return Array.from({ length: count }, () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return 300 + (seed % 20000);
  });
}

async function ask(prompt: readonly number[], seen: UsersSeen): Promise<void> {
  const started = performance.now();
  const body = JSON.stringify({ ...plan.fields, prompt, stream: true });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const sent = request(
    `${url}/v1/completions`,
    { agent, method: "POST", headers: { "content-type": "application/json" } },
    (response) => {
      let isFirst = true;
      let all = 0;
      response.on("data", (piece: Buffer) => {
        if (isFirst) seen.firsts.push(performance.now() - started);
        isFirst = false;
        for (let at = piece.indexOf("data: "); at >= 0; at = piece.indexOf("data: ", at + 6)) all++;
      });
      response.on("end", () => {
        // The last two are the end and [DONE].
        if (response.statusCode === 200) seen.tokens += all - 2;
        else reject(new Error(`${url} answered ${response.statusCode}`));
        resolve();
      });
    },
  );
  sent.on("error", reject);
  sent.end(body);
  await promise;
}

const seen: UsersSeen = { tokens: 0, ms: 0, firsts: [] };
for (let round = 0; round < plan.rounds; round++) {
  const prompts = Array.from({ length: plan.users }, () => promptOf(plan.promptTokens));
  const started = performance.now();
  await Promise.all(prompts.map((prompt) => ask(prompt, seen)));
  seen.ms += performance.now() - started;
}
agent.destroy();
parentPort!.postMessage(seen);
