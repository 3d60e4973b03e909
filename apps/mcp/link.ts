// One MCP server for as long as Lantern runs: its current connection, and a new one after that has ended for any reason (it exited, hung,
// sent nonsense or an over-long line, lost the session). A call that was lost with it is not repeated: it may have had an effect. The next
// call starts the server again; one that ends repeatedly is started less and less often.

import { SourceError } from "../../src/base/errors.ts";
import type { ServerSpec } from "./config.ts";
import {
  type CallOptions,
  McpConnection,
  type McpPlatform,
  type ServerTool,
} from "./connection.ts";
import type { ToolResult } from "./content.ts";
import { longestPauseMs, shortestPauseMs } from "./limits.ts";

export class McpLink {
  readonly name: string;
  readonly tools: readonly ServerTool[];
  readonly notes: readonly string[];
  readonly #spec: ServerSpec;
  readonly #platform: McpPlatform;
  #connection: McpConnection;
  #opening: Promise<McpConnection> | undefined;
  /** Starts since it last answered a call. */
  #starts = 0;
  #notBefore = 0;
  #isClosed = false;

  private constructor(spec: ServerSpec, platform: McpPlatform, connection: McpConnection) {
    this.name = spec.name;
    this.tools = connection.tools;
    this.notes = connection.notes;
    this.#spec = spec;
    this.#platform = platform;
    this.#connection = connection;
  }

  /** Rejects with a SourceError that names the server, after its process and connection are closed. */
  static async open(
    spec: ServerSpec,
    platform: McpPlatform,
    signal?: AbortSignal,
  ): Promise<McpLink> {
    return new McpLink(spec, platform, await McpConnection.open(spec, platform, signal));
  }

  /** Why it cannot be called now; undefined: it can. */
  get problem(): string | undefined {
    return this.#connection.problem;
  }

  /** Rejects with a SourceError if there is no result. */
  async call(tool: string, args: unknown, options: CallOptions): Promise<ToolResult> {
    const connection = this.problem === undefined ? this.#connection : await this.#again();
    if (!connection.tools.some(({ name }) => name === tool)) {
      throw new SourceError(
        `MCP server ${this.name}: it was started again and has no tool ${JSON.stringify(tool)} any more. Restart Lantern to get its new list`,
      );
    }
    const result = await connection.call(tool, args, options);
    this.#starts = 0;
    return result;
  }

  /** Callers during a start wait for the same start. */
  async #again(): Promise<McpConnection> {
    const why = this.problem;
    if (this.#isClosed) throw new SourceError(`MCP server ${this.name}: ${why}`);
    const left = this.#notBefore - Date.now();
    if (!this.#opening && left > 0) {
      throw new SourceError(
        `MCP server ${this.name}: ${why}. It has ended ${this.#starts + 1} times without an answer: the first call after ${Math.ceil(left / 1000)} s starts it again`,
      );
    }
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return await this.#opening;
  }

  async #open(): Promise<McpConnection> {
    const pause = Math.min(longestPauseMs, shortestPauseMs * 2 ** this.#starts);
    this.#starts++;
    this.#notBefore = Date.now() + pause;
    const connection = await McpConnection.open(this.#spec, this.#platform);
    if (this.#isClosed) {
      await connection.close();
      throw new SourceError(`MCP server ${this.name}: it was closed`);
    }
    this.#connection = connection;
    return connection;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#connection.close();
    await this.#opening?.catch(() => {});
  }
}
