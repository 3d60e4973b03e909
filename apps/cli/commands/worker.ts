// lantern worker: a model that computes for the gateways of a cluster, over NATS (docs/use/cluster.md). It listens on no port. The gateway is
// `lantern serve --cluster`.

import { atMost } from "../../../src/base/at-most.ts";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import { AbortedError, UsageError } from "../../../src/index.ts";
import { packageVersion } from "../../../src/platform/node-cli.ts";
import { addClusterFlags, type ClusterFlags, joinCluster } from "../cluster-flags.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { templateHelp } from "../flag-help.ts";
import { numberFlag, onceFlag } from "../flag-values.ts";
import { addModelFlags, addStateCacheFlags, type ModelFlags, modelOf } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { openModel } from "../load-model.ts";
import { lastPart } from "../serve-models.ts";

/** How long NATS may take to answer the last request. */
const unansweredMs = 3000;

interface WorkerFlags extends ModelFlags, ClusterFlags {
  alias?: string;
  parallel: number;
  grace: number;
  json?: boolean;
}

export const workerCommand: CommandBody = {
  examples: [
    "lantern worker --cluster nats://10.0.0.1:4222 -m tinyllama-chat",
    "LANTERN_CLUSTER_USER=worker LANTERN_CLUSTER_PASSWORD=secret lantern worker --cluster tls://nats:4222 --cluster-ca ca.pem -m tinyllama-chat",
  ],
  define(command, context) {
    addClusterFlags(
      addStateCacheFlags(
        addModelFlags(command, defaultModel, { warmup: true, usesGpu: true }),
        true,
      ),
    )
      .option("--template <name>", `${templateHelp} (default: the model's own)`)
      .option(
        "-a, --alias <name>",
        "name of the model for clients, the same on all of its workers (default: its own name, or its file's)",
        onceFlag,
      )
      .option(
        "--parallel <n>",
        "how many requests are answered at the same time (also: -np)",
        numberFlag({ integer: true, min: 1, max: 1024 }),
        8,
      )
      .option(
        "--grace <s>",
        "how long running requests may take after Ctrl-C, in seconds",
        numberFlag({ min: 0 }),
        5,
      )
      .option("--json", "print one JSON object when the worker is ready: worker, model")
      .action((flags: WorkerFlags) => work(flags, context));
  },
};

async function work(flags: WorkerFlags, context: CliContext): Promise<void> {
  const { terminal, log } = context;
  const { cluster } = flags;
  if (cluster === undefined) {
    throw new UsageError(
      "worker: got no --cluster, expected the NATS servers of the cluster, as in --cluster nats://10.0.0.1:4222. On one machine, lantern serve needs none",
    );
  }
  using interrupt = interruptible(terminal);
  const connection = await joinCluster({ ...flags, cluster }, "worker", context);
  await using _connection = { [Symbol.asyncDispose]: () => connection.close() };
  const name = modelOf(flags);
  const given = { ...flags, restart: true };
  await using model = await openModel(name, given, context, interrupt.signal);
  const modelId = flags.alias ?? lastPart(name).replace(/\.(gguf|bin)$/i, "");
  const { ClusterWorker } = await import("../../cluster/worker.ts");
  const { LineWorker } = await import("../../cluster/line-worker.ts");
  const { localRoutes } = await import("../../server/serve.ts");
  const capacity = flags.parallel;
  const version = packageVersion();
  const say = (line: string): void => log.error(`lantern: ${line}\n`);
  const worker = new ClusterWorker({
    ...{ connection, model, modelId, capacity, version, log: say },
  });
  const end = new AbortController();
  const served = { models: { [modelId]: model }, version, parallel: capacity, log: say };
  const lines = new LineWorker({
    ...{ connection, modelId, fingerprint: worker.fingerprint, log: say },
    capacity: () => capacity,
    answerer: localRoutes(served, end.signal),
    onLoad: (count) => {
      worker.lines = count;
    },
  });
  const stop = async (graceMs: number): Promise<void> => {
    const stopped = Promise.all([lines.stop(), worker.stop(graceMs)]);
    await atMost(graceMs + unansweredMs, stopped);
    // NATS is away: no request is answered, and no message can be sent.
    await connection.close();
    await stopped;
    end.abort();
  };
  try {
    await worker.ready(interrupt.signal);
    terminal.outliveReaders();
    if (flags.json) {
      terminal.out(`${JSON.stringify({ worker: worker.id, model: modelId })}\n`);
    } else {
      terminal.out(`${modelId} computes for the cluster at ${cluster}\nCtrl-C stops it.\n`);
    }
    const { promise: ended, resolve } = Promise.withResolvers<unknown>();
    interrupt.signal.addEventListener("abort", resolve, { once: true });
    if (interrupt.signal.aborted) resolve(undefined);
    const problem = await Promise.race([ended, connection.closed()]);
    if (problem instanceof Error && !interrupt.signal.aborted) throw problem;
  } catch (error) {
    // No more messages are sent or received: all waits for NATS end.
    await connection.close();
    await stop(0);
    throw interrupt.signal.aborted ? new AbortedError("the worker") : error;
  }
  terminal.err("\nStopping when the running requests are done. Press Ctrl-C again to stop now.\n");
  await stop(flags.grace * 1000);
}
