// A route as data. app.ts mounts every route of routes/table.ts in the same way, with guards before it, counters
// around it and its family's error shape after it. A handler gets a Call and returns a Response, or throws.

import type { Access, LoginSource } from "./access.ts";
import type { ServerContext } from "./context.ts";
import type { ErrorShape } from "./errors.ts";
import type { IgnoredFields } from "./ignored-fields.ts";
import type { Turn } from "./queue.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface Route {
  method: Method;
  /** Hono's pattern: "/v1/models/:id{.+}". Also the label in /metrics, so it contains no ids. */
  path: string;
  /**
   * The access class (access.ts). `open`: all clients; reveals nothing that a stranger may not know. `use`: clients
   * that may generate. `admin`: changes what is served or stored, reads conversations, or reveals the contents of this
   * machine.
   */
  access: Access;
  handle(call: Call): Response | Promise<Response>;
}

/** Routes that belong together and report errors in the same shape. */
export interface RouteFamily {
  name: string;
  errors: ErrorShape;
  routes: readonly Route[];
}

/** Families that hold resources, and how to close them. */
export interface OpenedFamilies {
  readonly families: readonly RouteFamily[];
  close(): Promise<void>;
}

/** One request in progress. */
export interface Call {
  server: ServerContext;
  request: Request;
  route: Route;
  errors: ErrorShape;
  url: URL;
  params: Readonly<Record<string, string>>;
  /** The client's identity for the queue: an accepted key, or an address. */
  client: string;
  /** The Set-Cookie header for a page with the token or the admin key; undefined if it is wrong. */
  login(from: LoginSource): Promise<string | undefined>;
  /** Aborted when the client has gone, or when the server stops. */
  signal: AbortSignal;
  /** The field `stream` of the body; undefined: it was not read yet, or has none. */
  asksStream?: unknown;
  /** Ends the request as if its client had gone. */
  end(): void;
  /** Fields of the request that are not honoured. */
  ignored: IgnoredFields;
  /** More headers of the response. */
  headers?: Readonly<Record<string, string>>;
  /** Its entry in the queue of requests with large bodies; given back when the handler is done. */
  large?: Turn;
}

/** A JSON response. */
export function json(body: unknown, status: number = 200): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json" },
  });
}

/** Items written at a time: less than a millisecond. */
const itemsAtOnce = 4096;

/** {"NAME": [...]}, written in pieces as the client reads them: a list may have millions of items. */
export function jsonList<T>(
  name: string,
  items: readonly T[],
  write: (item: T) => string,
): Response {
  const headers = { "content-type": "application/json" };
  const head = `{${JSON.stringify(name)}:[`;
  if (items.length <= itemsAtOnce) {
    return new Response(`${head}${items.map(write).join(",")}]}`, { headers });
  }
  const utf8 = new TextEncoder();
  let at = 0;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      await new Promise((resolve) => setTimeout(resolve, 0)); // yields to other work
      const before = at === 0 ? head : ",";
      const some = items.slice(at, at + itemsAtOnce).map(write);
      at += itemsAtOnce;
      const isLast = at >= items.length;
      controller.enqueue(utf8.encode(before + some.join(",") + (isLast ? "]}" : "")));
      if (isLast) controller.close();
    },
  });
  return new Response(body, { headers });
}
