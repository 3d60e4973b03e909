// Requests to a model whose device is lost in the middle of a batch, of a library and of a server: who was running gets an error that
// says so, and whoever comes next gets the text that they would have had.

import { Worker } from "node:worker_threads";
import { expect } from "vitest";
import type { OpenRequest } from "../../src/engine/protocol.ts";
import { DeviceLostError, type Model, type OpenOptions } from "../../src/index.ts";
import { openWith } from "../../src/open.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { startServer } from "../../src/server/serve.ts";
import { threadOf } from "./thread-of.ts";

const words = "please lose it";

/** Opens a model on this backend: "losing", which computes nothing on a device, or "webgpu". */
async function openLosing(
  path: string,
  backend: string,
  options: Pick<OpenOptions, "restart">,
): Promise<Model> {
  const request: OpenRequest = {
    spec: { kind: "path", path },
    contextSize: 256,
    kvType: "f16",
    threads: 1,
    level: undefined,
    native: false,
    backend,
    gpuLayers: undefined,
    exact: false,
    chatTemplate: undefined,
    profile: false,
    tuned: false,
    parallel: 4,
  };
  return await openWith(
    {
      startThread: (entry) =>
        entry === "engine" ? losingThread() : nodePlatform.startThread(entry),
    },
    request,
    options,
  );
}

function losingThread(): EngineThread {
  const worker = new Worker(new URL("./losing-thread.ts", import.meta.url), {
    workerData: { words },
  });
  return threadOf(worker);
}

const sampling = { temperature: 0, maxTokens: 12, ignoreEos: true };

/** Without `restart`: the next request opens the model again. */
export async function loseInLibrary(path: string, backend: string): Promise<void> {
  await using model = await openLosing(path, backend, {});
  const text = (await model.generate("the cat", sampling).result).text;
  const running = [`${words} the cat`, "the cat sat", "sat the"].map(
    (prompt) => model.generate(prompt, sampling).result,
  );
  for (const ended of await Promise.allSettled(running)) {
    expect(ended).toMatchObject({ status: "rejected", reason: { code: "worker" } });
    const { reason } = ended as PromiseRejectedResult;
    expect(reason).toBeInstanceOf(DeviceLostError);
    expect((reason as Error).message).toMatch(/^the GPU ".*" was lost \(/);
  }
  expect((await model.generate("the cat", sampling).result).text).toBe(text);
  expect(await model.health()).toMatchObject({ status: "ok", restarts: 1 });
}

/** With `restart`, as the server opens models. */
export async function loseInServer(path: string, backend: string): Promise<void> {
  await using model = await openLosing(path, backend, { restart: true });
  const server = await startServer({
    models: { tiny: model },
    version: "test",
    port: 0,
    graceMs: 0,
  });
  const ask = async (prompt: string, stream: boolean) => {
    const body = { prompt, max_tokens: 12, temperature: 0, ignore_eos: true, stream };
    const response = await fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  };
  const answerOf = ({ text }: { text: string }) =>
    (JSON.parse(text) as { choices: { text: string }[] }).choices[0]!.text;
  try {
    const before = answerOf(await ask("the cat", false));
    const [lost, streamed] = await Promise.all([
      ask(`${words} the cat`, false),
      ask("the cat sat", true),
    ]);
    expect(lost).toMatchObject({ status: 503, text: expect.stringContaining('"gpu_lost"') });
    expect(streamed).toMatchObject({ status: 200, text: expect.stringContaining('"gpu_lost"') });
    const after = await ask("the cat", false);
    expect(after.status).toBe(200);
    expect(answerOf(after)).toBe(before);
  } finally {
    await server.stop();
  }
}
