// Two clusters on one NATS: in an account each they have the same names for everything and see nothing of each other; in one account
// they are one cluster, and each gateway's log says that the other is there.

import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { BatchRunner } from "../../apps/batch/runner.ts";
import { BatchStore } from "../../apps/batch/store.ts";
import { openFiles, openKeys } from "../../apps/cluster/buckets.ts";
import { connectNats } from "../../apps/cluster/connect.ts";
import { Gateway } from "../../apps/cluster/gateway.ts";
import { lineSubjects, openStreams } from "../../apps/cluster/line-streams.ts";
import { SharedBatches } from "../../apps/cluster/shared-batches.ts";
import { SharedFolder } from "../../apps/cluster/shared-folder.ts";
import { ClusterWorker } from "../../apps/cluster/worker.ts";
import type { Model } from "../../src/index.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { describeNats, startNats } from "../support/nats.ts";
import { fakeInfo } from "./fake-info.ts";
import { quickTimes } from "./support.ts";

const accounts = `
accounts {
  first:  { jetstream: enabled, users: [{ user: first,  password: one }] }
  second: { jetstream: enabled, users: [{ user: second, password: two }] }
}`;

const quiet = (): void => {};

/** A worker, a gateway, and what they keep in NATS. */
async function cluster(servers: readonly string[], user: string, password: string) {
  const connection = await connectNats({ servers, name: "test", user, password });
  const model = { info: fakeInfo } as unknown as Model;
  const worker = new ClusterWorker({
    ...{ connection, model, modelId: "tiny", capacity: 1, version: "1", times: quickTimes },
  });
  const gateway = new Gateway({ connection, onModel: quiet, log: quiet, times: quickTimes });
  await worker.ready();
  const manager = await openStreams(connection);
  const keys = await openKeys(connection, quiet);
  const files = await openFiles(connection, () => createHash("sha256"), quiet);
  onTestFinished(async () => {
    gateway.close();
    await worker.stop(0);
    await connection.close();
  });
  const workers = (): string[] => gateway.workers.list().map(({ id }) => id);
  return { connection, worker, workers, manager, keys, files };
}

describeNats("two clusters on one NATS", () => {
  test("in an account each: the same model, names and ids, and nothing of each other", async () => {
    const nats = await startNats(1, "127.0.0.1", accounts);
    onTestFinished(() => nats.close());
    const a = await cluster(nats.urls, "first", "one");
    const b = await cluster(nats.urls, "second", "two");
    await expect.poll(a.workers).toEqual([a.worker.id]);
    await expect.poll(b.workers).toEqual([b.worker.id]);
    // The same key, the same file, the same line.
    const bytes = (text: string) => new TextEncoder().encode(text);
    for (const [{ keys, files, connection }, text] of [
      [a, "of a"],
      [b, "of b"],
    ] as const) {
      expect(await keys.put("batch.1", bytes(text), 0)).toBeDefined();
      const file = files.create("file-1");
      await file.write(bytes(text));
      await file.finish();
      connection.publish(lineSubjects.line("tiny", { batch: "1", place: 0 }), bytes(text));
      await connection.flush();
    }
    for (const [{ files, manager }, text] of [
      [a, "of a"],
      [b, "of b"],
    ] as const) {
      let found = "";
      for await (const piece of files.read("file-1")) found += new TextDecoder().decode(piece);
      expect(found).toBe(text);
      await expect
        .poll(async () => (await manager.streams.info("LANTERN_LINES")).state.messages)
        .toBe(1);
    }
  });

  test("in one account they are one cluster, and each gateway is told of the other", async () => {
    const nats = await startNats();
    const folder = mkdtempSync(join(tmpdir(), "lantern-two-"));
    const logs = await Promise.all(
      ["a", "b"].map(async (name) => {
        const connection = await connectNats({ servers: nats.urls, name: "test" });
        const store = new BatchStore(
          openNodeDatabase(join(folder, `${name}.db`)),
          nodeFileFolder(join(folder, name)),
        );
        const log: string[] = [];
        const answerer = { parallel: () => 1, answer: () => new Promise<never>(() => {}) };
        const runner = new BatchRunner(store, answerer, { log: quiet });
        const bucket = openFiles(connection, () => createHash("sha256"), quiet);
        const shared = new SharedBatches({
          ...{ connection, store, runner, log: (line: string) => log.push(line) },
          folder: new SharedFolder(nodeFileFolder(join(folder, name)), () => bucket),
          times: { beat: 50 },
        });
        await shared.start();
        onTestFinished(async () => {
          await shared.close();
          await connection.close();
          store.close();
        });
        return log;
      }),
    );
    onTestFinished(() => {
      nats.close();
      rmSync(folder, { recursive: true, force: true });
    });
    for (const log of logs) {
      const said = (): string[] => log.filter((line) => line.includes("Two clusters on one NATS"));
      await expect
        .poll(said)
        .toEqual([expect.stringMatching(/^cluster: gateway \S+ is in this account of NATS, too/)]);
    }
  });
});
