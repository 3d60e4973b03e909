// One MCP server: connected, asked for its tools, and called. If the server dies, hangs, floods or sends nonsense, a call still ends
// within its time with a result or an error that names the server.

import * as z from "zod";
import { AbortedError, messageOf, SourceError } from "../../src/base/errors.ts";
import { plural } from "../../src/base/plural.ts";
import type { LinePipe, LineProgram } from "../../src/platform/node-lines.ts";
import type { ServerSpec } from "./config.ts";
import { resultOf, type ToolResult } from "./content.ts";
import {
  connectMs,
  descriptionLength,
  lineLimits,
  mostPages,
  mostTools,
  pingMs,
  responseBytes,
  schemaLength,
} from "./limits.ts";
import { LineTransport } from "./line-transport.ts";
import { loadSdk, type McpClient, type Transport } from "./sdk.ts";

/** The platform functions of connections. */
export interface McpPlatform {
  startProgram(program: LineProgram): Promise<LinePipe>;
  /** A fetch whose answers have at most this many bytes. */
  boundedFetch(maxBytes: number): unknown;
}

/** A tool as its server describes it. */
export interface ServerTool {
  readonly name: string;
  readonly description: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** The SDK's code for a request without an answer in time. */
const timedOut = -32001;

export class McpConnection {
  readonly name: string;
  readonly tools: readonly ServerTool[];
  /** The tools that were left out of the server's list, and why: a sentence each. */
  readonly notes: readonly string[];
  readonly #client: McpClient;
  readonly #transport: Transport;
  readonly #isWeb: boolean;
  #ended: string | undefined;
  #knocking: Promise<void> | undefined;

  private constructor({ name, kind }: ServerSpec, link: Link, { tools, notes }: ListedTools) {
    this.name = name;
    this.#isWeb = kind === "http";
    this.tools = tools;
    this.notes = notes;
    this.#client = link.client;
    this.#transport = link.transport;
    link.client.onclose = () => {
      this.#ended ??= reasonOf(link.transport) ?? "the connection was closed";
    };
  }

  /** Rejects with a SourceError that names the server, after its process and connection are closed. */
  static async open(
    spec: ServerSpec,
    platform: McpPlatform,
    signal?: AbortSignal,
  ): Promise<McpConnection> {
    const late = AbortSignal.timeout(connectMs);
    const either = signal ? AbortSignal.any([signal, late]) : late;
    const transport = await makeTransport(spec, platform);
    try {
      const { Client } = await loadSdk("client/index.js");
      // No capabilities: a server can ask this client for nothing.
      const client = new Client({ name: "lantern", version: "1" }, { capabilities: {} });
      const options = { signal: either, timeout: connectMs };
      await orAborted(either, client.connect(transport, options));
      const listed = await listTools(client, spec.name, either);
      return new McpConnection(spec, { client, transport }, listed);
    } catch (cause) {
      const reason = reasonOf(transport);
      await transport.close();
      if (signal?.aborted) throw new AbortedError(`connecting to ${spec.name}`, { cause });
      const why = late.aborted
        ? `it did not answer within ${connectMs / 1000} s`
        : (reason ?? messageOf(cause));
      throw new SourceError(`MCP server ${spec.name}: ${why}`, { cause });
    }
  }

  /** Why it can no longer be called; undefined: it can. */
  get problem(): string | undefined {
    return this.#ended;
  }

  /** Rejects with a SourceError if there is no result. */
  async call(tool: string, args: unknown, { signal, timeoutMs }: CallOptions): Promise<ToolResult> {
    if (this.#ended !== undefined) throw this.#failure(this.#ended);
    const { CallToolResultSchema } = await loadSdk("types.js");
    try {
      const result = await this.#client.request(
        { method: "tools/call", params: { name: tool, arguments: args } },
        CallToolResultSchema,
        { timeout: timeoutMs, ...(signal && { signal }) },
      );
      return resultOf(result);
    } catch (cause) {
      if (signal?.aborted) throw new AbortedError(`the call of ${tool}`, { cause });
      const { code } = cause as { code?: number };
      if (code === timedOut) {
        this.#knocking ??= this.#knock();
        throw this.#failure(`${tool} took more than ${timeoutMs / 1000} s`, cause);
      }
      // Not an error that the server sends (those codes are negative): over HTTP, a connection or session that is gone.
      if (this.#isWeb && !(typeof code === "number" && code < 0)) {
        this.#ended ??= `it cannot be reached: ${shortMessage(cause)}`;
      }
      throw this.#failure(this.#ended ?? `${tool}: ${shortMessage(cause)}`, cause);
    }
  }

  /** A call took too long: the server is slow, or it hangs. */
  async #knock(): Promise<void> {
    const { EmptyResultSchema } = await loadSdk("types.js");
    try {
      await this.#client.request({ method: "ping" }, EmptyResultSchema, { timeout: pingMs });
    } catch (error) {
      if ((error as { code?: number }).code === timedOut) {
        this.#ended ??= `it does not answer, not even a ping within ${pingMs / 1000} s`;
        await this.#transport.close();
      }
    } finally {
      this.#knocking = undefined;
    }
  }

  #failure(why: string, cause?: unknown): SourceError {
    return new SourceError(`MCP server ${this.name}: ${why}`, { cause });
  }

  async close(): Promise<void> {
    this.#ended ??= "it was closed";
    await this.#transport.close();
  }
}

interface Link {
  readonly client: McpClient;
  readonly transport: Transport;
}

interface ListedTools {
  readonly tools: readonly ServerTool[];
  readonly notes: readonly string[];
}

async function makeTransport(spec: ServerSpec, platform: McpPlatform): Promise<Transport> {
  if (spec.kind === "stdio") {
    const { command, args, env, cwd } = spec;
    try {
      const program = { command, args, env, cwd, limits: lineLimits };
      return new LineTransport(await platform.startProgram(program));
    } catch (cause) {
      throw new SourceError(`MCP server ${spec.name}: ${messageOf(cause)}`, { cause });
    }
  }
  const { StreamableHTTPClientTransport } = await loadSdk("client/streamableHttp.js");
  return new StreamableHTTPClientTransport(new URL(spec.url), {
    fetch: platform.boundedFetch(responseBytes),
    requestInit: { headers: spec.headers },
  });
}

const reasonOf = (transport: Transport): string | undefined =>
  transport instanceof LineTransport ? transport.reason : undefined;

/** All pages of a server's tools, within bounds. */
async function listTools(
  client: McpClient,
  server: string,
  signal: AbortSignal,
): Promise<ListedTools> {
  const tools: ServerTool[] = [];
  const notes: string[] = [];
  let cursor: unknown;
  for (let page = 0; page < mostPages; page++) {
    const params = cursor === undefined ? {} : { cursor };
    const request = client.request({ method: "tools/list", params }, listInput, {
      signal,
      timeout: connectMs,
    });
    const listed = (await orAborted(signal, request)) as z.infer<typeof listInput>;
    for (const [at, given] of listed.tools.entries()) {
      if (tools.length >= mostTools) break;
      const tool = toolOf(given);
      if (typeof tool !== "string") tools.push(tool);
      else {
        const { name } = Object(given) as { name?: unknown };
        const shown =
          typeof name === "string" ? JSON.stringify(name.slice(0, 64)) : `tool ${at + 1}`;
        notes.push(`MCP server ${server}: ${shown} is left out: ${tool}`);
      }
    }
    cursor = listed.nextCursor;
    if (cursor === undefined) return { tools, notes };
    if (tools.length >= mostTools) break;
  }
  notes.push(
    `MCP server ${server}: it has more tools than the first ${plural(tools.length, "tool")}, which are left out`,
  );
  return { tools, notes };
}

/** Tools are checked one by one: a wrong one does not cost the others. */
const listInput = z.looseObject({
  tools: z.array(z.unknown()),
  nextCursor: z.string().optional(),
});
const toolInput = z.looseObject({
  name: z.string(),
  description: z.string().default(""),
  inputSchema: z.looseObject({ type: z.literal("object") }),
});

/** A tool, or the reason why it cannot be offered. */
function toolOf(given: unknown): ServerTool | string {
  const read = toolInput.safeParse(given);
  if (!read.success) return messageOf(read.error);
  const { name, description, inputSchema: schema } = read.data;
  if (description.length > descriptionLength) {
    return `its description has ${description.length} characters, at most ${descriptionLength} are read`;
  }
  const { length } = JSON.stringify(schema);
  if (length > schemaLength) {
    return `its schema has ${length} characters, at most ${schemaLength} are read`;
  }
  return { name, description, schema };
}

/** Settles with the promise, or rejects with the abort: not every request of the SDK looks at its signal. */
async function orAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  promise.catch(() => {}); // it may fail after the abort
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** A server's error message may be long. */
const shortMessage = (error: unknown): string => messageOf(error).slice(0, 2000);
