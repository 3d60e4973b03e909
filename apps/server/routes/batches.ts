// Files and batches, opened with the server: OpenAI's and Anthropic's routes over one store. Without its database, the routes say why
// and the rest of the server works.

import { type Database, StorageError } from "../../../src/platform/database.ts";
import { type BatchFace, type BatchPlace, BatchService } from "../batch-service.ts";
import type { ServerContext } from "../context.ts";
import { ApiError } from "../errors.ts";
import { Held } from "../held.ts";
import { withoutFolders } from "../models/library.ts";
import { anthropicBatchRoutes } from "../protocols/anthropic/batches.ts";
import { openaiBatchRoutes } from "../protocols/openai/batches.ts";
import { openaiFileRoutes } from "../protocols/openai/files.ts";
import type { OpenedFamilies, RouteFamily } from "../route.ts";

/** `families`: the routes that answer lines. */
export function openBatches(
  server: ServerContext,
  place: BatchPlace,
  families: () => readonly RouteFamily[],
): OpenedFamilies {
  const make = (database: Database): BatchService => {
    const service = new BatchService(server, database, place, families);
    service.start();
    return service;
  };
  const held = new Held(server, { what: "files and batches", open: place.open, make });
  held.start();
  return { families: routesOf(held), close: () => held.close() };
}

function routesOf(held: Held<BatchService>): RouteFamily[] {
  const now = (): BatchService => {
    try {
      return held.now();
    } catch (problem) {
      // Only some clients may learn which server of this machine has them open.
      if (problem instanceof StorageError)
        throw unavailable(
          problem.problem === "busy" ? "another process has them open" : problem.message,
        );
      throw problem;
    }
  };
  const service: BatchFace = {
    get store() {
      return now().store;
    },
    get runner() {
      return now().runner;
    },
    owner: (call) => now().owner(call),
  };
  const all = [
    openaiFileRoutes(service),
    openaiBatchRoutes(service),
    anthropicBatchRoutes(service),
  ];
  return all.map((family) => ({
    ...family,
    routes: family.routes.map((route) => ({
      ...route,
      handle: async (call) => await now().answer(() => route.handle(call)),
    })),
  }));
}

function unavailable(why: string): ApiError {
  return new ApiError({
    status: 503,
    type: "server_error",
    code: "batches_unavailable",
    param: null,
    message: `files and batches are not available: ${withoutFolders(why)}`,
  });
}
