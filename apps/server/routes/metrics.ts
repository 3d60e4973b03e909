// /metrics: counters for Prometheus, and the fill level of the queue and of the models' caches.

import type { EngineStatus, ExpertReads, ModelHealth } from "../../../src/index.ts";
import type { ServerContext } from "../context.ts";
import { notSupported, openaiErrors } from "../errors.ts";
import { type GaugeReading, metricsText } from "../metrics.ts";
import type { RouteFamily } from "../route.ts";
import type { UsageSample } from "../usage.ts";
import { vllmGauges } from "../vllm-metrics.ts";

/** The status of each model; skips one that is being closed or whose engine does not answer. */
async function statuses({ models }: ServerContext): Promise<[string, EngineStatus][]> {
  const asked = models.list().map(async ({ id, model }): Promise<[string, EngineStatus][]> => {
    const { status: state } = await model.health();
    const status = state === "ok" ? await model.status().catch(() => undefined) : undefined;
    return status ? [[id, status]] : [];
  });
  return (await Promise.all(asked)).flat();
}

/** The health of each model's engine, and how often it was restarted. */
async function engines({ models }: ServerContext): Promise<GaugeReading[]> {
  const asked = models.list().map(async ({ id, model }) => ({
    labels: { model: id },
    ...(await model.health()),
  }));
  const all = await Promise.all(asked);
  return [
    {
      name: "lantern_engine_up",
      help: "Whether the model's engine responds (1) or not (0).",
      values: all.map(({ labels, status }) => ({ labels, value: status === "ok" ? 1 : 0 })),
    },
    {
      name: "lantern_engine_restarts_total",
      help: "How often an engine that had stopped or hung was restarted.",
      type: "counter",
      values: all.map(({ labels, restarts }) => ({ labels, value: restarts })),
    },
    ...clusterWorkers(all),
  ];
}

/** The workers of models that a cluster computes. */
function clusterWorkers(
  all: readonly (ModelHealth & { labels: { model: string } })[],
): GaugeReading[] {
  const values = all.flatMap(({ labels, workers = [] }) =>
    workers.map(({ fingerprint, count, isServed }) => ({
      labels: { ...labels, fingerprint, served: String(isServed) },
      value: count,
    })),
  );
  if (values.length === 0) return [];
  const help =
    "Workers that announce the model's name, by what identifies their model; served: whether they get requests.";
  return [{ name: "lantern_cluster_workers", help, values }];
}

function gauges({ queue }: ServerContext, all: [string, EngineStatus][]): GaugeReading[] {
  const one = (name: string, help: string, value: number): GaugeReading => ({
    name,
    help,
    values: [{ value }],
  });
  const perModel = (name: string, help: string, of: (status: EngineStatus) => number) => ({
    name,
    help,
    values: all.map(([model, status]) => ({ value: of(status), labels: { model } })),
  });
  return [
    one("lantern_running", "Generations that run now.", queue.running),
    one("lantern_waiting", "Generations that wait for their turn.", queue.waiting),
    one("lantern_parallel", "Generations that may run at once.", queue.parallel),
    perModel(
      "lantern_engine_waiting",
      "Running generations that wait for space in the KV cache.",
      (status) => status.waiting,
    ),
    perModel(
      "lantern_kv_blocks",
      "Blocks that the KV cache may grow to.",
      (status) => status.kvBlocks,
    ),
    perModel(
      "lantern_kv_blocks_held",
      "Of them, those that it has memory for now.",
      (status) => status.kvBlocksHeld,
    ),
    perModel(
      "lantern_kv_blocks_used",
      "Of them, in use by running generations or kept for later prompts.",
      (status) => status.kvBlocksUsed,
    ),
    perModel(
      "lantern_kv_blocks_reserved",
      "Of them, what running generations may use.",
      (status) => status.kvBlocksReserved,
    ),
    perModel(
      "lantern_cached_sequences",
      "Sequences that are kept, so that prompts that begin with them are not computed again.",
      (status) => status.cachedSequences,
    ),
  ];
}

/** Counters of the models' caches: tokens and bytes by tier, evictions of each, recomputed tokens and why. */
function caches(all: [string, EngineStatus][]): GaugeReading[] {
  type Parts = Readonly<Record<string, number>>;
  const counter = (
    name: string,
    help: string,
    label: string,
    of: (cache: EngineStatus["cache"]) => Parts,
    type: "counter" | "gauge" = "counter",
  ): GaugeReading => ({
    name: `lantern_cache_${name}`,
    help,
    type,
    values: all.flatMap(([model, { cache }]) =>
      Object.entries(of(cache)).map(([part, value]) => ({
        value,
        labels: { model, [label]: part },
      })),
    ),
  });
  const tokens = "Tokens of prompts, by where their state came from; computed: nowhere.";
  const again = "Tokens of prompts that were computed although they were known once, by reason.";
  return [
    counter("tokens_total", tokens, "tier", ({ tokens }) => tokens),
    counter("computed_again_tokens_total", again, "reason", ({ computedAgain }) => computedAgain),
    counter("restored_bytes_total", "Bytes copied back, by tier.", "tier", (cache) => ({
      ...cache.restoredBytes,
    })),
    counter("written_bytes_total", "Bytes written to disk.", "tier", ({ writtenBytes }) => ({
      disk: writtenBytes,
    })),
    counter(
      "evicted_total",
      "Sequences of the KV cache, units in memory and files on disk that were evicted.",
      "tier",
      ({ evicted }) => ({ ...evicted }),
    ),
    counter("damaged_total", "Damaged pieces of files, not used.", "tier", ({ damaged }) => ({
      disk: damaged,
    })),
    counter(
      "bytes",
      "Bytes held, by tier; on disk: of all models.",
      "tier",
      ({ ram, disk }) => ({ ram: ram.bytes, disk: disk.bytes }),
      "gauge",
    ),
    counter(
      "budget_bytes",
      "Bytes that may be held, by tier.",
      "tier",
      ({ ram, disk }) => ({ ram: ram.budgetBytes, disk: disk.budgetBytes }),
      "gauge",
    ),
  ];
}

/** Experts that are read on demand, of models that do so (docs/use/memory.md). */
function experts(all: [string, EngineStatus][]): GaugeReading[] {
  const counter = (name: string, help: string, of: (reads: ExpertReads) => number) => ({
    name: `lantern_expert_${name}`,
    help,
    type: "counter" as const,
    values: all.flatMap(([model, { experts: reads }]) =>
      reads ? [{ value: of(reads), labels: { model } }] : [],
    ),
  });
  return [
    counter("hits_total", "Uses of experts that were in memory.", ({ hits }) => hits),
    counter("misses_total", "Experts that were read from disk.", ({ misses }) => misses),
    counter("read_bytes_total", "Bytes of experts read from disk.", ({ readBytes }) => readBytes),
    counter(
      "wait_seconds_total",
      "Time that threads waited for experts.",
      ({ waitMs }) => waitMs / 1000,
    ),
    counter(
      "guessed_total",
      "Experts read before their layer's routes were known.",
      ({ guessed }) => guessed,
    ),
    counter(
      "guessed_right_total",
      "Experts read ahead that their layer used.",
      ({ guessedRight }) => guessedRight,
    ),
  ].filter(({ values }) => values.length > 0);
}

/** Batches that were begun before their tokens were known, of models on a GPU (docs/inside/gpu-tokens.md). */
function lookaheads(all: [string, EngineStatus][]): GaugeReading[] {
  const counter = (part: "submitted" | "dropped", help: string) => ({
    name: `lantern_lookahead_${part}_total`,
    help,
    type: "counter" as const,
    values: all.flatMap(([model, { lookahead }]) =>
      lookahead ? [{ value: lookahead[part], labels: { model } }] : [],
    ),
  });
  return [
    counter("submitted", "Batches that a GPU began before their tokens were known."),
    counter("dropped", "Of them, those that nobody asked for."),
  ].filter(({ values }) => values.length > 0);
}

/** Memory by purpose, and the load of processors and devices: from the last sample (usage.ts). */
function usage({ models, machine }: UsageSample): GaugeReading[] {
  const memory = models.flatMap(({ id: model, weightBytes, kvBytes, scratchBytes }) => [
    { labels: { model, kind: "weights" }, value: weightBytes },
    { labels: { model, kind: "kv" }, value: kvBytes },
    { labels: { model, kind: "scratch" }, value: scratchBytes },
  ]);
  const gauge = (name: string, help: string, value: number | null): GaugeReading[] =>
    value === null ? [] : [{ name, help, values: [{ value }] }];
  const busy = models.flatMap(({ id: model, busy: value }) =>
    value === null ? [] : [{ labels: { model }, value }],
  );
  return [
    { name: "lantern_memory_bytes", help: "Memory of a model, by purpose.", values: memory },
    {
      name: "lantern_model_busy_ratio",
      help: "Share of the time in which a model's threads or GPU computed; with --profile only.",
      values: busy,
    },
    ...(machine
      ? [
          ...gauge("lantern_machine_memory_bytes", "Memory of the machine.", machine.memoryBytes),
          ...gauge(
            "lantern_machine_memory_available_bytes",
            "Memory that programs can still take.",
            machine.availableBytes,
          ),
          ...gauge("lantern_resident_bytes", "Memory of this process.", machine.residentBytes),
          ...gauge(
            "lantern_cpu_ratio",
            "Share of all cores that this process used.",
            machine.ownCpu,
          ),
          ...gauge("lantern_machine_cpu_ratio", "Share of all cores in use.", machine.cpu),
        ]
      : []),
  ];
}

export const metricsRoutes: RouteFamily = {
  name: "metrics",
  errors: openaiErrors,
  routes: [
    {
      method: "GET",
      path: "/metrics",
      access: "use",
      handle: async ({ server }) => {
        if (!server.settings.metrics) {
          throw notSupported("the server was started with --no-metrics, so it has no metrics");
        }
        const [all, lives, sample] = await Promise.all([
          statuses(server),
          engines(server),
          server.usage.latest(),
        ]);
        const readings = [
          ...gauges(server, all),
          ...caches(all),
          ...experts(all),
          ...lookaheads(all),
          ...usage(sample),
          ...lives,
          ...vllmGauges(server.queue, all),
        ];
        const own = metricsText(server.metrics, readings, server.models.hadSeveral);
        const theirs = server.metrics.llamacpp.read(
          server.queue,
          all.map(([, status]) => status),
        );
        return new Response(own + theirs, {
          headers: {
            "content-type": "text/plain; version=0.0.4",
            "process-start-time-unix": `${server.started}`,
          },
        });
      },
    },
  ],
};
