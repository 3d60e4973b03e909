// Runs over HTTP: following an answer while it is written, from the start or from the position where the connection
// broke, and stopping it. A run continues with or without followers.

import type { Run } from "../../../sessions/run.ts";
import { openaiErrors } from "../../errors.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import type { SessionService } from "../../session-service.ts";
import { eventStream } from "../../sse.ts";
import { guarded, runView } from "./service.ts";

export function runRoutes(service: SessionService): RouteFamily {
  const runOf = ({ params }: Call): Run => service.withRun(params.id!).runs.run(params.id!);
  const cancel = async (call: Call): Promise<Response> => {
    const run = runOf(call);
    run.cancel();
    await run.done;
    return json(runView(run));
  };
  return {
    name: "lantern-runs",
    errors: openaiErrors,
    routes: guarded([
      {
        method: "GET",
        path: "/lantern/v1/runs/:id",
        access: "admin",
        handle: (call) => json(runView(runOf(call))),
      },
      {
        method: "GET",
        path: "/lantern/v1/runs/:id/events",
        access: "admin",
        handle: (call) => {
          const { server, request, url } = call;
          const run = runOf(call);
          const last = request.headers.get("last-event-id") ?? url.searchParams.get("after");
          // Only the client's own signal: when the server stops, the run ends too, and that is its last
          // event.
          return eventStream(run.events(last ?? undefined, request.signal), {
            server,
            error: (facts) => [{ name: "error", data: openaiErrors.body(facts) }],
          });
        },
      },
      { method: "POST", path: "/lantern/v1/runs/:id/cancel", access: "admin", handle: cancel },
      { method: "DELETE", path: "/lantern/v1/runs/:id", access: "admin", handle: cancel },
    ]),
  };
}
