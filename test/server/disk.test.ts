// A server whose model reads weights from disk, and its file is cut off while a text is generated: the client that reads gets an
// error and no half of an answer that looks whole, later ones a status and a sentence, and another model of the server answers on.

import { truncateSync } from "node:fs";
import { expect, test } from "vitest";
import { startServer } from "../../apps/server/serve.ts";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

const shape = { layers: 12, feedForward: 2048, weightType: "q8_0" } as const;

test.each([
  { name: "weights", ...shape, part: 0.5 },
  {
    name: "experts",
    ...{ ...shape, layers: 6, feedForward: 1024, architecture: "qwen3moe", expertType: "q8_0" },
    part: 0.75,
  },
])("$name on disk: the file is cut off in the middle of a text", async ({ part, ...options }) => {
  const file = await tinyFile(options);
  const other = await tinyFile({ name: "other" });
  const settings = { contextSize: 512, threads: 1, tuned: false } as const;
  const whole = await open(file.path, settings);
  const { weightBytes, kvBytes, workBytes } = (await whole.status()).memory;
  await whole.dispose();
  const ramBytes = Math.floor(kvBytes + workBytes + part * weightBytes);
  const model = await open(file.path, { ...settings, ramBytes });
  const beside = await open(other.path, { threads: 1 });
  const log: string[] = [];
  const server = await startServer({
    models: { big: model, small: beside },
    version: "test",
    port: 0,
    graceMs: 200,
    token: false,
    log: (line) => log.push(line),
  });
  try {
    expect(model.info.disk!.diskBytes).toBeGreaterThan(0);
    const url = `${server.url}/v1/completions`;
    const ask = { model: "big", prompt: "the cat", max_tokens: 400, temperature: 0 };
    const answer = await post(url, { ...ask, stream: true, ignore_eos: true });
    expect(answer.status).toBe(200);
    let text = "";
    for await (const bytes of answer.body!) {
      if (text === "") truncateSync(file.path, 100_000);
      text += new TextDecoder().decode(bytes);
    }
    expect(text).toContain('"error"');
    expect(text).toContain("the model failed: source");
    expect(text).not.toContain('"finish_reason":"length"');
    const later = await post(url, ask);
    expect(later.status).toBe(500);
    expect(log.join("\n")).toMatch(/it had \d+ bytes and has 100000 now. Open the model again/);
    expect((await post(url, { ...ask, model: "small" })).status).toBe(200);
    expect((await fetch(`${server.url}/health`)).status).toBe(200);
  } finally {
    await server.stop();
    await model.dispose();
    await beside.dispose();
    file.remove();
    other.remove();
  }
});
