// Anthropic's /v1/messages/batches, over the same store as OpenAI's batches. Its requests come in the body; they are kept as a file of
// the same form, and results are the lines of its files in Anthropic's words.

import * as z from "zod";
import { type Batch, batchLimits, endStates, type OutputLine } from "../../../batch/batch.ts";
import { piecesOf } from "../../../batch/file-folder.ts";
import { rawLines } from "../../../batch/lines.ts";
import { type BatchFace, inputText, lineEndpoints, orApiError } from "../../batch-service.ts";
import { noRules, readFields } from "../../body.ts";
import { anthropicErrors, invalidRequest } from "../../errors.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { byteStream } from "../../sse.ts";
import { queryFields } from "../lantern/service.ts";

const endpoint: string = lineEndpoints.anthropic[0];
const windowMs = 24 * 3_600_000;

const time = (ms: number | undefined): string | null =>
  ms === undefined ? null : new Date(ms).toISOString();

function batchObject(call: Call, batch: Batch): object {
  const { id, state, counts, at } = batch;
  const isEnded = endStates.has(state);
  const { origin } = call.url;
  return {
    id,
    type: "message_batch",
    processing_status: isEnded
      ? "ended"
      : at.cancelling === undefined
        ? "in_progress"
        : "canceling",
    request_counts: {
      processing: isEnded ? 0 : counts.total - counts.failed - counts.done,
      // Until the end, all count as being processed at Anthropic; known progress is shown here.
      succeeded: counts.done,
      errored: counts.failed,
      canceled: isEnded ? counts.cancelled : 0,
      expired: isEnded ? counts.expired : 0,
    },
    ended_at: isEnded ? time(at[state]) : null,
    created_at: time(batch.createdAt),
    expires_at: time(batch.expiresAt),
    archived_at: null,
    cancel_initiated_at: time(at.cancelling),
    results_url: isEnded ? `${origin}/v1/messages/batches/${id}/results` : null,
  };
}

const newBatch = z.object({
  requests: z
    .array(
      z.strictObject({
        custom_id: z
          .string()
          .regex(/^[a-zA-Z0-9_-]{1,64}$/, "expected 1 to 64 letters, digits, _ or -"),
        params: z.record(z.string(), z.unknown()),
      }),
    )
    .min(1)
    .max(batchLimits.lines),
});

async function create(call: Call, service: BatchFace): Promise<Response> {
  const { requests } = await readFields(call, newBatch, noRules);
  const names = new Set<string>();
  for (const [at, { custom_id: name, params }] of requests.entries()) {
    const where = `requests[${at}]`;
    if (names.has(name)) {
      const message = `"${where}.custom_id": ${JSON.stringify(name)} is that of an earlier request, expected another one for each`;
      throw invalidRequest(message, `${where}.custom_id`);
    }
    names.add(name);
    if (params.stream === true) {
      const message = `"${where}.params.stream": got true, but a batch has whole answers. Leave it out`;
      throw invalidRequest(message, `${where}.params.stream`);
    }
  }
  const owner = await service.owner(call);
  const batch = await orApiError(async () => {
    const { files } = service.store;
    const writer = await files.create({ owner, name: "requests.jsonl", purpose: "batch" });
    try {
      const utf8 = new TextEncoder();
      for (const { custom_id: customId, params } of requests) {
        await writer.write(utf8.encode(inputText({ customId, body: params }, endpoint)));
      }
      await writer.complete();
      return service.store.transaction(() =>
        service.store.create({
          owner,
          api: "anthropic",
          endpoint,
          inputFile: writer.save().id,
          window: "24h",
          windowMs,
          metadata: null,
        }),
      );
    } catch (error) {
      await writer.discard();
      throw error;
    }
  });
  service.runner.wake();
  return json(batchObject(call, batch));
}

/** A line of a result, from a line of an output or error file. */
function resultOf({ custom_id, response, error }: OutputLine): object {
  if (response?.status_code === 200) {
    return { custom_id, result: { type: "succeeded", message: response.body } };
  }
  if (response) return { custom_id, result: { type: "errored", error: response.body } };
  const type = error?.code === "batch_expired" ? "expired" : "canceled";
  return { custom_id, result: { type } };
}

/** Results are read and written as the client takes them. */
function results(service: BatchFace, batch: Batch): Response {
  const { files } = service.store;
  const utf8 = new TextEncoder();
  async function* lines(): AsyncGenerator<Uint8Array> {
    for (const id of [batch.outputFile, batch.errorFile]) {
      if (id === null) continue;
      const pieces = piecesOf(files.folder, files.get(id, batch.owner));
      for await (const { bytes } of rawLines(pieces)) {
        const line = JSON.parse(new TextDecoder().decode(bytes)) as OutputLine;
        yield utf8.encode(`${JSON.stringify(resultOf(line))}\n`);
      }
    }
  }
  return byteStream(lines(), { "content-type": "application/x-jsonl" });
}

const listQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1000).default(20),
  after_id: z.string().max(200).exactOptional(),
  before_id: z.string().max(200).exactOptional(),
});

export function anthropicBatchRoutes(service: BatchFace): RouteFamily {
  const api = "anthropic";
  const find = async (call: Call): Promise<Batch> => {
    const owner = await service.owner(call);
    return await orApiError(() => service.store.batch(call.params.id!, { owner, api }));
  };
  const path = "/v1/messages/batches";
  return {
    name: "anthropic-batches",
    errors: anthropicErrors,
    routes: [
      { method: "POST", path, access: "use", handle: (call) => create(call, service) },
      {
        method: "GET",
        path,
        access: "use",
        handle: async (call) => {
          const { after_id: after, before_id: before, limit } = queryFields(call, listQuery);
          const owner = await service.owner(call);
          const { items, hasMore } = await orApiError(() =>
            service.store.list({ limit, after, before }, { owner, api }),
          );
          return json({
            data: items.map((batch) => batchObject(call, batch)),
            has_more: hasMore,
            first_id: items[0]?.id ?? null,
            last_id: items.at(-1)?.id ?? null,
          });
        },
      },
      {
        method: "GET",
        path: `${path}/:id`,
        access: "use",
        handle: async (call) => json(batchObject(call, await find(call))),
      },
      {
        method: "GET",
        path: `${path}/:id/results`,
        access: "use",
        handle: async (call) => {
          const batch = await find(call);
          if (endStates.has(batch.state)) return results(service, batch);
          throw invalidRequest(
            `batch ${batch.id} is ${batch.state}: its results are there when it has ended`,
          );
        },
      },
      {
        method: "POST",
        path: `${path}/:id/cancel`,
        access: "use",
        handle: async (call) => {
          const { id } = await find(call);
          return json(batchObject(call, await orApiError(() => service.runner.cancel(id))));
        },
      },
      {
        method: "DELETE",
        path: `${path}/:id`,
        access: "use",
        handle: async (call) => {
          const batch = await find(call);
          await orApiError(() => service.store.delete(batch.id, { owner: batch.owner, api }));
          for (const file of [batch.inputFile, batch.outputFile, batch.errorFile]) {
            if (file === null) continue;
            await orApiError(() => service.store.files.delete(file, batch.owner)).catch(() => {}); // deleted before
          }
          return json({ id: batch.id, type: "message_batch_deleted" });
        },
      },
    ],
  };
}
