// A gateway and workers over a real NATS: requests of OpenAI's client, routing by prefix and load, workers that die before and in the
// middle of an answer, and what is refused.

import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connectNats } from "../../apps/cluster/connect.ts";
import { type Beat, subjects } from "../../apps/cluster/messages.ts";
import { decode } from "../../apps/cluster/wire.ts";
import { type Model, open } from "../../src/index.ts";
import { all, until } from "../server/test-server.ts";
import { describeNats, type NatsCluster, startNats } from "../support/nats.ts";
import { tinyFile } from "../support/tiny-file.ts";
import {
  type TestGateway,
  type TestWorker,
  testGateway,
  testWorker,
  type WorkerParts,
} from "./support.ts";

describeNats("a cluster", () => {
  let nats: NatsCluster;
  let file: { path: string; remove(): void };
  /** Two engines of the same file, and one with another context. */
  let models: Model[];
  let own: Model;
  let gateway: TestGateway;
  let openai: OpenAI;
  const workers: TestWorker[] = [];
  const add = async (model: Model = models[0]!, parts: WorkerParts = {}): Promise<TestWorker> => {
    const worker = await testWorker(nats.urls, model, parts);
    workers.push(worker);
    return worker;
  };

  beforeAll(async () => {
    nats = await startNats();
    file = await tinyFile();
    const options = { threads: 1, tuned: false, parallel: 4 };
    models = await Promise.all(
      [512, 512, 64].map((contextSize) => open(file.path, { ...options, contextSize })),
    );
    own = models[0]!;
    gateway = await testGateway(nats.urls);
    openai = new OpenAI({ baseURL: `${gateway.server.url}/v1`, apiKey: "none", maxRetries: 0 });
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.close()));
    await gateway.workers(0);
  });
  afterAll(async () => {
    await gateway?.close();
    await Promise.all((models ?? []).map((model) => model.dispose()));
    nats?.close();
    file?.remove();
  });

  const messages = [{ role: "user" as const, content: "the cat" }];
  const chat = { model: "tiny", messages, max_tokens: 24, seed: 5, temperature: 1 };

  test("the text is that of the model itself, streamed or not; tokens, embeddings and errors, too", async () => {
    await add();
    await gateway.workers(1);
    const prompt = await own.applyTemplate(messages);
    const options = { maxTokens: 24, seed: 5, temperature: 1 };
    const expected = (await own.generate(prompt, options).result).text;
    const whole = await openai.chat.completions.create(chat);
    expect(whole.choices[0]!.message.content).toBe(expected);
    expect(whole.usage!.completion_tokens).toBeGreaterThan(4);
    const stream = await openai.chat.completions.create({ ...chat, stream: true });
    const parts = (await all(stream)).map(({ choices }) => choices[0]?.delta.content ?? "");
    expect(parts.join("")).toBe(expected);
    expect(parts.length).toBeGreaterThan(4);
    const { data } = await openai.embeddings.create({ model: "tiny", input: ["a", "the cat"] });
    const vectors = await own.embed(["a", "the cat"]);
    expect(data.map(({ embedding }) => embedding)).toEqual(
      vectors.map(({ vector }) => Array.from(vector)),
    );
    await expect(
      openai.chat.completions.create({ ...chat, model: "other", temperature: 9e9 }),
    ).rejects.toThrow(/temperature/);
    const { data: served } = await openai.models.list();
    expect(served.map(({ id }) => id)).toEqual(["tiny"]);
  });

  /** Two heartbeats of every worker: the second was sent after this was called. */
  async function heartbeats(): Promise<void> {
    const beats = new Map(workers.map(({ id }) => [id, 0]));
    const callback = (error: Error | null, message: { data: Uint8Array }): void => {
      if (error) throw error;
      const { worker } = decode(message.data) as Beat;
      beats.set(worker, (beats.get(worker) ?? 0) + 1);
    };
    const subscription = gateway.connection.subscribe(subjects.beats, { callback });
    await until("all have said what they hold", () => [...beats.values()].every((n) => n >= 2));
    subscription.unsubscribe();
  }

  test("a prompt goes to the worker that holds it, and others to whoever has less to do", async () => {
    await models[0]!.clearCache();
    await add(models[0], { capacity: 4 });
    await add(models[1], { capacity: 4 });
    await gateway.workers(2);
    const model = gateway.model();
    const prompts = ["the cat ".repeat(20), "a a e ".repeat(30)];
    const cached: number[] = [];
    for (const prompt of [...prompts, ...prompts, ...prompts]) {
      const { timings } = await model.generate(prompt, { maxTokens: 4, temperature: 0 }).result;
      cached.push(timings.cachedTokens);
      await heartbeats();
    }
    for (const count of cached.slice(0, 2)) expect(count).toBeLessThan(32);
    for (const count of cached.slice(2)) expect(count).toBeGreaterThanOrEqual(32);
    const most = new Map<string, number>();
    const looking = setInterval(() => {
      for (const { id, load } of gateway.gateway.workers.list()) {
        most.set(id, Math.max(load, most.get(id) ?? 0));
      }
    }, 1);
    // Again where one of them was not heard of for a moment: this process is all of them, and may have stood still.
    for (let tries = 0; tries < 8; tries++) {
      const many = Array.from({ length: 8 }, (_, i) =>
        model.generate(`${i} the cat`, { maxTokens: 200, ignoreEos: true, temperature: 0 }),
      );
      await Promise.all(many.map(({ result }) => result));
      if (most.size === 2 && Math.min(...most.values()) >= 2) break;
    }
    clearInterval(looking);
    // Answers are short: the first may have ended before the last began.
    expect(Math.min(...most.values()), JSON.stringify([...most])).toBeGreaterThanOrEqual(2);
  });

  test("a worker that dies in the middle of an answer: another goes on, and nothing comes twice", async () => {
    const ids = [await add(), await add(models[1])];
    await gateway.workers(2);
    const options = { maxTokens: 300, seed: 11, temperature: 1.3, ignoreEos: true };
    const prompt = "the cat sat";
    const expected = await own.generate(prompt, options).result;
    const generation = gateway.model().generate(prompt, options);
    const seen: number[] = [];
    let killed = false;
    for await (const { id } of generation.tokens()) {
      if (id >= 0) seen.push(id);
      if (seen.length < 20 || killed) continue;
      killed = true;
      const busy = gateway.gateway.workers.list().find(({ load }) => load > 0)!;
      await ids.find(({ id }) => id === busy.id)!.die();
    }
    const result = await generation.result;
    expect(killed).toBe(true);
    expect(seen).toEqual(expected.tokenIds);
    expect(result.text).toBe(expected.text);
    expect(result.timings.generatedTokens).toBe(expected.tokenIds.length);
  });

  test("a worker that is stopped in the middle of an answer: another goes on, and the answer is whole", async () => {
    const two = [await add(), await add(models[1])];
    await gateway.workers(2);
    const options = { maxTokens: 300, seed: 12, temperature: 1.3, ignoreEos: true };
    const expected = await own.generate("the cat sat", options).result;
    const generation = gateway.model().generate("the cat sat", options);
    let seen = 0;
    for await (const { id } of generation.tokens()) {
      if (id < 0 || ++seen !== 20) continue;
      const busy = gateway.gateway.workers.list().find(({ load }) => load > 0)!;
      const { worker } = two.find((one) => one.id === busy.id)!;
      await worker.stop(0); // its time is over at once; the connection stays, as it does while a process closes its model
    }
    const { text, stopReason } = await generation.result;
    expect(stopReason).toBe("length");
    expect(text).toBe(expected.text);
  });

  test("a worker that is gone before the first token: the request moves on", async () => {
    const first = await add();
    await gateway.workers(1);
    await first.die(); // its last heartbeat still counts
    const answer = gateway.model().generate("the cat", { maxTokens: 8, temperature: 0 });
    await add();
    const expected = await own.generate("the cat", { maxTokens: 8, temperature: 0 }).result;
    expect((await answer.result).text).toBe(expected.text);
  });

  test("a request that ends three workers is an error, and the fourth lives", async () => {
    const four: TestWorker[] = [];
    for (let i = 0; i < 4; i++) {
      four.push(await add(ending(own, () => void four[i]!.connection.close())));
    }
    await gateway.workers(4);
    const { result } = gateway.model().generate("the cat", { maxTokens: 8 });
    await expect(result).rejects.toThrow(/was given to 3 workers, and each of them was lost/);
    expect(four.filter(({ connection }) => connection.isClosed())).toHaveLength(3);
  });

  test("no worker: 503 after a while, and the server is still there", async () => {
    await expect(openai.chat.completions.create(chat)).rejects.toMatchObject({ status: 503 });
    const { status } = await fetch(`${gateway.server.url}/health`);
    expect(status).toBe(503);
  });

  test("a client that leaves stops the computation", async () => {
    await add();
    await gateway.workers(1);
    const abort = new AbortController();
    const options = { maxTokens: 400, ignoreEos: true, signal: abort.signal };
    const generation = gateway.model().generate("the cat", options);
    for await (const _ of generation.tokens()) {
      abort.abort();
      break;
    }
    await generation.result.catch(() => {});
    await expect.poll(async () => (await own.status()).running).toBe(0);
  });

  test("a worker with another model under the same name gets no requests, and everybody is told", async () => {
    await add();
    await gateway.workers(1);
    const other = await add(models[2]);
    expect(other.worker.fingerprint).not.toBe(workers[0]!.worker.fingerprint);
    const told = (): boolean =>
      gateway.log.some((line) => line.includes(`${other.id} has another model under the name`));
    await until("it is refused", told);
    const model = gateway.model();
    expect(await model.health()).toMatchObject({
      status: "ok",
      workers: expect.arrayContaining([
        { fingerprint: workers[0]!.worker.fingerprint, count: 1, isServed: true },
        { fingerprint: other.worker.fingerprint, count: 1, isServed: false },
      ]),
    });
    expect(model.info.warnings?.join()).toMatch(
      /workers with another model under the name "tiny": 1\./,
    );
    const metrics = await (await fetch(`${gateway.server.url}/metrics`)).text();
    expect(metrics).toMatch(/lantern_cluster_workers\{[^}]*served="false"[^}]*\} 1/);
  });

  test("an answer goes on with the same model only: not with one that only looks like it", async () => {
    const first = await add();
    await gateway.workers(1);
    let asked = 0;
    const other = await add(
      ending(models[1]!, () => asked++),
      { fingerprint: "f".repeat(32) },
    );
    await until("it is known", () => gateway.log.some((line) => line.includes(other.id)));
    const options = { maxTokens: 300, seed: 11, temperature: 1.3, ignoreEos: true };
    const generation = gateway.model().generate("the cat sat", options);
    generation.result.catch(() => {});
    const read = async (): Promise<void> => {
      let seen = 0;
      for await (const { id } of generation.tokens())
        if (id >= 0 && ++seen === 20) await first.die();
    };
    await expect(read()).rejects.toThrow(/no worker with the model "tiny"/);
    await expect(generation.result).rejects.toThrow(/no worker with the model "tiny"/);
    expect(asked).toBe(0);
  });

  test("a name stands for another model when the first has no worker left, and tabs give way to workers", async () => {
    const own = await testGateway(nats.urls, { times: { keep: 500 } });
    const expected = (await models[2]!.generate("the cat", { maxTokens: 4, temperature: 0 }).result)
      .text;
    const first = await add(models[0], { modelId: "moving" });
    await own.workers(1);
    expect(own.model("moving").info.contextSize).toBe(512);
    await add(models[2], { modelId: "moving" });
    await own.workers(2);
    await first.close();
    await until("it stands for the other", () => own.model("moving").info.contextSize === 64);
    const answer = own.model("moving").generate("the cat", { maxTokens: 4, temperature: 0 });
    expect((await answer.result).text).toBe(expected);
    expect(own.log.join("\n")).toMatch(/moving is the model \w{8} from now on, and was \w{8}/);
    await own.close();
    // At once, although the tab is still there.
    const tab = await add(models[0], { modelId: "taken", group: "tabs" });
    await gateway.workers(2);
    expect(gateway.model("taken").info.contextSize).toBe(512);
    await add(models[2], { modelId: "taken" });
    await until("the worker has it", () => gateway.model("taken").info.contextSize === 64);
    expect(gateway.gateway.workers.list().map(({ id }) => id)).toContain(tab.id);
  });

  test("no server, a wrong address, a message that is too large: errors say what to do", async () => {
    await expect(connectNats({ servers: ["nats://127.0.0.1:1"], name: "x" })).rejects.toThrow(
      /no connection to NATS at nats:\/\/127.0.0.1:1/,
    );
    await add();
    await gateway.workers(1);
    await expect(gateway.model().tokenize("a".repeat(2 ** 20))).rejects.toThrow(/max_payload/);
  });
});

/** The same model, but a generation ends its worker. */
function ending(model: Model, end: () => void): Model {
  return new Proxy(model, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "generate") return value.bind(target);
      return () => {
        end();
        return target.generate("a", { maxTokens: 1 });
      };
    },
  });
}
