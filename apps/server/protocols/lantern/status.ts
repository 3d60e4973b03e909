// The current state of this server, for `lantern ps`: models, their memory, and the number of running requests.

import type { EngineStatus } from "../../../../src/index.ts";
import type { ServedModel, ServerContext } from "../../context.ts";
import { openaiErrors } from "../../errors.ts";
import { json, type RouteFamily } from "../../route.ts";
import { deviceOf } from "../../usage.ts";

export interface ServerStatus {
  version: string;
  models: ModelStatus[];
  /** Running requests of all models together. */
  running: number;
  waiting: number;
}

export interface ModelStatus {
  id: string;
  architecture: string;
  parameters: number;
  weightType: string;
  weightBytes: number;
  /** Current size of the KV cache, and its limit. */
  cacheBytes: number;
  cacheBytesAtMost: number;
  /** The buffers of all batches. */
  scratchBytes: number;
  /** The GPU that holds it, or a part of it; null: all of it is in the machine's memory. */
  device: string | null;
  contextSize: number;
  backend: string;
  threads: number;
  /** Running answers, and waiting requests. */
  running: number;
  waiting: number;
  /** The contents and counters of its KV cache and its copies. */
  cache: EngineStatus["cache"];
}

export const lanternStatusRoutes: RouteFamily = {
  name: "lantern-status",
  errors: openaiErrors,
  routes: [
    {
      method: "GET",
      path: "/lantern/v1/status",
      access: "use",
      handle: async ({ server }) => json(await serverStatus(server)),
    },
  ],
};

async function serverStatus(server: ServerContext): Promise<ServerStatus> {
  const { models, queue, settings } = server;
  return {
    version: settings.version,
    models: await Promise.all(models.list().map(modelStatus)),
    running: queue.running,
    waiting: queue.waiting,
  };
}

async function modelStatus({ id, model }: ServedModel): Promise<ModelStatus> {
  const { architecture, parameters, weightType, weightBytes, contextSize, backend } = model.info;
  const { running, waiting, stateBytes, stateBytesHeld, memory, cache } = await model.status();
  return {
    id,
    architecture,
    parameters,
    weightType,
    weightBytes,
    cacheBytes: stateBytesHeld,
    cacheBytesAtMost: stateBytes,
    scratchBytes: memory.workBytes,
    device: deviceOf(model.info),
    contextSize,
    backend: backend.name,
    threads: backend.threads,
    running,
    waiting,
    cache,
  };
}
