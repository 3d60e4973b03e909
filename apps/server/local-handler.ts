// Any handler of requests on a port of this machine, behind the server's checks of names and origins: for `lantern mcp --http`, which is
// no part of the server's own routes.

import type { AppFetch } from "./app.ts";
import { describeError, errorResponse, openaiErrors } from "./errors.ts";
import { apiHeaders, createGuard } from "./guard.ts";
import { listen } from "./listen.ts";

export interface LocalServer {
  readonly url: string;
  stop(): Promise<void>;
}

/** Listens on 127.0.0.1 only; pages of other origins are refused. */
export async function listenLocally(
  handle: (request: Request) => Promise<Response>,
  { port, log }: { port: number; log: (line: string) => void },
): Promise<LocalServer> {
  const access = { apiKeys: [], adminKey: undefined, token: undefined };
  const guard = createGuard({
    ...{ access, corsOrigins: [], corsRules: { credentials: true }, hosts: ["localhost"] },
  });
  const answer: AppFetch = async (request, connection) => {
    try {
      await guard.check(request, connection, "use");
      const response = await handle(request);
      const { status, statusText, body } = response;
      const headers = new Headers({ ...apiHeaders, ...Object.fromEntries(response.headers) });
      return new Response(body, { status, statusText, headers });
    } catch (error) {
      return errorResponse(
        describeError(error, (bug) => log(String(bug))),
        openaiErrors,
      );
    }
  };
  const times = { headersTimeoutMs: 15_000, requestTimeoutMs: 60_000 };
  const listener = await listen(answer, { host: "127.0.0.1", port, ...times });
  return {
    url: listener.url,
    async stop() {
      listener.stopAccepting();
      listener.destroy();
      await listener.closed;
    },
  };
}
