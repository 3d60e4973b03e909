// Lantern as an MCP server over streamable HTTP: a session for each client. Who may connect is checked before (apps/server/guard.ts).

import type { HttpServerTransport, McpServer } from "../sdk.ts";
import { loadSdk } from "../sdk.ts";

/** Clients at the same time; a new one replaces the one that was silent longest. */
const mostSessions = 32;
/** Bytes of a request. */
const requestBytes = 16 * 2 ** 20;

interface Session {
  readonly transport: HttpServerTransport;
  readonly server: McpServer;
}

export class HttpSessions {
  /** Sessions in the order of their last requests. */
  readonly #sessions = new Map<string, Session>();
  readonly #makeServer: () => Promise<McpServer>;

  constructor(makeServer: () => Promise<McpServer>) {
    this.#makeServer = makeServer;
  }

  async handle(request: Request): Promise<Response> {
    if (new URL(request.url).pathname !== "/mcp") {
      return Response.json({ error: "there is nothing here but /mcp" }, { status: 404 });
    }
    const id = request.headers.get("mcp-session-id");
    if (id !== null) {
      const known = this.#sessions.get(id);
      if (known === undefined) {
        return Response.json({ error: "there is no such session" }, { status: 404 });
      }
      this.#sessions.delete(id);
      this.#sessions.set(id, known);
      return await known.transport.handleRequest(request);
    }
    const session = await this.#open();
    const response = await session.transport.handleRequest(request);
    // Only a request that begins a session is one without an id.
    if (session.transport.sessionId === undefined) await session.server.close();
    return response;
  }

  async #open(): Promise<Session> {
    const { WebStandardStreamableHTTPServerTransport } = await loadSdk(
      "server/webStandardStreamableHttp.js",
    );
    const server = await this.#makeServer();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      maxRequestBodySize: requestBytes,
      onsessioninitialized: (id: string) => this.#add(id, { transport, server }),
      onsessionclosed: (id: string) => void this.#sessions.delete(id),
    });
    await server.connect(transport);
    return { transport, server };
  }

  async #add(id: string, session: Session): Promise<void> {
    this.#sessions.set(id, session);
    const [oldest] = this.#sessions;
    if (this.#sessions.size <= mostSessions || oldest === undefined) return;
    this.#sessions.delete(oldest[0]);
    await oldest[1].server.close();
  }

  async close(): Promise<void> {
    const all = [...this.#sessions.values()];
    this.#sessions.clear();
    await Promise.all(all.map(({ server }) => server.close()));
  }
}
