// Batches of two gateways, which share them over a real JetStream: each answers for the other's, a file that one took can be read from the
// other, and a gateway that is lost loses no batch. NATS's own layout of buckets is what is written.

import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Batch, endStates } from "../../apps/batch/batch.ts";
import { piecesOf } from "../../apps/batch/file-folder.ts";
import { type Answerer, BatchRunner } from "../../apps/batch/runner.ts";
import { BatchStore } from "../../apps/batch/store.ts";
import { openFiles } from "../../apps/cluster/buckets.ts";
import { connectNats } from "../../apps/cluster/connect.ts";
import { answerStream, lineSubjects, openStreams } from "../../apps/cluster/line-streams.ts";
import type { NatsConnection } from "../../apps/cluster/peer.ts";
import { SharedBatches } from "../../apps/cluster/shared-batches.ts";
import { SharedFolder } from "../../apps/cluster/shared-folder.ts";
import { encode } from "../../apps/cluster/wire.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { describeNats, type NatsCluster, startNats } from "../support/nats.ts";

/** A gateway is lost by its silence: longer than any pause of a busy machine. */
const times = { beat: 100, lost: 6000, counts: 50, wait: 60_000 };
const owner = "me";
const asker = { owner, api: "openai" } as const;

describeNats("batches of several gateways", () => {
  let nats: NatsCluster;
  const data = mkdtempSync(join(tmpdir(), "lantern-shared-"));
  const connections: NatsConnection[] = [];
  beforeAll(async () => {
    nats = await startNats();
  });
  afterAll(async () => {
    await Promise.all(connections.map((connection) => connection.close()));
    nats?.close();
    rmSync(data, { recursive: true, force: true });
  });

  async function connect(): Promise<NatsConnection> {
    const connection = await connectNats({ servers: nats.urls, name: "test" });
    connections.push(connection);
    return connection;
  }

  /** `answer`: what a line gets; a promise that never ends: it is in the works. `counts`: as in `times`. */
  async function gateway(
    name: string,
    answer: (place: number) => unknown,
    counts: number = times.counts,
  ) {
    const connection = await connect();
    const log: string[] = [];
    const note = (line: string): void => void log.push(line);
    const files = openFiles(connection, () => createHash("sha256"), note);
    const folder = new SharedFolder(nodeFileFolder(join(data, name)), () => files);
    const store = new BatchStore(openNodeDatabase(join(data, `${name}.db`)), folder);
    const { client } = await streams(connection);
    const answerer: Answerer = {
      ...{ parallel: () => 4, isElsewhere: true },
      async answer(_url, _body, signal, line) {
        const body = await Promise.race([
          answer(line.place),
          new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
          }),
        ]);
        const found = { status: 200, requestId: name, body };
        // As a worker does: the answer is in NATS before anybody has it. The streams may be lost (below).
        await streams(connection);
        await client.publish(lineSubjects.answer(line), encode(found));
        return found;
      },
    };
    const runner = new BatchRunner(store, answerer, { log: note, pauseMs: 20 });
    const shared = new SharedBatches({
      ...{ connection, store, runner, folder, log: note, times: { ...times, counts } },
    });
    await shared.start();
    runner.start();
    return {
      ...{ store, runner, shared, log, connection },
      /** As kill -9: nothing more is heard of it. */
      async kill(): Promise<void> {
        await connection.close();
      },
      async close(): Promise<void> {
        await runner.stop();
        await shared.close();
        store.close();
      },
    };
  }
  type Running = Awaited<ReturnType<typeof gateway>>;

  async function streams(connection: NatsConnection) {
    const manager = await openStreams(connection);
    return { manager, client: manager.jetstream() };
  }

  const lines = (count: number): string =>
    Array.from({ length: count }, (_, at) =>
      JSON.stringify({ custom_id: `c${at}`, method: "POST", url: "/v1/x", body: { at } }),
    ).join("\n");

  async function upload({ store, shared }: Running, text: string): Promise<string> {
    const writer = await store.files.create({ owner, name: "in.jsonl", purpose: "batch" });
    await writer.write(new TextEncoder().encode(text));
    const { id } = await writer.finish();
    await shared.flush();
    return id;
  }

  async function create({ store, runner, shared }: Running, inputFile: string): Promise<Batch> {
    const window = { window: "24h", windowMs: 86_400_000 };
    const batch = store.create({
      ...{ owner, api: "openai", endpoint: "/v1/x", inputFile, metadata: { a: "b" }, ...window },
    });
    await shared.flush();
    runner.wake();
    return batch;
  }

  async function ended({ store, shared }: Running, id: string): Promise<Batch> {
    const look = async (): Promise<Batch> => {
      await shared.upToDate();
      return store.batch(id, asker);
    };
    await expect.poll(async () => endStates.has((await look()).state)).toBe(true);
    return await look();
  }

  async function textOf({ store }: Running, id: string): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of piecesOf(store.files.folder, store.files.get(id, owner))) {
      text += decoder.decode(piece, { stream: true });
    }
    return text;
  }

  test("what one gateway has, the other has too: files, batches, cancelling, deleting", async () => {
    const never = new Promise<never>(() => {});
    const [a, b] = [
      await gateway("a", (place) => (place < 2 ? { place } : never)),
      await gateway("b", () => ({ other: true })),
    ];
    // More than one message of NATS, and not a whole number of them.
    const text = `${lines(5)}\n${" ".repeat(300_001)}\n`;
    const input = await upload(a, text);
    await b.shared.upToDate();
    expect(b.store.files.get(input, owner).bytes).toBe(text.length);
    expect(await textOf(b, input)).toBe(text);
    const { id } = await create(a, input);
    await b.shared.upToDate();
    expect(b.store.batch(id, asker)).toMatchObject({ id, metadata: { a: "b" }, inputFile: input });
    await expect
      .poll(async () => {
        await b.shared.upToDate();
        return b.store.batch(id, asker).counts;
      })
      .toMatchObject({ total: 5, done: 2 });
    expect(b.runner.running).toBe(0);
    // Whoever goes on with it uses the same model.
    expect(a.store.fingerprintOf(id, "m", () => undefined)).toBeUndefined();
    expect(a.store.fingerprintOf(id, "m", () => "first")).toBe("first");
    expect(a.store.fingerprintOf(id, "m", () => "second")).toBe("first");
    await a.shared.flush();
    await b.shared.upToDate();
    expect(b.store.fingerprintOf(id, "m", () => "second")).toBe("first");
    // Cancelled where it does not run.
    expect(b.runner.cancel(id).state).toBe("cancelling");
    await b.shared.flush();
    const over = await ended(b, id);
    expect(over).toMatchObject({ state: "cancelled", counts: { total: 5, done: 2, cancelled: 3 } });
    const output = (await textOf(b, over.outputFile!)).trim().split("\n");
    expect(output.map((line) => JSON.parse(line).custom_id)).toEqual(["c0", "c1"]);
    expect(b.store.list({ limit: 10 }, asker).items.map((one) => one.id)).toEqual([id]);
    // Deleted at the other: gone at both, bytes included.
    b.store.delete(id, asker);
    await b.store.files.delete(input, owner);
    await b.shared.flush();
    await a.shared.upToDate();
    expect(() => a.store.batch(id, asker)).toThrow(/no batch/);
    await expect.poll(() => readdirSync(join(data, "a"))).not.toContain(input);
    await a.close();
    await b.close();
    expect([...a.log, ...b.log].join()).not.toMatch(/another gateway|taken over/);
  });

  test("a gateway that is lost: another goes on, with the answers that there are; the first one finds out", async () => {
    const never = new Promise<never>(() => {});
    const answered: number[] = [];
    const seldom = 3_600_000;
    const lost = await gateway("lost", (place) => (place < 3 ? { by: "lost" } : never), seldom);
    const [b, c] = await Promise.all(
      ["c", "d"].map((name) =>
        gateway(name, (place) => {
          answered.push(place);
          return { by: name };
        }),
      ),
    );
    const { id } = await create(lost, await upload(lost, lines(8)));
    const { manager } = await streams(b!.connection);
    const filter = { subjects_filter: lineSubjects.answersOf(id) };
    await expect
      .poll(async () => {
        const { state } = await manager.streams.info(answerStream, filter);
        return Object.keys(state.subjects ?? {}).length;
      })
      .toBe(3);
    // It has told nobody that the lines were valid, let alone that they have answers.
    await b!.shared.upToDate();
    expect(b!.store.batch(id, asker).state).toBe("validating");
    await lost.kill();
    const over = await ended(b!, id);
    expect(over).toMatchObject({ state: "completed", counts: { total: 8, done: 8, failed: 0 } });
    expect(answered.toSorted((x, y) => x - y)).toEqual([3, 4, 5, 6, 7]); // each once, none of the first three again
    await ended(c!, id); // one of them has gone on with it, the other is told
    const texts = await Promise.all([b!, c!].map((one) => textOf(one, over.outputFile!)));
    expect(texts[0]).toBe(texts[1]);
    const output = texts[0]!
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(output.map((line) => line.custom_id)).toEqual(
      [...Array(8).keys()].map((at) => `c${at}`),
    );
    expect(output.map((line) => line.response.body.by === "lost")).toEqual(
      [...Array(8).keys()].map((at) => at < 3),
    );
    // Its process comes back with its old store, where the batch is half done.
    await lost.runner.stop();
    lost.store.close();
    const again = await gateway("lost", () => ({ by: "again" }));
    expect(again.store.batch(id, asker)).toMatchObject({ state: "completed", counts: { done: 8 } });
    expect(await textOf(again, over.outputFile!)).toBe(texts[0]);
    for (const one of [again, b!, c!]) await one.close();
  });

  test("NATS comes back with an empty store: gateways write again what they have, and no line is answered twice", async () => {
    const isBack = Promise.withResolvers<void>();
    const asked: number[] = [];
    const [a, b] = [
      await gateway("wiped-a", async (place) => {
        asked.push(place);
        if (place >= 3) await isBack.promise;
        return { by: "a" };
      }),
      await gateway("wiped-b", () => ({ by: "b" })),
    ];
    const old = await create(b, await upload(b, lines(2)));
    await ended(b, old.id);
    const text = lines(8);
    const input = await upload(a, text);
    const { id } = await create(a, input);
    await expect.poll(() => a.store.batch(id).counts.done).toBe(3);
    await nats.wipe(0);
    const knows = (said: string) => () =>
      [a, b].every(({ log }) => log.some((line) => line.includes(said)));
    await expect
      .poll(knows("NATS has lost the batches of all gateways"), { timeout: 60_000 })
      .toBe(true);
    await expect.poll(knows("that NATS had lost are there again"), { timeout: 60_000 }).toBe(true);
    // Who comes new has all of it from NATS alone.
    const c = await gateway("wiped-c", () => ({ by: "c" }));
    const known = async (): Promise<unknown> => {
      await c.shared.upToDate();
      return [old.id, id].map((one) => c.store.batch(one, asker).counts.total);
    };
    await expect.poll(known, { timeout: 60_000 }).toEqual([2, 8]);
    expect(await textOf(c, input)).toBe(text);
    expect(c.store.batch(old.id, asker).state).toBe("completed");
    expect(asked.filter((place) => place < 3)).toHaveLength(3); // what has an answer here is not asked for again
    // Cancelled where it does not run, as before.
    const second = await create(a, await upload(a, lines(3)));
    await b.shared.upToDate();
    expect(b.runner.cancel(second.id).state).toBe("cancelling");
    await b.shared.flush();
    isBack.resolve();
    const over = await ended(c, id);
    expect(over).toMatchObject({ state: "completed", counts: { total: 8, done: 8, failed: 0 } });
    const output = (await textOf(c, over.outputFile!)).trim().split("\n");
    expect(output.map((line) => JSON.parse(line).custom_id)).toEqual(
      [...Array(8).keys()].map((at) => `c${at}`),
    );
    expect((await ended(c, second.id)).state).toBe("cancelled");
    expect([...a.log, ...b.log, ...c.log].join("\n")).not.toMatch(
      /another gateway's now|goes on here/,
    );
    for (const one of [a, b, c]) await one.close();
  });
});
