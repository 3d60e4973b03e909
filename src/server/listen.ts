// The app on a socket: Node's HTTP server under @hono/node-server, with limits on slow clients, and a stop in three
// steps: nobody new comes in, running requests get some time to finish, what is left is aborted with a last event.

import { createAdaptorServer } from "@hono/node-server";
import type { AppFetch } from "./app.ts";

export interface ListenOptions {
  host: string;
  /** 0: any that is free. */
  port: number;
  /** How long a client may take to send its headers, and its whole request. */
  headersTimeoutMs: number;
  requestTimeoutMs: number;
}

export interface Listener {
  /** "http://127.0.0.1:8080" */
  readonly url: string;
  readonly port: number;
  /** No new connections, and none kept open that has nothing to do. */
  stopAccepting(): void;
  /** Resolves when the last connection has closed. */
  readonly closed: Promise<void>;
  /** Closes what is still open. */
  destroy(): void;
}

/** What of Node's request is read here. */
interface Incoming {
  socket?: { remoteAddress?: string };
}

export async function listen(app: AppFetch, options: ListenOptions): Promise<Listener> {
  const { host, port } = options;
  const server = createAdaptorServer({
    fetch: (request, env) => {
      const { socket } = env.incoming as Incoming;
      return app(request, { address: socket?.remoteAddress ?? "unknown" });
    },
    hostname: host,
    overrideGlobalObjects: false, // other code in this process keeps its own Request and Response
    serverOptions: {
      headersTimeout: options.headersTimeoutMs,
      requestTimeout: options.requestTimeoutMs,
      connectionsCheckingInterval: Math.min(1000, options.headersTimeoutMs / 2),
      keepAliveTimeout: 5000,
      maxHeaderSize: 16384,
    },
  });
  const { promise: listening, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen(port, host, () => resolve());
  await listening;
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`,
    port: bound,
    closed,
    stopAccepting() {
      const closeIdle = (): void => {
        if ("closeIdleConnections" in server) server.closeIdleConnections();
      };
      // A connection that is busy now is idle after its answer, and would be kept for the client's next request.
      const timer = setInterval(closeIdle, 50);
      server.close(() => {
        clearInterval(timer);
        close();
      });
      closeIdle();
    },
    destroy() {
      if ("closeAllConnections" in server) server.closeAllConnections();
    },
  };
}
