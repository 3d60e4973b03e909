// Files and batches, opened with the server: OpenAI's and Anthropic's routes over one store. Without its database, the routes say why
// and the rest of the server works.

import { StorageError } from "../../platform/database.ts";
import { openWhenFree } from "../../sessions/open-when-free.ts";
import { type BatchPlace, BatchService } from "../batch-service.ts";
import type { ServerContext } from "../context.ts";
import { ApiError, anthropicErrors, openaiErrors } from "../errors.ts";
import type { OpenedFamilies, Route, RouteFamily } from "../route.ts";
import { anthropicBatchRoutes } from "./anthropic-batches.ts";
import { openaiBatchRoutes } from "./openai-batches.ts";
import { openaiFileRoutes } from "./openai-files.ts";

/** `families`: the routes that answer lines. */
export async function openBatches(
  server: ServerContext,
  place: BatchPlace,
  families: () => readonly RouteFamily[],
): Promise<OpenedFamilies> {
  try {
    const onWait = ({ message }: StorageError): void => server.log(`waiting: ${message}`);
    const database = await openWhenFree(() => place.open(), { onWait });
    const service = new BatchService(server, database, place, families);
    service.start();
    return { families: routesOf(service), close: () => service.close() };
  } catch (problem) {
    if (!(problem instanceof StorageError)) throw problem;
    server.log(problem.message);
    return { families: unavailable(problem.message), close: async () => {} };
  }
}

function routesOf(service: BatchService): RouteFamily[] {
  const all = [
    openaiFileRoutes(service),
    openaiBatchRoutes(service),
    anthropicBatchRoutes(service),
  ];
  return all.map((family) => ({
    ...family,
    routes: family.routes.map((route) => ({
      ...route,
      handle: (call) => service.answer(() => route.handle(call)),
    })),
  }));
}

/** The same paths, each of which says why it cannot. */
function unavailable(why: string): RouteFamily[] {
  const refuse = (): never => {
    throw new ApiError({
      status: 503,
      type: "server_error",
      code: "batches_unavailable",
      param: null,
      message: `files and batches are not available: ${why}`,
    });
  };
  const routes = (paths: readonly string[]): Route[] =>
    paths.flatMap((path) =>
      (["GET", "POST", "DELETE"] as const).map((method) => ({
        ...{ method, path, access: "use" as const },
        handle: refuse,
      })),
    );
  const openai = ["/v1/files", "/v1/files/:id{.+}", "/v1/batches", "/v1/batches/:id{.+}"];
  const anthropic = ["/v1/messages/batches", "/v1/messages/batches/:id{.+}"];
  return [
    { name: "openai-batches", errors: openaiErrors, routes: routes(openai) },
    { name: "anthropic-batches", errors: anthropicErrors, routes: routes(anthropic) },
  ];
}
