// Lantern as an MCP server: answers one client's requests for its tools. Wrong requests are errors of the protocol; a call that fails is
// a result that says so, which the client's model can read.

import * as z from "zod";
import { detailsOf, LanternError, messageOf } from "../../../src/base/errors.ts";
import { type HandlerExtra, loadSdk, type McpServer } from "../sdk.ts";
import { type OwnParts, type OwnRun, ownTools } from "./tools.ts";

/** Between two progress notifications of a call. */
const progressMs = 200;

const invalidParams = -32602;
const internalError = -32603;

/** @param log For failures that are ours. */
export async function ownServer(parts: OwnParts, log: (line: string) => void): Promise<McpServer> {
  const { Server } = await loadSdk("server/index.js");
  const { CallToolRequestSchema, ListToolsRequestSchema, McpError } = await loadSdk("types.js");
  const about = { name: "lantern", version: parts.version };
  const server = new Server(about, { capabilities: { tools: {} } });
  const listed = [...ownTools].map(([name, { description, input }]) => ({
    name,
    description,
    inputSchema: z.toJSONSchema(input, { io: "input" }),
    annotations: { readOnlyHint: true, openWorldHint: false },
  }));
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: listed }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const name = String(params.name);
    const tool = ownTools.get(name);
    if (tool === undefined) {
      const known = [...ownTools.keys()].join(", ");
      throw new McpError(invalidParams, `there is no tool "${name.slice(0, 64)}". Tools: ${known}`);
    }
    const read = tool.input.safeParse(params.arguments ?? {});
    if (!read.success) {
      throw new McpError(invalidParams, `${name}: ${messageOf(read.error)}`);
    }
    try {
      const { text, structured } = await tool.run(read.data, runOf(extra), parts);
      return { content: [{ type: "text", text }], structuredContent: structured };
    } catch (error) {
      if (error instanceof LanternError) {
        return { content: [{ type: "text", text: error.message }], isError: true };
      }
      log(`${name}: ${detailsOf(error)}`);
      throw new McpError(
        internalError,
        `${name}: this is a bug in Lantern, which its log describes`,
      );
    }
  });
  return server;
}

function runOf({ signal, _meta, sendNotification }: HandlerExtra): OwnRun {
  const token = _meta?.progressToken;
  let last = Number.NEGATIVE_INFINITY;
  let sent = -1;
  return {
    signal,
    progress(done, total, message) {
      const now = performance.now();
      // The protocol wants values that grow.
      if (token === undefined || done <= sent || now - last < progressMs) return;
      last = now;
      sent = done;
      const params = {
        progressToken: token,
        progress: done,
        ...(total !== undefined && { total }),
        message,
      };
      sendNotification({ method: "notifications/progress", params }).catch(() => {}); // the client has gone
    },
  };
}
