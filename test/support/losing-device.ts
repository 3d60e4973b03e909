// Requests to a model whose device is lost in the middle of a batch, of a library and of a server: who was running gets an error that
// says so, and whoever comes next gets the text that they would have had.

import { Worker } from "node:worker_threads";
import { expect } from "vitest";
import { startServer } from "../../apps/server/serve.ts";
import { deviceLayers } from "../../src/engine/device-layers.ts";
import type { OpenRequest } from "../../src/engine/protocol.ts";
import { DeviceLostError, MemoryError, type Model, type OpenOptions } from "../../src/index.ts";
import { openWith } from "../../src/open.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { threadOf } from "./thread-of.ts";

const words = "please lose it";

/** Opens a model on this backend: "losing", which computes nothing on a device, or "webgpu". */
async function openLosing(
  path: string,
  backend: string,
  options: Pick<OpenOptions, "restart" | "onWarning">,
  limitFile?: string,
  changed: Partial<OpenRequest> = {},
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
    ...changed,
  };
  return await openWith(
    {
      startThread: (entry) =>
        entry === "engine" ? losingThread(limitFile) : nodePlatform.startThread(entry),
    },
    request,
    options,
  );
}

function losingThread(limitFile: string | undefined): EngineThread {
  const worker = new Worker(new URL("./losing-thread.ts", import.meta.url), {
    workerData: { words, limitFile },
  });
  return threadOf(worker);
}

/**
 * A device that has no memory left in the middle of an answer, of a backend or by a limit: the answer goes on with fewer layers there, and
 * so do others; nobody sees more of it than one line.
 */
export async function fillInLibrary(
  path: string,
  backend: string,
  limitFile?: string,
): Promise<void> {
  const prompts = [`${words} the cat`, "the cat sat", "sat the"];
  const wanted: string[] = [];
  {
    await using plain = await openLosing(path, "cpu", {});
    for (const prompt of prompts) wanted.push((await plain.generate(prompt, sampling).result).text);
  }
  const warnings: string[] = [];
  const onWarning = (warning: string) => void warnings.push(warning);
  await using model = await openLosing(path, backend, { onWarning }, limitFile);
  const onDevice = () => deviceLayers(model.info.backend.placement).layers;
  const before = onDevice();
  const running = prompts.map((prompt) => model.generate(prompt, sampling));
  let text = "";
  for await (const { text: part } of running[0]!.tokens()) text += part;
  expect(text).toBe(wanted[0]);
  const results = await Promise.all(running.map(({ result }) => result));
  expect(results.map((result) => result.text)).toEqual(wanted);
  expect(onDevice()).toBeLessThan(before);
  expect(warnings).toEqual([
    expect.stringMatching(
      /^the GPU ".*" ran out of memory \(.*\)\. The model was opened again with \d of its 3 layers on the GPU instead of 3, and running answers go on$/,
    ),
  ]);
  expect(model.info.warnings).toContain(warnings[0]);
  expect(await model.health()).toMatchObject({ status: "ok", restarts: 0 });
}

/** The same while it is loaded: a number of layers that was asked for is refused with one that was loaded, and "auto" takes that. */
export async function fillWhileLoading(path: string, limitFile: string): Promise<void> {
  const losing = (gpuLayers: OpenRequest["gpuLayers"]) => {
    const changed = { gpuLayers, chatTemplate: `{{ "${words}" }}` };
    return openLosing(path, "webgpu", {}, limitFile, changed);
  };
  const refused = await losing("all").catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(MemoryError);
  expect((refused as Error).message).toMatch(
    /^the GPU ".*" ran out of memory \(.*\)\. 2 of its 3 layers would fit: use `gpuLayers: 2` or `gpuLayers: "auto"`$/,
  );
  await using model = await losing("auto");
  expect(deviceLayers(model.info.backend.placement)).toEqual({ layers: 2, all: 3 });
  await using plain = await openLosing(path, "cpu", {});
  const textOf = async (one: Model) => (await one.generate("the cat", sampling).result).text;
  expect(await textOf(model)).toBe(await textOf(plain));
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
