// The metrics that Kubernetes' Gateway API Inference Extension routes by, under vLLM's names, which are its default (its model server protocol:
// TotalQueuedRequests, TotalRunningRequests, KVCacheUtilization, and the block size for prefix routing). There is no vllm:lora_requests_info:
// adapters are not served by name.

import type { EngineStatus } from "../../src/index.ts";
import type { GaugeReading } from "./metrics.ts";
import type { AdmissionQueue } from "./queue.ts";

/** `all`: the models, and their engines' status. Requests in the server's queue have no model yet: they count for each. */
export function vllmGauges(
  queue: Pick<AdmissionQueue, "waiting">,
  all: readonly (readonly [string, EngineStatus])[],
): GaugeReading[] {
  const gauge = (
    name: string,
    help: string,
    of: (status: EngineStatus) => number,
    labels: (status: EngineStatus) => Readonly<Record<string, string>> = () => ({}),
  ): GaugeReading => ({
    ...{ name: `vllm:${name}`, help },
    values: all.map(([model, status]) => ({
      ...{ value: of(status), labels: { model_name: model, ...labels(status) } },
    })),
  });
  return [
    gauge(
      "num_requests_waiting",
      "Generations that wait, in the queue and for the KV cache.",
      ({ waiting }) => queue.waiting + waiting,
    ),
    gauge("num_requests_running", "Generations that run.", ({ running }) => running),
    gauge(
      "kv_cache_usage_perc",
      "Share of the KV cache that running generations have reserved, 0 to 1.",
      ({ kvBlocks, kvBlocksReserved }) => (kvBlocks > 0 ? kvBlocksReserved / kvBlocks : 0),
    ),
    gauge(
      "cache_config_info",
      "Tokens of a block of the KV cache, and how many blocks there are.",
      () => 1,
      ({ kvBlockTokens, kvBlocks }) => ({
        ...{ block_size: String(kvBlockTokens), num_gpu_blocks: String(kvBlocks) },
      }),
    ),
  ];
}
