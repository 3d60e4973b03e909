// A cluster in one process: workers on tiny models, and a gateway's server, all over a real NATS.

import { connectNats } from "../../apps/cluster/connect.ts";
import { Gateway } from "../../apps/cluster/gateway.ts";
import type { ClusterTimes } from "../../apps/cluster/messages.ts";
import type { NatsConnection } from "../../apps/cluster/peer.ts";
import { ClusterWorker } from "../../apps/cluster/worker.ts";
import { type RunningServer, type StartOptions, startServer } from "../../apps/server/serve.ts";
import type { Model } from "../../src/index.ts";
import { until } from "../server/test-server.ts";

/**
 * Short, so that tests do not wait. What would be taken for a loss where the machine is only busy is long: a connection that was
 * closed is known at once.
 */
export const quickTimes: ClusterTimes = {
  ...{ beat: 50, stale: 2000, check: 50, silent: 30_000, orphan: 30_000, wait: 5000 },
  keep: 3_600_000,
};

export interface TestWorker {
  readonly id: string;
  readonly worker: ClusterWorker;
  readonly connection: NatsConnection;
  /** As if its process had been killed: nothing more is said, and nothing is answered. */
  die(): Promise<void>;
  close(): Promise<void>;
}

export interface WorkerParts {
  readonly modelId?: string;
  /** What identifies the model, where it is not the model's own. */
  readonly fingerprint?: string;
  /** As a browser tab has one. */
  readonly group?: string;
  readonly capacity?: number;
  /** Where NATS wants to know who it is. */
  readonly creds?: string;
}

/** The model stays the caller's. */
export async function testWorker(
  servers: readonly string[],
  model: Model,
  { modelId = "tiny", capacity = 4, creds, ...parts }: WorkerParts = {},
): Promise<TestWorker> {
  const connection = await connectNats({ servers, name: "test worker", creds });
  const worker = new ClusterWorker({
    ...{ connection, model, modelId, capacity, version: "test", times: quickTimes },
    ...parts,
  });
  await connection.flush();
  const die = async (): Promise<void> => {
    await connection.close();
    await worker.stop(0);
  };
  return {
    ...{ id: worker.id, worker, connection, die },
    async close() {
      await worker.stop(0);
      if (!connection.isClosed()) await connection.drain();
    },
  };
}

export interface TestGateway {
  readonly server: RunningServer;
  readonly gateway: Gateway;
  readonly connection: NatsConnection;
  readonly log: string[];
  /** Waits until so many workers are known. */
  workers(count: number): Promise<void>;
  model(id?: string): Model;
  close(): Promise<void>;
}

export async function testGateway(
  servers: readonly string[],
  {
    creds,
    times,
    ...options
  }: Partial<StartOptions> & { readonly creds?: string; times?: Partial<ClusterTimes> } = {},
): Promise<TestGateway> {
  const connection = await connectNats({ servers, name: "test gateway", creds });
  const log: string[] = [];
  const server = await startServer({
    ...{ models: {}, version: "test", port: 0, graceMs: 200, token: false, parallel: 256 },
    log: (line) => log.push(line),
    ...options,
  });
  const { models } = server.context;
  const gateway = new Gateway({
    ...{ connection, log: (line) => log.push(line), times: { ...quickTimes, ...times } },
    onModel: (id, model) => models.add({ id, model, created: 0 }),
  });
  return {
    ...{ server, gateway, connection, log },
    workers: (count) => until(`${count} workers`, () => gateway.workers.list().length === count),
    model: (id = "tiny") => models.findExact(id).model,
    async close() {
      await server.stop();
      gateway.close();
      if (!connection.isClosed()) await connection.close();
    },
  };
}
