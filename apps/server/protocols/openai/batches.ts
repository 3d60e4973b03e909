// OpenAI's /v1/batches: many requests in a file, answered when there is time.

import * as z from "zod";
import type { Batch, BatchState } from "../../../batch/batch.ts";
import { type BatchFace, lineEndpoints, orApiError } from "../../batch-service.ts";
import { type FieldRules, readFields } from "../../body.ts";
import { invalidRequest, openaiErrors } from "../../errors.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { queryFields } from "../lantern/service.ts";

const seconds = (ms: number | undefined): number | null =>
  ms === undefined ? null : Math.floor(ms / 1000);

function batchObject(batch: Batch): object {
  const { counts, usage, at } = batch;
  const time = (state: BatchState): number | null => seconds(at[state]);
  return {
    id: batch.id,
    object: "batch",
    endpoint: batch.endpoint,
    model: batch.model,
    errors: batch.errors.length === 0 ? null : { object: "list", data: batch.errors },
    input_file_id: batch.inputFile,
    completion_window: batch.window,
    status: batch.state,
    output_file_id: batch.outputFile,
    error_file_id: batch.errorFile,
    created_at: seconds(batch.createdAt),
    in_progress_at: time("in_progress"),
    expires_at: seconds(batch.expiresAt),
    finalizing_at: time("finalizing"),
    completed_at: time("completed"),
    failed_at: time("failed"),
    expired_at: time("expired"),
    cancelling_at: time("cancelling"),
    cancelled_at: time("cancelled"),
    request_counts: {
      total: counts.total,
      completed: counts.done,
      failed: counts.failed + counts.cancelled + counts.expired,
    },
    usage: {
      input_tokens: usage.input,
      input_tokens_details: { cached_tokens: usage.cached },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.input + usage.output,
    },
    metadata: batch.metadata,
  };
}

const newBatch = z.object({
  input_file_id: z.string().max(200),
  endpoint: z.enum(lineEndpoints.openai),
  completion_window: z.string().regex(/^\d{1,4}[hd]$/, 'expected hours or days, such as "24h"'),
  metadata: z
    .record(z.string().max(64), z.string().max(512))
    .refine((value) => Object.keys(value).length <= 16, "expected at most 16 entries")
    .optional(),
});

const rules: FieldRules = {
  accepted: [],
  refused: { output_expires_after: { why: "output files are kept until they are deleted" } },
};

const hourMs = 3_600_000;
const mostHours = 24 * 30;

/** "24h", "7d" */
function windowMs(text: string): number {
  const hours = Number.parseInt(text, 10) * (text.endsWith("d") ? 24 : 1);
  if (hours >= 1 && hours <= mostHours) return hours * hourMs;
  throw invalidRequest(
    `"completion_window": got ${JSON.stringify(text)}, expected 1h to ${mostHours}h`,
    "completion_window",
  );
}

async function create(call: Call, service: BatchFace): Promise<Response> {
  const fields = await readFields(call, newBatch, rules);
  const owner = await service.owner(call);
  const batch = await orApiError(() =>
    service.store.create({
      owner,
      api: "openai",
      endpoint: fields.endpoint,
      inputFile: fields.input_file_id,
      window: fields.completion_window,
      windowMs: windowMs(fields.completion_window),
      metadata: fields.metadata ?? null,
    }),
  );
  service.runner.wake();
  return json(batchObject(batch));
}

const listQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(20),
  after: z.string().max(200).exactOptional(),
});

export function openaiBatchRoutes(service: BatchFace): RouteFamily {
  const api = "openai";
  return {
    name: "openai-batches",
    errors: openaiErrors,
    routes: [
      {
        method: "POST",
        path: "/v1/batches",
        access: "use",
        handle: (call) => create(call, service),
      },
      {
        method: "GET",
        path: "/v1/batches",
        access: "use",
        handle: async (call) => {
          const owner = await service.owner(call);
          const page = queryFields(call, listQuery);
          const { items, hasMore } = await orApiError(() =>
            service.store.list(page, { owner, api }),
          );
          return json({
            object: "list",
            data: items.map(batchObject),
            first_id: items[0]?.id ?? null,
            last_id: items.at(-1)?.id ?? null,
            has_more: hasMore,
          });
        },
      },
      {
        method: "GET",
        path: "/v1/batches/:id",
        access: "use",
        handle: async (call) => {
          const owner = await service.owner(call);
          const by = { owner, api } as const;
          return json(
            batchObject(await orApiError(() => service.store.batch(call.params.id!, by))),
          );
        },
      },
      {
        method: "POST",
        path: "/v1/batches/:id/cancel",
        access: "use",
        handle: async (call) => {
          const owner = await service.owner(call);
          const { id, state } = await orApiError(() =>
            service.store.batch(call.params.id!, { owner, api }),
          );
          const batch = await orApiError(() => service.runner.cancel(id));
          if (batch.state !== "cancelling" && batch.state !== "cancelled") {
            throw invalidRequest(
              `batch ${id} is ${state}, expected validating or in_progress: it cannot be cancelled any more`,
              null,
              "not_cancellable",
            );
          }
          return json(batchObject(batch));
        },
      },
    ],
  };
}
