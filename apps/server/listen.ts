// The app on a socket, of TCP or of UNIX, with TLS or without: Node's server under @hono/node-server, with limits on slow clients, and
// a stop in three steps: no new connections, a grace period for running requests, and an abort with a last event for the rest.

import { createAdaptorServer } from "@hono/node-server";
import { removeStaleSocket } from "../../src/platform/node-socket-file.ts";
import { createTlsServer } from "../../src/platform/node-tls.ts";
import type { AppFetch } from "./app.ts";
import { brokenRequest, openaiErrors, unknownExpectation } from "./errors.ts";
import { apiHeaders } from "./guard.ts";
import { isLoopback, socketFileOf } from "./host-names.ts";

export interface ListenOptions {
  /** An address, or a UNIX socket (socketFileOf). */
  host: string;
  /** 0: any free port. */
  port: number;
  /** Let other servers listen on the port. */
  reusePort?: boolean;
  /** Key and certificates in PEM: HTTPS. */
  tls?: { key: string; cert: string } | undefined;
  /** How long a client may take to send its headers, and its whole request. */
  headersTimeoutMs: number;
  requestTimeoutMs: number;
  /** How long a client may leave waiting bytes unread (default: two minutes). */
  unreadTimeoutMs?: number;
}

export interface Listener {
  /** "http://127.0.0.1:8080", "unix:/run/lantern.sock" */
  readonly url: string;
  readonly port: number;
  /** No new connections; idle ones are closed. */
  stopAccepting(): void;
  /** Resolves when the last connection has closed. */
  readonly closed: Promise<void>;
  /** Closes all connections that are still open. */
  destroy(): void;
}

/** The part of Node's sockets and responses that is used here. */
interface RawSocket {
  readonly remoteAddress?: string;
  readonly localAddress?: string;
  readonly writable: boolean;
  /** Bytes that wait for the client. */
  readonly writableLength: number;
  end(text?: string, done?: () => void): void;
  destroy(): void;
  /** Node's call after an answer with "connection: close" was written. */
  destroySoon(): void;
  once(event: "close", run: () => void): unknown;
}
interface Outgoing {
  readonly headersSent: boolean;
  setHeader(name: string, value: string): unknown;
  writeHead(status: number): { end(text: string): unknown };
  once(event: "close", run: () => void): unknown;
  on(event: "timeout", run: (socket: RawSocket) => void): unknown;
}
interface RawRequest {
  readonly socket: RawSocket;
  /** Whether all of its body has arrived. */
  readonly complete: boolean;
  removeAllListeners(event: "data"): unknown;
  resume(): unknown;
  once(event: "end" | "close", run: () => void): unknown;
}
/** A request and its response, until that was sent. */
interface Exchange {
  request: RawRequest;
  answer: Outgoing;
}
interface RawEvents {
  prependListener(
    event: "request" | "checkExpectation",
    run: (request: RawRequest, answer: Outgoing) => void,
  ): RawEvents;
  on(event: "request", run: (request: RawRequest, answer: Outgoing) => void): RawEvents;
  on(event: "clientError", run: (error: { code?: string }, socket: RawSocket) => void): RawEvents;
}

/** The client has gone, so a response has no reader. */
const goneCodes: ReadonlySet<string | undefined> = new Set(["HPE_INVALID_EOF_STATE", "ECONNRESET"]);

/**
 * Node responds to unreadable requests with a bare status line. Here they get the shape of every other error, after
 * the responses to earlier requests on the same connection: garbage after a good request does not cost its response.
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
    if (broken.has(socket)) return; // everything after garbage is garbage
    broken.add(socket);
    const open = [...(exchanges.get(socket) ?? [])];
    const before = open.findLast(({ request }) => request.complete);
    const own = open.find(({ request }) => !request.complete);
    // In the middle of a started response, these bytes would become part of it.
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
  const headers = Object.entries(apiHeaders).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${facts.status} Refused\r\n${headers.join("")}content-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`;
}

/** How long an answer waits for the rest of an unneeded body; and how long a client that still sends may read it then. */
const REST_MS = 100;
const LINGER_MS = 2000;

/** Drops the unread rest of a request's body, since the next request lies behind it. Resolves at its end, or soon. */
async function dropBody(request: RawRequest): Promise<void> {
  request.removeAllListeners("data");
  request.resume();
  if (request.complete) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, REST_MS);
    for (const event of ["end", "close"] as const) {
      request.once(event, () => {
        clearTimeout(timer);
        resolve();
      });
    }
  });
}

/**
 * The answer says that its connection ends, and the client's side ends first: if it were closed at once, with bytes of the client on
 * their way, it would be reset, and the answer lost.
 */
function closeBehind({ socket }: RawRequest, response: Response): void {
  response.headers.set("connection", "close");
  socket.destroySoon = () => {
    socket.destroySoon = () => {};
    socket.end();
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once("close", () => clearTimeout(timer));
  };
}

/** Runs before any answer, so that all answers have the headers: those of a route, this file, the packages below it, or Node itself. */
function protect(server: RawEvents): void {
  const setHeaders = (answer: Outgoing): void => {
    for (const [name, value] of Object.entries(apiHeaders)) answer.setHeader(name, value);
  };
  server.prependListener("request", (_, answer) => setHeaders(answer));
  server.prependListener("checkExpectation", (_, answer) => {
    setHeaders(answer);
    answer.setHeader("content-type", "application/json");
    answer.writeHead(417).end(JSON.stringify(openaiErrors.body(unknownExpectation)));
  });
}

/**
 * Disconnects a client that does not read: its waiting bytes, the files that are read for it and its generations would be held for
 * ever. A client that waits for an answer is kept: no bytes wait for it.
 */
function dropUnread(server: RawEvents): void {
  server.on("request", (_, answer) => {
    answer.on("timeout", (socket) => {
      if (socket.writableLength > 0) socket.destroy();
    });
  });
}

const UNREAD_MS = 120_000;
/** A connection without a byte for this time is probed: a client that lost power or its network is gone. */
const PROBED_MS = 30_000;

/**
 * How long a connection is kept for a client's next request. A request that is sent while its connection is closed is lost, and the client has an error: so it is longer than clients keep
 * theirs (most for some seconds, nginx as a proxy for 60).
 */
const KEPT_MS = 75_000;

export async function listen(app: AppFetch, options: ListenOptions): Promise<Listener> {
  const { host, port, tls } = options;
  const file = socketFileOf(host);
  let isStopping = false;
  const server = createAdaptorServer({
    fetch: async (request, env) => {
      const incoming = env.incoming as unknown as RawRequest;
      const { remoteAddress = "unknown", localAddress } = incoming.socket;
      const address = file === undefined ? remoteAddress : "UNIX socket";
      // A client whose address is the server's own is on this machine.
      const isLocal = file !== undefined || isLoopback(address) || address === localAddress;
      const isFile = file !== undefined;
      const response = await app(request, { address, isLocal, isFile });
      await dropBody(incoming);
      if (!incoming.complete || isStopping) closeBehind(incoming, response);
      return response;
    },
    hostname: file === undefined ? host : "localhost",
    ...(tls && { createServer: createTlsServer }),
    overrideGlobalObjects: false, // other code in this process keeps its own Request and Response
    serverOptions: {
      headersTimeout: options.headersTimeoutMs,
      requestTimeout: options.requestTimeoutMs,
      connectionsCheckingInterval: Math.min(1000, options.headersTimeoutMs / 2),
      keepAliveTimeout: KEPT_MS,
      keepAlive: true,
      keepAliveInitialDelay: PROBED_MS,
      maxHeaderSize: 16384,
      requireHostHeader: false, // the guard refuses it; Node would before protect()
      ...tls,
    },
  });
  protect(server as RawEvents);
  answerBroken(server as RawEvents);
  dropUnread(server as RawEvents);
  if ("timeout" in server) server.timeout = options.unreadTimeoutMs ?? UNREAD_MS;
  const { promise: listening, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  if (file !== undefined) {
    await removeStaleSocket(file);
    server.listen({ path: file }, () => resolve());
  } else server.listen({ port, host, reusePort: options.reusePort ?? false }, () => resolve());
  await listening;
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  return {
    url:
      file === undefined
        ? `${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${bound}`
        : `unix:${file}`,
    port: bound,
    closed,
    stopAccepting() {
      isStopping = true;
      const closeIdle = (): void => {
        if ("closeIdleConnections" in server) server.closeIdleConnections();
      };
      // A busy connection becomes idle after its response, and would be kept for the client's next request.
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
