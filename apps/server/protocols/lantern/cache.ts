// Copies of conversations over HTTP, for the web app and scripts: the copies in memory and on disk, how often they were used, and
// clearing them (docs/use/cache.md).

import * as z from "zod";
import {
  clearStoredState,
  type EngineStatus,
  type StoredState,
  type StoredStateOptions,
  storedState,
} from "../../../../src/index.ts";
import type { ServerContext } from "../../context.ts";
import { openaiErrors } from "../../errors.ts";
import { json, type RouteFamily } from "../../route.ts";
import { bodyFields } from "./service.ts";

export interface CacheView {
  /** The copies on disk. `path` is null if the server can be reached from other machines. */
  stored: Omit<StoredState, "path"> & { path: string | null };
  /** The contents and counters of the served models' caches. */
  served: { id: string; cache: EngineStatus["cache"] }[];
}

/** Without a folder, the copies of all models are cleared. */
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
  // A served model's copies in memory are cleared as well: a user who clears a conversation means all of it.
  for (const { id, file, model } of server.models.list()) {
    const names = [id, file, model.info.name];
    if (folder === undefined || (chosen && names.includes(chosen.model))) await model.clearCache();
  }
  if (folder === undefined || chosen) {
    await clearStoredState({ ...placeOf(server), model: folder });
  }
}
