// Models over HTTP, for the web app: the list, downloads and loads with their progress, unloading and deleting, the
// hub, and files of this machine. Long work is a task: it is started, polled, and can be stopped.
//
// Folders and paths are for this machine's own user: those routes work only if the server listens on this machine
// alone, and only for the app itself, regardless of the origins that --cors allows.

import * as z from "zod";
import { heldTypes, kvTypes, LanternError, UsageError } from "../../../../src/index.ts";
import { inPageWords } from "../../../../src/options/names.ts";
import type { ServerContext } from "../../context.ts";
import { ApiError, openaiErrors } from "../../errors.ts";
import type { ModelLibrary } from "../../models/library.ts";
import { ModelService } from "../../models/service.ts";
import { type Call, json, type OpenedFamilies, type RouteFamily } from "../../route.ts";
import { bodyFields, queryFields } from "./service.ts";

const name = z.string().min(1).max(500);
const named = z.strictObject({ name });
const loadOptions = {
  contextSize: z.int().min(32).max(1_048_576).nullable().exactOptional(),
  kvType: z
    .union([z.enum(kvTypes), z.strictObject({ k: z.enum(kvTypes), v: z.enum(kvTypes) })])
    .nullable()
    .exactOptional(),
  weights: z.enum(heldTypes).nullable().exactOptional(),
};
const loading = z.strictObject({
  name,
  ...loadOptions,
  chatTemplate: z.enum(["chatml", "llama2", "zephyr"]).nullable().exactOptional(),
  threads: z.int().min(1).max(256).nullable().exactOptional(),
  gpuLayers: z
    .union([z.int().min(0).max(10_000), z.enum(["all", "auto"])])
    .nullable()
    .exactOptional(),
  gpuFor: z.enum(["prompt", "generation", "auto"]).nullable().exactOptional(),
});
const planning = z.strictObject({ name, ...loadOptions });
const path = z.string().min(1).max(4096);
const searching = z.strictObject({ q: z.string().min(1).max(200) });
const repository = z.strictObject({ name });
const browsing = z.strictObject({ path: path.exactOptional() });
const finding = z.strictObject({ name, bytes: z.int().min(1) });
const linking = z.strictObject({ path });

/** Closing them stops running tasks and disposes the models that were opened here. */
export function modelRoutes(server: ServerContext, library: ModelLibrary): OpenedFamilies {
  const service = new ModelService(server, library);
  server.models.loadWith(service);
  const models = "/lantern/v1/models";
  /** Runs an action on a named model; responds with the new list. */
  const act =
    (work: (name: string) => Promise<void>, status = 200) =>
    async (call: Call): Promise<Response> => {
      const fields = await bodyFields(call, named);
      await explained(work(fields.name));
      return json(await service.view(), status);
    };
  const family: RouteFamily = {
    name: "lantern-models",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: models,
        access: "admin",
        handle: async () => json(await service.view()),
      },
      {
        method: "POST",
        path: `${models}/download`,
        access: "admin",
        handle: act((wanted) => service.download(wanted), 202),
      },
      {
        method: "POST",
        path: `${models}/load`,
        access: "admin",
        handle: async (call) => {
          const { name: wanted, ...options } = await bodyFields(call, loading);
          await service.load(wanted, options);
          return json(await service.view(), 202);
        },
      },
      {
        method: "POST",
        path: `${models}/cancel`,
        access: "admin",
        handle: act((one) => service.cancel(one)),
      },
      {
        method: "POST",
        path: `${models}/unload`,
        access: "admin",
        handle: act((one) => service.unload(one)),
      },
      {
        method: "POST",
        path: `${models}/delete`,
        access: "admin",
        handle: act((one) => service.delete(one)),
      },
      {
        method: "POST",
        path: `${models}/plan`,
        access: "admin",
        handle: async (call) => {
          const { name: wanted, ...options } = await bodyFields(call, planning);
          return json(await explained(service.plan(wanted, options)));
        },
      },
      {
        method: "GET",
        path: `${models}/search`,
        access: "admin",
        handle: async (call) => {
          const { q } = queryFields(call, searching);
          return json({ found: await explained(library.search(q, call.signal)) });
        },
      },
      {
        method: "GET",
        path: `${models}/variants`,
        access: "admin",
        handle: async (call) => {
          const { name: wanted } = queryFields(call, repository);
          return json({ variants: await explained(library.variants(wanted, call.signal)) });
        },
      },
      {
        method: "GET",
        path: `${models}/folder`,
        access: "admin",
        handle: async (call) => {
          checkLocal(call, service);
          return json(await explained(library.folder(queryFields(call, browsing).path)));
        },
      },
      {
        method: "POST",
        path: `${models}/find`,
        access: "admin",
        handle: async (call) => {
          checkLocal(call, service);
          const fields = await bodyFields(call, finding);
          return json({ paths: await explained(library.findFile(fields.name, fields.bytes)) });
        },
      },
      {
        method: "POST",
        path: `${models}/link`,
        access: "admin",
        handle: async (call) => {
          checkLocal(call, service);
          const fields = await bodyFields(call, linking);
          const linked = await explained(library.link(fields.path));
          return json({ name: linked, list: await service.view() });
        },
      },
    ],
  };
  return { families: [family], close: () => service.close() };
}

/** Earlier guards have checked the key and the Host header. */
function checkLocal({ request }: Call, service: ModelService): void {
  const origin = request.headers.get("origin");
  const host = request.headers.get("host");
  const isOwn = origin === null || (URL.canParse(origin) && new URL(origin).host === host);
  if (service.isLocal && isOwn) return;
  throw new ApiError({
    status: 403,
    type: "invalid_request_error",
    code: "not_local",
    param: "path",
    message: service.isLocal
      ? "files of this machine can be opened only in Lantern's own web app"
      : "this server can be reached from other machines (--host), so it opens no paths, only models from its list. Start it with -m PATH to open another file",
  });
}

/** Errors like an unreachable hub or a missing folder become messages for the user. */
async function explained<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof LanternError) || error instanceof ApiError) throw error;
    const isTheirs = error instanceof UsageError;
    throw new ApiError(
      {
        status: isTheirs ? 400 : 502,
        type: isTheirs ? "invalid_request_error" : "server_error",
        code: isTheirs ? "invalid_value" : "source_failed",
        param: null,
        message: inPageWords(error.message),
      },
      { cause: error },
    );
  }
}
