// A small MCP server, made with the SDK, for tests that start it as a process: tools that add, echo, fail, wait and report their
// environment.

import { loadSdk, type Transport } from "../../apps/mcp/sdk.ts";

const text = (value: string) => ({ content: [{ type: "text", text: value }] });
const schema = (properties: object) => ({ type: "object", properties });

type Args = Record<string, unknown>;

const tools: Readonly<
  Record<string, { schema: object; run(args: Args, signal: AbortSignal): unknown }>
> = {
  add: {
    schema: { ...schema({ a: { type: "number" }, b: { type: "number" } }), required: ["a", "b"] },
    run: ({ a, b }) => text(String(Number(a) + Number(b))),
  },
  echo: {
    schema: schema({ text: { type: "string" } }),
    run: ({ text: said }) => text(String(said)),
  },
  fail: { schema: schema({}), run: () => ({ ...text("the disk is full"), isError: true }) },
  picture: {
    schema: schema({}),
    run: () => ({ content: [{ type: "image", data: "AAAA", mimeType: "image/png" }] }),
  },
  environment: {
    schema: schema({}),
    run: () => text(JSON.stringify({ pid: process.pid, names: Object.keys(process.env) })),
  },
  wait: {
    schema: schema({}),
    run: (_, signal) =>
      new Promise((_resolve, reject) => {
        const timer = setInterval(() => {}, 1000);
        signal.addEventListener("abort", () => {
          clearInterval(timer);
          process.stderr.write("cancelled\n");
          reject(new Error("cancelled"));
        });
      }),
  },
};

const { Server } = await loadSdk("server/index.js");
const { CallToolRequestSchema, ListToolsRequestSchema, sdk } = {
  ...(await loadSdk("types.js")),
  sdk: "@modelcontextprotocol/sdk",
};
const server = new Server({ name: "test", version: "1" }, { capabilities: { tools: {} } });
// Two pages, so that pages are followed.
server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
  const all = Object.entries(tools).map(([name, { schema: inputSchema }]) => ({
    name,
    description: `It can ${name}.`,
    inputSchema,
  }));
  const isFirst = params?.cursor === undefined;
  return isFirst ? { tools: all.slice(0, 2), nextCursor: "2" } : { tools: all.slice(2) };
});
server.setRequestHandler(CallToolRequestSchema, ({ params }, { signal }) =>
  tools[params.name as string]!.run((params.arguments ?? {}) as Args, signal),
);
const { StdioServerTransport } = (await import(`${sdk}/server/stdio.js`)) as {
  StdioServerTransport: new () => Transport;
};
await server.connect(new StdioServerTransport());
