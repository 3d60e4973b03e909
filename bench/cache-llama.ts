// The part of npm run bench:cache that asks llama-server for the same: it computes a prompt, saves its slot, is started again, restores
// the slot and goes on.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { timed, withFolder } from "./harness.ts";

export interface LlamaSlots {
  computedMs: number;
  saveMs: number;
  restoreMs: number;
  /** From the request that restores to the first token. */
  firstTokenMs: number;
  fileBytes: number;
  cachedTokens: number;
}

export interface LlamaOptions {
  server: string;
  model: string;
  contextSize: number;
  threads: number | undefined;
  tokens: readonly number[];
  /** Called between saving and restoring, with the files that were written. */
  between(files: readonly string[]): void;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

type Answer = Record<string, never> & {
  timings: {
    prompt_ms: number;
    predicted_ms: number;
    cache_n: number;
    save_ms: number;
    restore_ms: number;
  };
};

async function withServer<T>(
  { server, model, contextSize, threads }: LlamaOptions,
  folder: string,
  work: (post: (path: string, body: object) => Promise<Answer>) => Promise<T>,
): Promise<T> {
  const port = await freePort();
  const flags = ["-m", model, "-c", `${contextSize}`, "-np", "1", "--port", `${port}`];
  const more = ["--slot-save-path", `${folder}/`, ...(threads ? ["-t", `${threads}`] : [])];
  const child = spawn(server, [...flags, ...more], { stdio: "ignore" });
  const url = `http://127.0.0.1:${port}`;
  const closed = once(child, "close");
  try {
    for (let tries = 0; ; tries++) {
      const response = await fetch(`${url}/health`).catch(() => undefined);
      if (response?.ok) break;
      if (tries > 600 || child.exitCode !== null) throw new Error("llama-server did not start");
      await pause(200);
    }
    return await work(async (path, body) => {
      const response = await fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(1_800_000),
      });
      if (!response.ok) throw new Error(`llama-server: ${path}: ${await response.text()}`);
      return (await response.json()) as Answer;
    });
  } finally {
    child.kill("SIGKILL");
    await closed;
  }
}

export async function llamaSlots(options: LlamaOptions): Promise<LlamaSlots> {
  const ask = { n_predict: 1, temperature: 0, cache_prompt: true, id_slot: 0 };
  const filename = "slot.bin";
  return await withFolder(async (folder) => {
    const before = await withServer(options, folder, async (post) => {
      const { timings } = await post("/completion", { ...ask, prompt: options.tokens });
      const saved = await post("/slots/0?action=save", { filename });
      return { computedMs: timings.prompt_ms, saveMs: saved.timings.save_ms };
    });
    const file = join(folder, filename);
    options.between([file]);
    return await withServer(options, folder, async (post) => {
      const { result, ms } = await timed(async () => {
        const { timings: restored } = await post("/slots/0?action=restore", { filename });
        const { timings } = await post("/completion", { ...ask, prompt: [...options.tokens, 11] });
        return { restoreMs: restored.restore_ms, cachedTokens: timings.cache_n };
      });
      return { ...before, ...result, firstTokenMs: ms, fileBytes: statSync(file).size };
    });
  });
}
