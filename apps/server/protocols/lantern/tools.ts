// Tools of MCP servers over HTTP, for the web app (lantern serve --mcp-config): the list of tools, and a call of one. A call acts on
// this machine, so both routes need admin rights, and the client has asked the user before the call (docs/library/tools.md).

import * as z from "zod";
import { AbortedError, LanternError } from "../../../../src/index.ts";
import { ApiError, notFound, openaiErrors } from "../../errors.ts";
import { json, type RouteFamily } from "../../route.ts";
import { bodyFields } from "./service.ts";

/** The host that runs tools. */
export interface ToolHost {
  readonly servers: readonly { name: string; status: "ready" | "failed"; problem?: string }[];
  readonly tools: readonly HostedTool[];
  call(
    name: string,
    args: unknown,
    options: { signal: AbortSignal; timeoutMs: number },
  ): Promise<{ text: string; isError: boolean }>;
}

interface HostedTool {
  readonly name: string;
  readonly server: string;
  readonly description: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** Calls that run at the same time, and characters of a result. */
const mostCalls = 8;
const mostText = 65_536;

const calling = z.strictObject({
  name: z.string().min(1).max(64),
  arguments: z.record(z.string(), z.unknown()).exactOptional(),
  timeout_ms: z.int().min(1).max(600_000).exactOptional(),
});

/** @param host undefined: the server was started without tools. */
export function toolRoutes(host: ToolHost | undefined): RouteFamily {
  let running = 0;
  return {
    name: "lantern-tools",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: "/lantern/v1/tools",
        access: "admin",
        handle: () =>
          json({
            enabled: host !== undefined,
            servers: host?.servers ?? [],
            tools: (host?.tools ?? []).map(({ name, server, description, schema }) => ({
              name,
              server,
              description,
              parameters: schema,
            })),
          }),
      },
      {
        method: "POST",
        path: "/lantern/v1/tools/call",
        access: "admin",
        handle: async (call) => {
          const fields = await bodyFields(call, calling);
          const { name, arguments: args = {}, timeout_ms: timeoutMs = 60_000 } = fields;
          if (!host?.tools.some((tool) => tool.name === name)) throw noTool(name, host);
          if (running >= mostCalls) throw tooMany();
          running++;
          try {
            return json(result(await host.call(name, args, { signal: call.signal, timeoutMs })));
          } catch (error) {
            if (error instanceof AbortedError || !(error instanceof LanternError)) throw error;
            throw failed(error);
          } finally {
            running--;
          }
        },
      },
    ],
  };
}

/** A long result is cut; its full length is in the response. */
function result({ text, isError }: { text: string; isError: boolean }): object {
  const isLong = text.length > mostText;
  return {
    text: isLong ? text.slice(0, mostText) : text,
    is_error: isError,
    ...(isLong && { full_length: text.length }),
  };
}

function noTool(name: string, host: ToolHost | undefined): ApiError {
  const why = host
    ? `there is no tool ${JSON.stringify(name)}`
    : "this server was started without tools. Start it with --mcp-config FILE";
  return notFound(why, "name", "tool_not_found");
}

const tooMany = (): ApiError =>
  new ApiError({
    status: 429,
    type: "rate_limit_error",
    code: "too_many_calls",
    param: null,
    message: `${mostCalls} tools are running, which is the most. Try again when one has ended`,
    retryAfterSeconds: 2,
  });

const failed = (cause: LanternError): ApiError =>
  new ApiError(
    {
      status: 502,
      type: "server_error",
      code: "tool_failed",
      param: "name",
      message: cause.message,
    },
    { cause },
  );
