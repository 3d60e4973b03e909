// Lines of batches in a JetStream cluster of three servers: each is answered exactly once, whatever ends meanwhile: workers, the gateway, a
// NATS server. And a line that ends whoever takes it is an error after three workers, while the others beside it are answered.

import { DiscardPolicy } from "@nats-io/jetstream";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LineAnswer, LineId } from "../../apps/batch/batch.ts";
import { BatchOverError } from "../../apps/batch/batch.ts";
import type { Answerer } from "../../apps/batch/runner.ts";
import { connectNats } from "../../apps/cluster/connect.ts";
import { LineQueue } from "../../apps/cluster/line-queue.ts";
import {
  answerStream,
  lineStream,
  lineSubjects,
  loadJetStream,
  modelKey,
  openStreams,
} from "../../apps/cluster/line-streams.ts";
import { LineWorker } from "../../apps/cluster/line-worker.ts";
import type { NatsConnection } from "../../apps/cluster/peer.ts";
import { until } from "../server/test-server.ts";
import { describeNats, type NatsCluster, startNats } from "../support/nats.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
/** What identifies the model of all workers, where nothing else is said. */
const fingerprint = "0".repeat(32);

describeNats("lines of batches", () => {
  let nats: NatsCluster;
  const connections: NatsConnection[] = [];
  const log: string[] = [];
  /** How often each line was computed to its end. */
  const computed = new Map<string, number>();
  let batches = 0;

  beforeAll(async () => {
    nats = await startNats(3);
    await openStreams(await connect(), (line) => log.push(line));
  });
  afterAll(async () => {
    await Promise.all(connections.map((connection) => connection.close()));
    nats?.close();
  });

  async function connect(): Promise<NatsConnection> {
    const connection = await connectNats({ servers: nats.urls, name: "test" });
    connections.push(connection);
    return connection;
  }

  interface Parts {
    readonly capacity?: number;
    readonly ms?: number;
    /** Called before a line is computed. */
    readonly before?: (text: string) => void;
    readonly model?: string;
    /** A line that nothing was said of for so long goes to another worker; the same for all workers of a model. */
    readonly ackMs?: number;
  }

  /** For lines that must be computed once: a busy machine is silent for a while, too. */
  const patient = { model: "patient", ackMs: 20_000 };

  async function worker(parts: Parts = {}) {
    const { capacity = 4, ms = 5, before, model = "m", ackMs = 600 } = parts;
    const connection = await connect();
    const answerer: Answerer = {
      parallel: () => capacity,
      async answer(url, body, signal) {
        const text = decoder.decode(body);
        before?.(text);
        await Promise.race([
          new Promise((resolve) => setTimeout(resolve, ms)),
          new Promise((resolve) => signal.addEventListener("abort", resolve)),
        ]);
        signal.throwIfAborted();
        if (connection.isClosed()) await new Promise(() => {});
        computed.set(text, (computed.get(text) ?? 0) + 1);
        return { status: 200, requestId: "r", body: { url, text } };
      },
    };
    const lines = new LineWorker({
      ...{ connection, modelId: model, fingerprint, answerer, capacity: () => capacity, ackMs },
      log: (line) => log.push(line),
    });
    return {
      lines,
      /** As kill -9: nothing more is heard of it. */
      kill: () => connection.close(),
      stop: () => lines.stop(),
    };
  }

  /** `failing`: so many of its first questions about consumers are not answered in time. */
  async function gateway(model = "m", failing = 0, sureMs?: number) {
    const real = await connect();
    let left = failing;
    const connection = new Proxy(real, {
      get(target, key) {
        const value = Reflect.get(target, key) as unknown;
        if (typeof value !== "function") return value;
        if (key !== "request") return value.bind(target);
        return (subject: string, ...rest: unknown[]) =>
          subject.startsWith("$JS.API.CONSUMER.CREATE") && left-- > 0
            ? Promise.reject(new Error("timeout"))
            : value.call(target, subject, ...rest);
      },
    });
    const own: Answerer = { parallel: () => 1, answer: () => Promise.reject(new Error("own")) };
    const queue = new LineQueue({
      ...{
        connection,
        own,
        modelOf: () => model,
        fingerprintOf: async () => fingerprint,
        capacity: () => 8,
        ...(sureMs && { sureMs }),
      },
      log: (line) => log.push(line),
    });
    return { queue, connection };
  }

  const bodyOf = (line: LineId): Uint8Array<ArrayBuffer> =>
    encoder.encode(`${line.batch}:${line.place}`);
  /** As a batch's runner does: a line that could not be queued, because NATS is busy or away, is asked for again. */
  async function ask(
    queue: LineQueue,
    line: LineId,
    signal = new AbortController().signal,
  ): Promise<LineAnswer> {
    for (;;) {
      const answer = await queue.answer("/v1/x", bodyOf(line), signal, line);
      if (answer.status !== 503) return answer;
      // Without a connection it is refused at once: time for that to come back.
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  const newBatch = (count: number): LineId[] => {
    const batch = `batch_${++batches}`;
    return Array.from({ length: count }, (_, place) => ({ batch, place }));
  };
  const expectAll = (lines: readonly LineId[], answers: readonly LineAnswer[]): void => {
    const texts = lines.map(({ batch, place }) => `${batch}:${place}`);
    expect(answers.map(({ body }) => (body as { text: string }).text)).toEqual(texts);
  };

  test("answered by several workers, each line by one", async () => {
    const two = [await worker(patient), await worker(patient)];
    const { queue } = await gateway(patient.model);
    const lines = newBatch(40);
    expectAll(lines, await Promise.all(lines.map((line) => ask(queue, line))));
    for (const { batch, place } of lines) expect(computed.get(`${batch}:${place}`)).toBe(1);
    await queue.close();
    await Promise.all(two.map((one) => one.stop()));
  });

  test("a gateway that is killed: the next one finds the answers, and queues nothing twice", async () => {
    const { queue, connection } = await gateway(patient.model);
    const lines = newBatch(12);
    const first = lines.map((line) => ask(queue, line));
    for (const answer of first) answer.catch(() => {});
    const manager = await openStreams(await connect());
    await expect.poll(async () => (await manager.streams.info(lineStream)).state.messages).toBe(12);
    await connection.close();
    const one = await worker(patient);
    const next = await gateway(patient.model);
    expectAll(lines, await Promise.all(lines.map((line) => ask(next.queue, line))));
    for (const { batch, place } of lines) expect(computed.get(`${batch}:${place}`)).toBe(1);
    await next.queue.close();
    await one.stop();
  });

  test("JetStream does not answer when a gateway starts: its lines wait until it does", async () => {
    const one = await worker(patient);
    const { queue } = await gateway(patient.model, 2);
    const lines = newBatch(4);
    expectAll(lines, await Promise.all(lines.map((line) => ask(queue, line))));
    expect(log.filter((line) => /lines of batches wait: timeout/.test(line))).toHaveLength(2);
    await queue.close();
    await one.stop();
  });

  test("a worker that is killed: its lines go to another", async () => {
    const { queue } = await gateway();
    let taken = 0;
    const slow = await worker({ ms: 60_000, before: () => taken++ });
    const lines = newBatch(4);
    const answers = Promise.all(lines.map((line) => ask(queue, line)));
    await until("it has the lines", () => taken >= 4);
    await slow.kill();
    const other = await worker();
    expectAll(lines, await answers);
    await queue.close();
    await other.stop();
  });

  test("a worker that is slow keeps its line; one that stops gives it back without a mark", async () => {
    const { queue } = await gateway("slow");
    const own = { model: "slow", ackMs: 1500 };
    const slow = await worker({ ...own, ms: 3000, capacity: 1 }); // longer than it may be silent
    const [line] = newBatch(1);
    expectAll([line!], [await ask(queue, line!)]);
    expect(computed.get(`${line!.batch}:0`)).toBe(1);
    await slow.stop();
    const [again] = newBatch(1);
    const answer = ask(queue, again!);
    for (let i = 0; i < 3; i++) {
      let isTaken = false;
      const taken = (): void => {
        isTaken = true;
      };
      const stopped = await worker({ ...own, ms: 60_000, before: taken });
      await until("it has the line", () => isTaken);
      await stopped.stop();
    }
    const last = await worker(own);
    expectAll([again!], [await answer]);
    await queue.close();
    await last.stop();
  });

  test("a line that ends whoever takes it is an error after three workers; lines beside it are answered", async () => {
    const { queue } = await gateway();
    const lines = newBatch(9);
    const poison = `${lines[4]!.batch}:4`;
    let deaths = 0;
    let last: Promise<{ stop(): Promise<void> }>;
    const killing = async (): Promise<{ stop(): Promise<void> }> => {
      let kill: () => void = () => {};
      const one = await worker({
        before: (text) => {
          if (text !== poison) return;
          deaths++;
          kill();
        },
      });
      kill = () => {
        void one.kill();
        last = killing();
      };
      return one;
    };
    last = killing();
    const answers = await Promise.all(lines.map((line) => ask(queue, line)));
    expect(deaths).toBe(3);
    const [dead] = answers.splice(4, 1);
    expect(dead!.status).toBe(500);
    expect(JSON.stringify(dead!.body)).toMatch(/given to 3 workers/);
    lines.splice(4, 1);
    expectAll(lines, answers);
    await queue.close();
    await (await last).stop();
  });

  test("an engine that ends with its lines: they are tried again, and only the one that ends it is an error", async () => {
    const { queue } = await gateway("mortal");
    const lines = newBatch(9);
    const poison = `${lines[4]!.batch}:4`;
    let engine = 0;
    let lost = 0;
    let beside = 0;
    const answerer: Answerer = {
      parallel: () => 4,
      async answer(_url, body) {
        const text = decoder.decode(body);
        const mine = engine;
        if (text === poison) {
          await until("others are beside it", () => beside > 0);
          engine++; // and with it ends all that runs in it
        } else if (engine === 0 && beside < 3) {
          beside++;
          await until("the engine has ended", () => engine > 0);
        }
        if (mine === engine) return { status: 200, requestId: "r", body: { text } };
        lost++;
        return { status: 500, requestId: "r", body: { error: {} }, lost: "engine" };
      },
    };
    const one = new LineWorker({
      ...{
        connection: await connect(),
        modelId: "mortal",
        fingerprint,
        answerer,
        capacity: () => 4,
      },
      ...{ ackMs: 20_000, log: (line: string) => void log.push(line) },
    });
    const answers = await Promise.all(lines.map((line) => ask(queue, line)));
    expect(engine).toBe(3);
    expect(lost).toBe(3 + beside);
    const [dead] = answers.splice(4, 1);
    expect(dead!.status).toBe(500);
    expect(JSON.stringify(dead!.body)).toMatch(/given to 3 workers/);
    const [{ batch, place }] = lines.splice(4, 1) as [LineId];
    expectAll(lines, answers);
    const manager = await openStreams(await connect());
    const last_by_subj = lineSubjects.dead({ batch, place });
    const kept = await manager.streams.getMessage("LANTERN_DEAD", { last_by_subj });
    expect(decoder.decode(kept!.data)).toBe(poison);
    await Promise.all([queue.close(), one.stop()]);
  });

  test("tabs that are closed with a line are no workers that it ended; after ten it is an error, and only the line that ends them", async () => {
    const { queue } = await gateway("tabs");
    const lines = newBatch(6);
    const [unlucky, poison] = [`${lines[1]!.batch}:1`, `${lines[4]!.batch}:4`];
    const closed = new Map<string, number>();
    let running = 0;
    let besideLast = 0;
    const answerer: Answerer = {
      parallel: () => 4,
      async answer(_url, body) {
        const text = decoder.decode(body);
        const before = closed.get(text) ?? 0;
        running++;
        if (before === 9) besideLast += running - 1;
        await new Promise((resolve) => setTimeout(resolve, 5));
        running--;
        if (text !== poison && (text !== unlucky || before >= 5)) {
          return { status: 200, requestId: "r", body: { text } };
        }
        closed.set(text, before + 1);
        return { status: 500, requestId: "r", body: { error: {} }, lost: "tab" };
      },
    };
    const one = new LineWorker({
      ...{ connection: await connect(), modelId: "tabs", fingerprint, answerer, capacity: () => 4 },
      ...{ ackMs: 20_000, log: (line: string) => void log.push(line) },
    });
    const answers = await Promise.all(lines.map((line) => ask(queue, line)));
    expect(closed).toEqual(
      new Map([
        [unlucky, 5],
        [poison, 10],
      ]),
    );
    expect(besideLast).toBe(0);
    const [dead] = answers.splice(4, 1);
    expect(dead!.status).toBe(500);
    expect(JSON.stringify(dead!.body)).toMatch(/given to 10 browser tabs/);
    const [gone] = lines.splice(4, 1);
    expectAll(lines, answers);
    const manager = await openStreams(await connect());
    const last_by_subj = lineSubjects.dead(gone!);
    const kept = await manager.streams.getMessage("LANTERN_DEAD", { last_by_subj });
    expect(decoder.decode(kept!.data)).toBe(poison);
    await Promise.all([queue.close(), one.stop()]);
  });

  test("a line that ends its workers is not forgiven when another worker is stopped with it", async () => {
    const { queue } = await gateway("stopped");
    const own = { model: "stopped", ackMs: 600 };
    const [line] = newBatch(1);
    const answer = ask(queue, line!);
    const takes = async (end: "kill" | "stop"): Promise<void> => {
      let isTaken = false;
      const before = (): void => {
        isTaken = true;
      };
      const one = await worker({ ...own, ms: 60_000, before });
      await until("it has the line", () => isTaken);
      await one[end]();
    };
    for (const end of ["kill", "kill", "stop", "kill"] as const) await takes(end);
    const last = await worker(own);
    const { status, body } = await answer;
    expect(status).toBe(500);
    expect(JSON.stringify(body)).toMatch(/given to 3 workers/);
    await Promise.all([queue.close(), last.stop()]);
  });

  test("lines go to workers with the model that the batch began with, not to others of its name", async () => {
    const { queue } = await gateway("named");
    let taken = 0;
    const answerer: Answerer = {
      parallel: () => 4,
      async answer() {
        taken++;
        return { status: 200, requestId: "r", body: { text: "of another model" } };
      },
    };
    const other = new LineWorker({
      ...{ connection: await connect(), modelId: "named", fingerprint: "1".repeat(32), answerer },
      ...{ capacity: () => 4, ackMs: 20_000, log: (line: string) => void log.push(line) },
    });
    const lines = newBatch(20);
    const answers = Promise.all(lines.map((line) => ask(queue, line)));
    const manager = await openStreams(await connect());
    const consumer = `lines-${modelKey("named", "1".repeat(32))}`;
    await expect
      .poll(() => manager.consumers.info(lineStream, consumer).catch(() => null))
      .not.toBe(null);
    const one = await worker({ model: "named", ackMs: 20_000 });
    expectAll(lines, await answers);
    expect(taken).toBe(0);
    await Promise.all([queue.close(), one.stop(), other.stop()]);
  });

  test("a worker without places takes no lines, and gives back what it has none for any more", async () => {
    const { queue } = await gateway("places");
    let places = 0;
    let taken = 0;
    const refusing: Answerer = {
      parallel: () => 1,
      async answer() {
        taken++;
        places = 0;
        return { status: 503, requestId: "r", body: {} };
      },
    };
    const without = new LineWorker({
      ...{ connection: await connect(), modelId: "places", fingerprint, answerer: refusing },
      ...{ capacity: () => places, ackMs: 20_000, log: (line: string) => void log.push(line) },
    });
    const own = { model: "places", ackMs: 20_000 };
    const first = await worker(own);
    const lines = newBatch(20);
    expectAll(lines, await Promise.all(lines.map((line) => ask(queue, line))));
    expect(taken).toBe(0);
    await first.stop();
    places = 1;
    const [line] = newBatch(1);
    const answer = ask(queue, line!);
    await until("it was taken", () => taken === 1);
    const second = await worker(own);
    expectAll([line!], [await answer]); // long before ackMs: it was given back
    expect(taken).toBe(1);
    await Promise.all([queue.close(), without.stop(), second.stop()]);
  });

  test("NATS has no room for an answer: it is kept until there is, computed once, and no line is to blame", async () => {
    const { queue } = await gateway("full");
    const manager = await openStreams(await connect());
    const { max_bytes, discard } = (await manager.streams.info(answerStream)).config;
    const full = { max_bytes: 1, discard: DiscardPolicy.New };
    await manager.streams.update(answerStream, full);
    const one = await worker({ model: "full", ackMs: 20_000 });
    const [line] = newBatch(1);
    const text = `${line!.batch}:0`;
    const answer = ask(queue, line!);
    const waits = (): boolean => log.some((said) => /waits until it can be stored/.test(said));
    await until("it could not be stored", waits);
    const { num_ack_pending, num_redelivered } = await manager.consumers.info(
      lineStream,
      `lines-${modelKey("full", fingerprint)}`,
    );
    expect([num_ack_pending, num_redelivered]).toEqual([1, 0]);
    await manager.streams.update(answerStream, { max_bytes, discard });
    expectAll([line!], [await answer]);
    expect(computed.get(text)).toBe(1);
    await Promise.all([queue.close(), one.stop()]);
  });

  test("a line that NATS has lost is queued again", async () => {
    const { queue } = await gateway("lost", 0, 100);
    const [line] = newBatch(1);
    const answer = Promise.all([ask(queue, line!)]);
    const manager = await openStreams(await connect());
    const find = () =>
      manager.streams.getMessage(lineStream, {
        last_by_subj: lineSubjects.line(modelKey("lost", fingerprint), line!),
      });
    await expect.poll(find).not.toBe(null);
    await manager.streams.deleteMessage(lineStream, (await find())!.seq);
    await expect.poll(find).not.toBe(null); // although NATS knows its id
    const one = await worker({ model: "lost", ackMs: 20_000 });
    expectAll([line!], await answer);
    await Promise.all([queue.close(), one.stop()]);
  });

  test.each(["not JSON", "null", '{"status":"200"}', "[1,2]"])(
    "a stored answer that is none is an error of its line: %s",
    async (stored) => {
      const { queue, connection } = await gateway("m");
      const [line] = newBatch(1);
      const { jetstream } = await loadJetStream();
      await jetstream(connection).publish(lineSubjects.answer(line!), encoder.encode(stored));
      const { status, body } = await ask(queue, line!);
      expect(status, JSON.stringify(body)).toBe(500);
      await queue.close();
    },
  );

  test("a NATS server that is killed, and comes back", async () => {
    const two = [await worker(), await worker()];
    const { queue } = await gateway();
    const lines = newBatch(60);
    const answers = Promise.all(lines.map((line) => ask(queue, line)));
    nats.kill(0);
    expectAll(lines, await answers);
    await nats.restart(0);
    const more = newBatch(10);
    expectAll(more, await Promise.all(more.map((line) => ask(queue, line))));
    expect(log.filter((line) => line.includes("NATS has lost"))).toEqual([]); // the other two have all of it
    await queue.close();
    await Promise.all(two.map((one) => one.stop()));
  });

  test("a line whose batch was cancelled leaves the queue; one whose gateway stops stays", async () => {
    const { queue } = await gateway();
    const [cancelled, left] = newBatch(2);
    const [a, b] = [new AbortController(), new AbortController()];
    const both = [ask(queue, cancelled!, a.signal), ask(queue, left!, b.signal)];
    for (const one of both) one.catch(() => {});
    const manager = await openStreams(await connect());
    const waiting = async () => (await manager.streams.info(lineStream)).state.messages;
    await expect.poll(waiting).toBe(2);
    a.abort(new BatchOverError("cancelled"));
    b.abort(new Error("the server is stopping"));
    await Promise.allSettled(both);
    await expect.poll(waiting).toBe(1);
    const one = await worker();
    const next = await gateway();
    expectAll([left!], [await ask(next.queue, left!)]);
    await Promise.all([queue.close(), next.queue.close(), one.stop()]);
  });
});
