// Routes for the files of a folder of the user's own (--path). The folder itself is looked at behind StaticFiles: which path has a file
// is decided there. They are for everybody, like the web app's.

import type { StaticFiles } from "../../src/platform/node-static.ts";
import type { Route } from "./route.ts";

/** The root has an answer of its own without an index.html. After all other routes: they are found first. */
export function staticRoutes(files: StaticFiles, root: Route, missing: Route["handle"]): Route[] {
  const routeOf = (path: string, otherwise: Route["handle"]): Route => ({
    method: "GET",
    path,
    access: "open",
    handle: async (call) => {
      const { url, server, request } = call;
      const file = await files(url.pathname.slice(server.settings.apiPrefix.length) || "/");
      if (!file) return await otherwise(call);
      const headers = {
        "content-type": file.type,
        "cache-control": "no-cache",
        "last-modified": new Date(file.modifiedMs).toUTCString(),
        "content-length": String(file.bytes),
        "content-security-policy": "frame-ancestors 'none'",
      };
      return new Response(request.method === "HEAD" ? null : file.read(), { headers });
    },
  });
  return [routeOf("/", root.handle), routeOf("/*", missing)];
}
