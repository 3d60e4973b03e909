// The cluster part of `lantern serve` (--cluster): the server's models are those that the workers of a cluster announce (docs/use/cluster.md).

import { UsageError } from "../../src/index.ts";
import type { RunningServer, StartOptions } from "../server/serve.ts";
import { type ClusterFlags, joinCluster } from "./cluster-flags.ts";
import type { CliContext } from "./command.ts";
import type { ServeModelFlags } from "./serve-models.ts";

/** Flags about opening a model: they belong to the workers. */
const ofWorkers = {
  model: "-m",
  storyModel: "--story-model",
  chatModel: "--chat-model",
  alias: "--alias",
  chatTemplate: "--chat-template",
  chatTemplateFile: "--chat-template-file",
  slotSavePath: "--slot-save-path",
  keepAlive: "--keep-alive",
  modelsDir: "--models-dir",
  modelsPreset: "--models-preset",
} as const;

/** Lines of batches that a gateway takes at a time, of each model, for workers that take none themselves. */
const linesAtOnce = 1024;

type BatchPlace = NonNullable<StartOptions["batches"]>;

export interface JoinedGateway extends AsyncDisposable {
  readonly greeting: string;
  /** Batches whose lines are answered by the workers. */
  batches(place: StartOptions["batches"]): Pick<StartOptions, "batches">;
  /** From now on, the server serves the workers' models. */
  serveFrom(server: RunningServer): void;
}

/** undefined: without --cluster. */
export async function joinAsGateway(
  flags: ClusterFlags & ServeModelFlags,
  context: CliContext,
): Promise<JoinedGateway | undefined> {
  const { cluster } = flags;
  if (cluster === undefined) return undefined;
  const given = flags as Readonly<Record<string, unknown>>;
  for (const [name, flag] of Object.entries(ofWorkers)) {
    if (given[name] === undefined) continue;
    throw new UsageError(
      `flags: got both --cluster and ${flag}, expected one of them: a gateway has no model of its own. Give ${flag} to "lantern worker"`,
    );
  }
  const connection = await joinCluster({ ...flags, cluster }, "gateway", context);
  const { Gateway } = await import("../cluster/gateway.ts");
  const { LineQueue, refusal } = await import("../cluster/line-queue.ts");
  const { LineWorker } = await import("../cluster/line-worker.ts");
  const { SharedBatches } = await import("../cluster/shared-batches.ts");
  const { SharedFolder } = await import("../cluster/shared-folder.ts");
  const { openFiles } = await import("../cluster/buckets.ts");
  const log = (line: string): void => context.log.info(`${line}\n`);
  let gateway: InstanceType<typeof Gateway> | undefined;
  let queue: InstanceType<typeof LineQueue> | undefined;
  /** The server's own routes, if there are batches. */
  let routes: Parameters<NonNullable<BatchPlace["answerer"]>>[0] | undefined;
  const takers: InstanceType<typeof LineWorker>[] = [];
  /** The model that computes a batch: known to all gateways before its first line is queued. */
  let fingerprintOf: (batch: string, model: string) => Promise<string | undefined> = async () =>
    undefined;
  /** Models that lines are taken for. */
  const takersOf = new Set<string>();
  let served: RunningServer | undefined;
  const shared = (place: BatchPlace): BatchPlace => {
    let files: ReturnType<typeof openFiles> | undefined;
    const bucket = (): ReturnType<typeof openFiles> => {
      files ??= openFiles(connection, () => context.downloads.digest("sha256"), log);
      files.catch(() => {
        files = undefined;
      });
      return files;
    };
    const folder = new SharedFolder(place.folder, bucket);
    return {
      ...place,
      ...{ folder, linesAtOnce },
      answerer: (own) => {
        routes = own;
        queue = new LineQueue({
          ...{ connection, own, log },
          modelOf: (body) => lineModel(body, served?.context.models),
          fingerprintOf: (batch, model) => fingerprintOf(batch, model),
          capacity: () =>
            (gateway?.workers.list() ?? []).reduce((sum, one) => sum + one.capacity, 0),
        });
        return queue;
      },
      share: (store, runner) => {
        const state = new SharedBatches({ connection, store, runner, folder, log });
        const told = new Set<string>();
        fingerprintOf = async (batch, model) => {
          const now = (): string | undefined => gateway?.fingerprintOf(model);
          const found = store.fingerprintOf(batch, model, now);
          if (found === undefined || told.has(`${batch} ${model}`)) return found;
          await state.flush();
          told.add(`${batch} ${model}`);
          return found;
        };
        return state;
      },
    };
  };
  return {
    batches: (place) => (place === undefined ? {} : { batches: shared(place) }),
    greeting: `Its models are those of the workers: lantern worker --cluster ${cluster} -m MODEL\n`,
    serveFrom(server) {
      served = server;
      const { models } = server.context;
      gateway = new Gateway({
        connection,
        log,
        onModel: (id, model) => {
          models.add({ id, model, created: Math.floor(Date.now() / 1000) });
        },
        onFingerprint: (model, fingerprint) => {
          const own = routes;
          if (!own || takersOf.has(`${model.id} ${fingerprint}`)) return;
          takersOf.add(`${model.id} ${fingerprint}`);
          const isServed = (): boolean => model.fingerprint === fingerprint;
          const capacity = (): number =>
            isServed() ? Math.min(model.linePlaces(), linesAtOnce) : 0;
          const answerer: typeof own = {
            parallel: () => own.parallel(),
            async answer(...line) {
              const answer = await own.answer(...line);
              // The name now stands for another model: the line goes back.
              return isServed() ? answer : refusal(503, "its workers are gone");
            },
          };
          const lines = { modelId: model.id, fingerprint, answerer, capacity };
          takers.push(new LineWorker({ connection, log, ...lines }));
        },
      });
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(takers.map((taker) => taker.stop()));
      gateway?.close();
      await queue?.close();
      await connection.close();
    },
  };
}

/** The model of a line: as the server finds it; null: no worker has been there yet, and the line names none. */
function lineModel(
  body: Uint8Array,
  models: RunningServer["context"]["models"] | undefined,
): string | undefined | null {
  const { model } = JSON.parse(new TextDecoder().decode(body)) as { model?: unknown };
  const name = typeof model === "string" ? model : undefined;
  if (!models || models.list().length === 0) return name ?? null;
  try {
    return models.find(name).id;
  } catch {
    return undefined;
  }
}
