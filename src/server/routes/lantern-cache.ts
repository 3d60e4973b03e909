// Copies of conversations over HTTP, for the web app and scripts: what lies in memory and on disk, how often it was used, and clearing
// it (docs/cache.md).

import * as z from "zod";
import {
  clearStoredState,
  type EngineStatus,
  type StoredState,
  type StoredStateOptions,
  storedState,
} from "../../index.ts";
import type { ServerContext } from "../context.ts";
import { openaiErrors } from "../errors.ts";
import { json, type RouteFamily } from "../route.ts";
import { bodyFields } from "./lantern-service.ts";

export interface CacheView {
  /** On disk. `path` is null where the server can be reached from other machines. */
  stored: Omit<StoredState, "path"> & { path: string | null };
  /** What the served models hold and have done. */
  served: { id: string; cache: EngineStatus["cache"] }[];
}

/** Without a folder: of all models. */
const clearing = z.strictObject({ folder: z.string().min(1).max(100).exactOptional() });

export const lanternCacheRoutes: RouteFamily = {
  name: "lantern-cache",
  errors: openaiErrors,
  routes: [
    {
      method: "GET",
      path: "/lantern/v1/cache",
      access: "admin",
      handle: async ({ server }) => json(await cacheView(server)),
    },
    {
      method: "POST",
      path: "/lantern/v1/cache/clear",
      access: "admin",
      handle: async (call) => {
        const { server } = call;
        await clear(server, (await bodyFields(call, clearing)).folder);
        return json(await cacheView(server));
      },
    },
  ],
};

const placeOf = ({ settings }: ServerContext): StoredStateOptions => ({
  cacheFolder: settings.cacheFolder,
});

async function cacheView(server: ServerContext): Promise<CacheView> {
  const { path, ...stored } = await storedState(placeOf(server));
  const asked = server.models.list().map(async ({ id, model }) => {
    const status = await model.status().catch(() => undefined); // it is being closed
    return status ? [{ id, cache: status.cache }] : [];
  });
  return {
    stored: { ...stored, path: server.settings.isLocal ? path : null },
    served: (await Promise.all(asked)).flat(),
  };
}

async function clear(server: ServerContext, folder: string | undefined): Promise<void> {
  const { models } = await storedState(placeOf(server));
  const chosen = models.find((one) => one.folder === folder);
  // What a served model has in memory goes as well: a user who clears a conversation means all of it.
  for (const { id, file, model } of server.models.list()) {
    const names = [id, file, model.info.name];
    if (folder === undefined || (chosen && names.includes(chosen.model))) await model.clearCache();
  }
  if (folder === undefined || chosen) {
    await clearStoredState({ ...placeOf(server), model: folder });
  }
}
