// A request that the server makes to itself, without a client at a socket: for the lines of batches. It goes to the same handler
// as a client's request, with the same checks of its fields, but with a queue of its own.

import { detailsOf, TabClosedError } from "../../src/base/errors.ts";
import { WorkerError } from "../../src/index.ts";
import type { LineAnswer } from "../batch/batch.ts";
import type { ServerContext } from "./context.ts";
import { describeError, errorResponse, notFound } from "./errors.ts";
import { IgnoredFields } from "./ignored-fields.ts";
import { backgroundMetrics } from "./metrics.ts";
import { AdmissionQueue } from "./queue.ts";
import type { Call, Route, RouteFamily } from "./route.ts";
import { Slots } from "./slots.ts";

export interface InternalRequest {
  readonly path: string;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly signal: AbortSignal;
}

/** A second queue beside that of the clients: `parallel` requests at a time, and any number that wait. */
export function backgroundContext(server: ServerContext, parallel: number): ServerContext {
  return {
    ...server,
    metrics: backgroundMetrics(server.metrics),
    queue: new AdmissionQueue(parallel, 1_000_000),
    large: new AdmissionQueue(2, 1_000_000),
    slots: new Slots(parallel, 1_000_000),
  };
}

/** The route with this path, for requests with a body. */
function routeOf(
  families: readonly RouteFamily[],
  path: string,
): { route: Route; family: RouteFamily } | undefined {
  for (const family of families) {
    const route = family.routes.find((each) => each.method === "POST" && each.path === path);
    if (route) return { route, family };
  }
  return undefined;
}

/** The route's response, an error's body included. */
export async function callRoute(
  server: ServerContext,
  families: readonly RouteFamily[],
  { path, body, signal }: InternalRequest,
): Promise<LineAnswer> {
  const requestId = crypto.randomUUID();
  const found = routeOf(families, path);
  if (!found) throw notFound(`there is no POST ${JSON.stringify(path)} here`);
  const { route, family } = found;
  const url = new URL(path, "http://localhost");
  const headers = { "content-type": "application/json", "content-length": String(body.length) };
  const ended = AbortSignal.any([signal, server.stopSignal]);
  const call: Call = {
    server: { ...server, models: server.models.forRequest(ended, { isBackground: true }) },
    request: new Request(url, { method: "POST", headers, body, signal }),
    route,
    errors: family.errors,
    url,
    params: {},
    client: "batch",
    ignored: new IgnoredFields(server.settings.strictFields),
    login: async () => undefined,
    signal: ended,
    end: () => {},
  };
  let response: Response;
  let lost: LineAnswer["lost"];
  try {
    response = await route.handle(call);
  } catch (error) {
    if (error instanceof WorkerError) lost = error instanceof TabClosedError ? "tab" : "engine";
    const facts = describeError(error, (bug) => server.log(detailsOf(bug)));
    response = errorResponse(facts, family.errors);
  } finally {
    call.large?.release();
    call.server.models.release();
  }
  server.ignored.see(path, call.ignored.names);
  const { status } = response;
  server.metrics.requests.add(1, { route: route.path, method: "POST", status });
  const answer = { status, requestId, body: JSON.parse(await response.text()) as unknown };
  return lost ? { ...answer, lost } : answer;
}
