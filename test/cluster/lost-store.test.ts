// NATS comes back with an empty store while lines of a batch are queued, in the works and answered: gateways and workers make their streams
// again, and each line is answered once. In this process, and with the processes that users start.
// Held against: the lines of the batch, each answered once.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LineAnswer, LineId } from "../../apps/batch/batch.ts";
import type { Answerer } from "../../apps/batch/runner.ts";
import { connectNats } from "../../apps/cluster/connect.ts";
import { LineQueue } from "../../apps/cluster/line-queue.ts";
import { LineWorker } from "../../apps/cluster/line-worker.ts";
import type { NatsConnection } from "../../apps/cluster/peer.ts";
import { until } from "../server/test-server.ts";
import { describeNats, type NatsCluster, startNats } from "../support/nats.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { answeredLines, batchOutput, completionLines, startBatch } from "./batch-requests.ts";
import { type Started, startLantern } from "./processes.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

describeNats("NATS with an empty store", () => {
  let nats: NatsCluster;
  const folder = mkdtempSync(join(tmpdir(), "lantern-lost-store-"));
  const connections: NatsConnection[] = [];
  const started: Started[] = [];
  beforeAll(async () => {
    nats = await startNats();
  });
  afterAll(async () => {
    for (const { child } of started) child.kill("SIGKILL");
    await Promise.all(connections.map((connection) => connection.close()));
    nats?.close();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  async function connect(): Promise<NatsConnection> {
    const connection = await connectNats({ servers: nats.urls, name: "test" });
    connections.push(connection);
    return connection;
  }

  test("lines that wait are queued again, lines in the works are answered, and no line loses its place to an old one", async () => {
    const log: string[] = [];
    const note = { log: (line: string) => void log.push(line) };
    const named = { modelId: "m", fingerprint: "f" };
    const computed = new Map<string, number>();
    const isBack = Promise.withResolvers<void>();
    let held = 0;
    const answerer: Answerer = {
      parallel: () => 4,
      async answer(_url, body) {
        const text = decoder.decode(body);
        if (Number(text.split(":")[1]) >= 4) {
          held++;
          await isBack.promise;
        }
        computed.set(text, (computed.get(text) ?? 0) + 1);
        return { status: 200, requestId: "r", body: { text } };
      },
    };
    const [one, other] = [await connect(), await connect()].map(
      (connection) =>
        new LineWorker({
          ...named,
          connection,
          answerer,
          capacity: () => 2,
          ackMs: 20_000,
          ...note,
        }),
    );
    const own: Answerer = { parallel: () => 1, answer: () => Promise.reject(new Error("own")) };
    const queue = new LineQueue({
      ...{ connection: await connect(), own, modelOf: () => "m", capacity: () => 8, ...note },
      ...{ fingerprintOf: async () => "f", sureMs: 1000 },
    });
    /** As a batch's runner does. */
    const ask = async (line: LineId): Promise<LineAnswer> => {
      const body = encoder.encode(`${line.batch}:${line.place}`);
      for (;;) {
        const answer = await queue.answer("/v1/x", body, new AbortController().signal, line);
        if (answer.status !== 503) return answer;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    const textOf = ({ body }: LineAnswer): unknown => (body as { text: string }).text;
    const lines = Array.from({ length: 12 }, (_, place) => ({ batch: "batch_1", place }));
    let answered = 0;
    const answers = Promise.all(
      lines.map(async (line) => {
        const answer = await ask(line);
        answered++;
        return answer;
      }),
    );
    await until(
      "some are answered, some in the works, and some wait",
      () => answered === 4 && held === 4,
    );
    await nats.wipe(0);
    const said = (text: string): number => log.filter((line) => line.includes(text)).length;
    await until("the gateway has noticed", () => said("lines that wait here") === 1);
    expect(said("8 lines that wait here are queued again")).toBe(1);
    // A third worker gets them all, and dies: what the first two say of the lines that they had must not remove any of these.
    let taken = 0;
    const mortal = await connect();
    void new LineWorker({
      ...{ ...named, connection: mortal, capacity: () => 8, ackMs: 2000, ...note },
      answerer: {
        parallel: () => 8,
        answer: () => {
          taken++;
          return new Promise(() => {});
        },
      },
    });
    await until("it has the lines", () => taken === 8);
    isBack.resolve();
    await until("the others have ended theirs", () => answered >= 8);
    await mortal.close();
    expect((await answers).map(textOf)).toEqual(
      lines.map(({ batch, place }) => `${batch}:${place}`),
    );
    for (const place of [0, 1, 2, 3]) expect(computed.get(`batch_1:${place}`)).toBe(1);
    // Nothing of the old queue is in the way of a new batch.
    const more = Array.from({ length: 12 }, (_, place) => ({ batch: "batch_2", place }));
    const next = await Promise.all(more.map(ask));
    expect(next.map(textOf)).toEqual(more.map(({ batch, place }) => `${batch}:${place}`));
    expect(said("NATS has lost its lines of batches")).toBe(2);
    expect(log.join("\n")).not.toMatch(/has left the queue/);
    await Promise.all([queue.close(), one!.stop(), other!.stop()]);
  });

  test("a gateway and a worker as processes: the batch goes on, every line once; files can be read, and another batch runs", async () => {
    const file = await tinyFile();
    const cluster = ["--cluster", nats.urls[0]!];
    const start = async (...args: string[]): Promise<Started> => {
      const one = await startLantern([...args, ...cluster], { env: { LANTERN_DATA: folder } });
      started.push(one);
      return one;
    };
    const store = ["--no-sessions", "--batches", join(folder, "batches.db")];
    const gateway = await start("serve", "--port", "0", "--no-web", ...store);
    const flags = ["-c", "512", "--threads", "1", "--parallel", "4"];
    const worker = await start("worker", "-m", file.path, "-a", "tiny", ...flags);
    const client = new OpenAI({
      baseURL: `${gateway.ready.url}/v1`,
      apiKey: "none",
      maxRetries: 20,
    });
    // So many that they are not all answered while NATS starts again, however fast the machine is.
    const body = { model: "tiny", max_tokens: 100, temperature: 0, ignore_eos: true };
    const lines = completionLines(500, body);
    const id = await startBatch(client, lines);
    await expect.poll(() => answeredLines(client, id), { interval: 20 }).toBeGreaterThan(5);
    await nats.wipe(0);
    expect(await answeredLines(client, id)).toBeLessThan(500);
    const output = await batchOutput(client, id, lines);
    for (const { response } of output) expect(response.body.usage.completion_tokens).toBe(100);
    expect(gateway.said.join("\n")).toMatch(/NATS has lost its lines and answers of batches/);
    expect(gateway.said.join("\n")).toMatch(/NATS has lost the batches of all gateways/);
    expect(worker.said.join("\n")).toMatch(/NATS has lost its lines of batches/);
    const more = completionLines(5, body);
    await batchOutput(client, await startBatch(client, more), more);
    for (const { child, ended } of [gateway, worker]) {
      child.kill("SIGTERM");
      await ended;
      expect(child.exitCode).toBe(0);
    }
    file.remove();
  }, 240_000);
});
