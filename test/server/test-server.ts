// A real server on a free port, with the model that comes with the package: what the tests of this folder talk to.

import { type RunningServer, type StartOptions, startServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";

export const modelId = "stories15m";
export const prompt = "Once upon a time";

export interface TestServer {
  model: Model;
  server: RunningServer;
  /** What the server wrote to its log: bugs, and nothing else. */
  log: string[];
  close(): Promise<void>;
}

export async function testServer(options: Partial<StartOptions> = {}): Promise<TestServer> {
  const model = await open(modelId, { threads: 1, parallel: 8 });
  const log: string[] = [];
  const server = await serveModel(model, log, options);
  return {
    model,
    server,
    log,
    async close() {
      await server.stop();
      await model.dispose();
    },
  };
}

/** Another server on the same model. */
export async function serveModel(
  model: Model,
  log: string[],
  options: Partial<StartOptions> = {},
): Promise<RunningServer> {
  return await startServer({
    models: { [modelId]: model },
    version: "test",
    port: 0,
    graceMs: 200,
    token: false,
    log: (line) => log.push(line),
    ...options,
  });
}

export async function post(url: string, body: unknown, headers: object = {}): Promise<Response> {
  return await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

/** Waits until something is so; fails after a minute: on a busy machine, starting a server takes many seconds. */
export async function until(what: string, isSo: () => boolean): Promise<void> {
  for (let tries = 0; !isSo(); tries++) {
    if (tries > 6000) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
