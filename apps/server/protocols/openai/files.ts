// OpenAI's /v1/files: the inputs and outputs of batches. A file belongs to the API key that uploaded it.

import * as z from "zod";
import { batchLimits, filePurposes, type StoredFile } from "../../../batch/batch.ts";
import { piecesOf } from "../../../batch/file-folder.ts";
import type { FileWriter } from "../../../batch/stored-files.ts";
import { type BatchFace, orApiError } from "../../batch-service.ts";
import { invalidRequest, openaiErrors, unsupportedField } from "../../errors.ts";
import { readMultipart } from "../../multipart.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { byteStream } from "../../sse.ts";
import { queryFields } from "../lantern/service.ts";

const seconds = (ms: number): number => Math.floor(ms / 1000);

function fileObject(file: StoredFile): object {
  return {
    id: file.id,
    object: "file",
    bytes: file.bytes,
    created_at: seconds(file.createdAt),
    ...(file.expiresAt !== null && { expires_at: seconds(file.expiresAt) }),
    filename: file.name,
    purpose: file.purpose,
    status: "processed",
    status_details: null,
  };
}

const listQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(10_000).default(10_000),
  after: z.string().max(200).exactOptional(),
  order: z.enum(["asc", "desc"]).default("desc"),
  purpose: z.string().max(100).exactOptional(),
});

/** expires_after[seconds], as OpenAI limits it. */
const lifetime = z.coerce.number().int().min(3600).max(2_592_000);

const knownFields: readonly string[] = [
  "purpose",
  "expires_after[anchor]",
  "expires_after[seconds]",
];

async function upload(call: Call, service: BatchFace): Promise<Response> {
  const owner = await service.owner(call);
  const limit = batchLimits.fileBytes + 65_536;
  if (Number(call.request.headers.get("content-length") ?? 0) > limit) {
    throw invalidRequest(
      `the upload is larger than ${batchLimits.fileBytes} bytes, which is the limit. Divide it into several files`,
      "file",
    );
  }
  let writer: FileWriter | undefined;
  try {
    const form = readMultipart(call.request, {
      onFile: async (part) => {
        if (part.field !== "file" || writer) {
          throw invalidRequest(
            `the form has ${writer ? "two files" : `a file in ${JSON.stringify(part.field.slice(0, 100))}`}, expected one, in "file"`,
            "file",
          );
        }
        const name = part.name.replace(/^.*[/\\]/s, "").slice(0, 255) || "file.jsonl";
        writer = await orApiError(() =>
          service.store.files.create({ owner, name, purpose: "batch" }),
        );
        return writer;
      },
    });
    const fields = await orApiError(() => form);
    for (const field of fields.keys()) {
      if (!knownFields.includes(field))
        throw unsupportedField(field.slice(0, 100), "it is unknown");
    }
    const purpose = fields.get("purpose");
    if (purpose !== "batch") {
      const got = purpose === undefined ? "nothing" : JSON.stringify(purpose.slice(0, 100));
      throw invalidRequest(
        `"purpose": got ${got}, expected "batch": files are for batches here`,
        "purpose",
      );
    }
    if (!writer) throw invalidRequest('"file": the form has no file', "file");
    const asked = fields.get("expires_after[seconds]");
    const lives = asked === undefined ? undefined : lifetime.safeParse(asked);
    if (lives && !lives.success) {
      throw invalidRequest(
        `"expires_after[seconds]": got ${JSON.stringify(asked!.slice(0, 100))}, expected 3600 to 2592000`,
        "expires_after[seconds]",
      );
    }
    const done = writer;
    const expiresAt = lives ? call.server.time() + lives.data * 1000 : null;
    return json(fileObject(await orApiError(() => done.finish(expiresAt))));
  } catch (error) {
    await writer?.discard();
    throw error;
  }
}

async function list(call: Call, service: BatchFace): Promise<Response> {
  const { purpose, order, ...page } = queryFields(call, listQuery);
  if (purpose !== undefined && !filePurposes.some((known) => known === purpose)) {
    return json({ object: "list", data: [], has_more: false, first_id: null, last_id: null });
  }
  const owner = await service.owner(call);
  const { items, hasMore } = await orApiError(() =>
    service.store.files.list({ ...page, oldestFirst: order === "asc" }, { owner, purpose }),
  );
  return json({
    object: "list",
    data: items.map(fileObject),
    has_more: hasMore,
    first_id: items[0]?.id ?? null,
    last_id: items.at(-1)?.id ?? null,
  });
}

/** A file's bytes, read as the client takes them. */
function fileResponse(service: BatchFace, file: StoredFile): Response {
  const quoted = file.name.replaceAll(/[^\w .-]/g, "_");
  return byteStream(piecesOf(service.store.files.folder, file), {
    // Never text/html: an upload is data, and no page of this server.
    "content-type": "application/octet-stream",
    "content-disposition": `attachment; filename="${quoted}"`,
    "content-length": String(file.bytes),
  });
}

export function openaiFileRoutes(service: BatchFace): RouteFamily {
  const find = async (call: Call): Promise<StoredFile> => {
    const owner = await service.owner(call);
    return await orApiError(() => service.store.files.get(call.params.id!, owner));
  };
  return {
    name: "openai-files",
    errors: openaiErrors,
    routes: [
      { method: "POST", path: "/v1/files", access: "use", handle: (call) => upload(call, service) },
      { method: "GET", path: "/v1/files", access: "use", handle: (call) => list(call, service) },
      {
        method: "GET",
        path: "/v1/files/:id",
        access: "use",
        handle: async (call) => json(fileObject(await find(call))),
      },
      {
        method: "GET",
        path: "/v1/files/:id/content",
        access: "use",
        handle: async (call) => fileResponse(service, await find(call)),
      },
      {
        method: "DELETE",
        path: "/v1/files/:id",
        access: "use",
        handle: async (call) => {
          const { id, owner } = await find(call);
          await orApiError(() => service.store.files.delete(id, owner));
          return json({ id, object: "file", deleted: true });
        },
      },
    ],
  };
}
