// The app on a socket: Node's HTTP server under @hono/node-server, with limits on slow clients, and a stop in three
// steps: nobody new comes in, running requests get some time to finish, what is left is aborted with a last event.

import { createAdaptorServer } from "@hono/node-server";
import type { AppFetch } from "./app.ts";
import { brokenRequest, openaiErrors } from "./errors.ts";

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

/** What of Node's sockets and answers is used here. */
interface RawSocket {
  readonly writable: boolean;
  end(text: string, done: () => void): void;
  destroy(): void;
}
interface Outgoing {
  readonly headersSent: boolean;
  readonly writableFinished: boolean;
}
interface RawEvents {
  on(event: "request", run: (incoming: { socket: RawSocket }, answer: Outgoing) => void): RawEvents;
  on(event: "clientError", run: (error: { code?: string }, socket: RawSocket) => void): RawEvents;
}

/**
 * Node answers what it cannot read with a bare status line. Here it gets the shape of every other error, unless an answer
 * has begun on the connection: bytes in the middle of that would belong to it.
 */
function answerBroken(server: RawEvents): void {
  const answers = new WeakMap<RawSocket, Outgoing>();
  server.on("request", ({ socket }, answer) => answers.set(socket, answer));
  server.on("clientError", ({ code }, socket) => {
    const answer = answers.get(socket);
    if (!socket.writable || (answer?.headersSent && !answer.writableFinished)) {
      socket.destroy();
      return;
    }
    const facts = brokenRequest(code);
    const body = JSON.stringify(openaiErrors.body(facts));
    const head = `HTTP/1.1 ${facts.status} Refused\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n`;
    socket.end(head + body, () => socket.destroy());
  });
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
  answerBroken(server as RawEvents);
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
