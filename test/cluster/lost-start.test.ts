// A worker and a gateway that lose NATS while they start: after every message of the start, one after the other. They wait until NATS is
// back and go on; nothing that NATS's client rejects in between is left to itself. A connection that is closed for good is an error with words.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connectNats } from "../../apps/cluster/connect.ts";
import { Gateway } from "../../apps/cluster/gateway.ts";
import { LineWorker } from "../../apps/cluster/line-worker.ts";
import { heard, type NatsConnection } from "../../apps/cluster/peer.ts";
import { ClusterWorker } from "../../apps/cluster/worker.ts";
import type { Model } from "../../src/index.ts";
import { cuttingProxy } from "../support/cutting-proxy.ts";
import { describeNats, type NatsCluster, startNats } from "../support/nats.ts";
import { fakeInfo } from "./fake-info.ts";
import { quickTimes } from "./support.ts";

describeNats("NATS is lost while it starts", () => {
  let nats: NatsCluster;
  beforeAll(async () => {
    nats = await startNats();
  });
  afterAll(() => nats.close());

  test("after every message of the start: a worker waits, goes on and is seen by a gateway", async () => {
    const rejections: unknown[] = [];
    const note = (error: unknown): void => void rejections.push(error);
    process.on("unhandledRejection", note);
    const proxy = await cuttingProxy(Number(new URL(nats.urls[0]!).port));
    const servers = [`nats://127.0.0.1:${proxy.port}`];
    try {
      // Until a start needs no more messages than that.
      for (let pieces = 0, wasCut = true; wasCut; pieces++) {
        expect(pieces, "a start ends").toBeLessThan(200);
        const before = proxy.count;
        proxy.cutAfter(pieces);
        const log: string[] = [];
        const connection = await connectNats({ servers, name: "test", timeoutMs: 3000 });
        const options = {
          connection,
          modelId: `m${pieces}`,
          log: (line: string) => log.push(line),
        };
        const model = { info: fakeInfo } as unknown as Model;
        const worker = new ClusterWorker({
          ...options,
          model,
          capacity: 1,
          version: "1",
          times: quickTimes,
        });
        const lines = new LineWorker({
          ...options,
          ...{ fingerprint: worker.fingerprint, capacity: () => 1 },
          answerer: { parallel: () => 1, answer: () => Promise.reject(new Error("no lines here")) },
        });
        await worker.ready();
        const names: string[] = [];
        const gateway = new Gateway({
          ...{
            connection: await connectNats({ servers: nats.urls, name: "test" }),
            times: quickTimes,
          },
          onModel: (id) => names.push(id),
          log: () => {},
        });
        await expect.poll(() => names).toContain(`m${pieces}`);
        wasCut = proxy.count > before + 1;
        proxy.cutAfter(undefined);
        gateway.close();
        await worker.stop(0);
        await connection.close();
        await lines.stop();
        expect(log.filter((line) => /: *$|undefined|\[object/.test(line))).toEqual([]);
      }
      expect(rejections).toEqual([]);
    } finally {
      process.off("unhandledRejection", note);
      proxy.close();
    }
  });
});

/** As NATS's client is: flush() of a connection that is lost rejects with an error that has nothing in it. */
function fakeConnection(flushes: (() => Promise<void>)[], closedWith?: Error) {
  let isClosed = false;
  return {
    flush: () =>
      flushes.shift()?.() ??
      Promise.resolve().then(() => {
        isClosed = true;
        throw empty();
      }),
    isClosed: () => isClosed,
    closed: async () => closedWith,
  } as unknown as NatsConnection;
}

function empty(): Error {
  const error = new Error("");
  error.stack = "";
  return error;
}

describe("what was said is heard", () => {
  const lost = (): Promise<void> => Promise.reject(empty());
  const there = (): Promise<void> => Promise.resolve();

  test("when a connection that was lost is back; it is said once that it waits", async () => {
    const log: string[] = [];
    await heard(fakeConnection([lost, lost, there]), { log: (line) => log.push(line) });
    expect(log).toEqual(["NATS has gone away. This waits until it is back"]);
  });

  test("never where it is closed: an error with words", async () => {
    const quiet = { log: () => {} };
    await expect(heard(fakeConnection([lost]), quiet)).rejects.toThrow(
      "cluster: the connection to NATS was closed: Error, without a message",
    );
    await expect(heard(fakeConnection([], new Error("kicked out")), quiet)).rejects.toThrow(
      "cluster: the connection to NATS was closed: kicked out",
    );
  });

  test("not waited for after an abort", async () => {
    const stop = new AbortController();
    const waiting = heard(fakeConnection([() => new Promise(() => {})]), {
      log: () => {},
      signal: stop.signal,
    });
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
  });
});
