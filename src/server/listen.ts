// The app on a socket: Node's HTTP server under @hono/node-server, with limits on slow clients, and a stop in three
// steps: nobody new comes in, running requests get some time to finish, what is left is aborted with a last event.

import { createAdaptorServer } from "@hono/node-server";
import type { AppFetch } from "./app.ts";
import { brokenRequest, openaiErrors } from "./errors.ts";
import { isLoopback } from "./host-names.ts";

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
  socket?: { remoteAddress?: string; localAddress?: string };
}

/** What of Node's sockets and answers is used here. */
interface RawSocket {
  readonly writable: boolean;
  end(text: string, done: () => void): void;
  destroy(): void;
}
interface Outgoing {
  readonly headersSent: boolean;
  once(event: "close", run: () => void): unknown;
}
interface RawRequest {
  readonly socket: RawSocket;
  /** Whether all of its body has come. */
  readonly complete: boolean;
}
/** A request and its answer, until that has gone. */
interface Exchange {
  request: RawRequest;
  answer: Outgoing;
}
interface RawEvents {
  on(event: "request", run: (request: RawRequest, answer: Outgoing) => void): RawEvents;
  on(event: "clientError", run: (error: { code?: string }, socket: RawSocket) => void): RawEvents;
}

/** The client has gone: nobody reads an answer. */
const goneCodes: ReadonlySet<string | undefined> = new Set(["HPE_INVALID_EOF_STATE", "ECONNRESET"]);

/**
 * Node answers what it cannot read with a bare status line. Here it gets the shape of every other error, after the
 * answers to requests that came before it on the same connection: garbage behind a good request does not cost its answer.
 */
function answerBroken(server: RawEvents): void {
  const exchanges = new WeakMap<RawSocket, Set<Exchange>>();
  const broken = new WeakSet<RawSocket>();
  server.on("request", (request, answer) => {
    const open = exchanges.get(request.socket) ?? new Set();
    const exchange = { request, answer };
    exchanges.set(request.socket, open.add(exchange));
    answer.once("close", () => open.delete(exchange));
  });
  server.on("clientError", ({ code }, socket) => {
    if (broken.has(socket)) return; // whatever follows garbage is garbage
    broken.add(socket);
    const open = [...(exchanges.get(socket) ?? [])];
    const before = open.findLast(({ request }) => request.complete);
    const own = open.find(({ request }) => !request.complete);
    // Bytes in the middle of an answer that has begun would belong to it.
    const isTooLate = own?.answer.headersSent || (before && goneCodes.has(code));
    if (!socket.writable || isTooLate) return socket.destroy();
    const refuse = (): void => {
      if (socket.writable) socket.end(refusalText(code), () => socket.destroy());
      else socket.destroy();
    };
    if (before) before.answer.once("close", refuse);
    else refuse();
  });
}

function refusalText(code: string | undefined): string {
  const facts = brokenRequest(code);
  const body = JSON.stringify(openaiErrors.body(facts));
  return `HTTP/1.1 ${facts.status} Refused\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`;
}

export async function listen(app: AppFetch, options: ListenOptions): Promise<Listener> {
  const { host, port } = options;
  const server = createAdaptorServer({
    fetch: (request, env) => {
      const { socket } = env.incoming as Incoming;
      const { remoteAddress: address = "unknown", localAddress } = socket ?? {};
      // A client that comes from the address it goes to is on this machine.
      const isLocal = isLoopback(address) || address === localAddress;
      return app(request, { address, isLocal });
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
