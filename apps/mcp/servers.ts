// All MCP servers of a chat or of `lantern serve`, and their tools under distinct names. A server that cannot be reached is
// reported and left out; the others are there.

import { AbortedError, LanternError, UsageError } from "../../src/base/errors.ts";
import { schemaProblems, type Tool } from "../../src/index.ts";
import type { ServerSpec } from "./config.ts";
import type { McpPlatform } from "./connection.ts";
import type { ToolResult } from "./content.ts";
import { callMs, mostTools } from "./limits.ts";
import { McpLink } from "./link.ts";

/** A tool under the name that the model uses. */
export interface McpTool {
  readonly name: string;
  readonly server: string;
  readonly description: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** The state of a server. */
export interface McpServerState {
  readonly name: string;
  readonly status: "ready" | "failed";
  /** Why it failed. */
  readonly problem?: string;
}

interface Target {
  readonly tool: McpTool;
  readonly connection: McpLink;
  /** The server's own name of it. */
  readonly own: string;
}

export class McpServers {
  readonly #connections: readonly McpLink[];
  readonly #failed: readonly McpServerState[];
  readonly #targets = new Map<string, Target>();
  /** Failures, a sentence each. */
  readonly notes: readonly string[];

  private constructor(
    connections: readonly McpLink[],
    failed: readonly McpServerState[],
    notes: string[],
  ) {
    this.#connections = connections;
    this.#failed = failed;
    const all = connections.flatMap((connection) =>
      connection.tools.map((tool) => ({ connection, tool })),
    );
    const taken = (name: string): number =>
      all.filter(({ tool }) => safeName(tool.name) === name).length;
    for (const { connection, tool } of all) {
      const plain = safeName(tool.name);
      const name = taken(plain) === 1 ? plain : safeName(`${connection.name}_${tool.name}`);
      if (this.#targets.has(name) || this.#targets.size === mostTools) {
        const why = this.#targets.has(name)
          ? "another tool has its name"
          : `at most ${mostTools} tools are possible`;
        notes.push(`MCP server ${connection.name}: ${JSON.stringify(name)} is left out: ${why}`);
        continue;
      }
      const { description, schema } = tool;
      const view = { name, server: connection.name, description, schema };
      this.#targets.set(name, { tool: view, connection, own: tool.name });
    }
    this.notes = [...connections.flatMap((one) => one.notes), ...notes];
  }

  /** Connects to all of them at once. */
  static async open(
    specs: readonly ServerSpec[],
    platform: McpPlatform,
    signal?: AbortSignal,
  ): Promise<McpServers> {
    checkNames(specs);
    const opened = await Promise.allSettled(
      specs.map((spec) => McpLink.open(spec, platform, signal)),
    );
    const connections: McpLink[] = [];
    const failed: McpServerState[] = [];
    const notes: string[] = [];
    let bug: unknown;
    for (const [at, result] of opened.entries()) {
      if (result.status === "fulfilled") connections.push(result.value);
      else if (result.reason instanceof LanternError && !isOurs(result.reason)) {
        const problem = result.reason.message;
        failed.push({ name: specs[at]!.name, status: "failed", problem });
        notes.push(`${problem}. Its tools are left out`);
      } else bug ??= result.reason;
    }
    if (bug !== undefined) {
      await Promise.all(connections.map((one) => one.close()));
      throw bug;
    }
    return new McpServers(connections, failed, notes);
  }

  get tools(): McpTool[] {
    return [...this.#targets.values()].map(({ tool }) => tool);
  }

  get servers(): McpServerState[] {
    const open = this.#connections.map(({ name, problem }): McpServerState => {
      if (problem === undefined) return { name, status: "ready" };
      return { name, status: "failed", problem: `MCP server ${name}: ${problem}` };
    });
    return [...open, ...this.#failed];
  }

  find(name: string): McpTool | undefined {
    return this.#targets.get(name)?.tool;
  }

  /** Arguments that do not follow the tool's schema are a failed result; its server does not see them. */
  async call(
    name: string,
    args: unknown,
    { signal, timeoutMs = callMs }: { signal?: AbortSignal; timeoutMs?: number } = {},
  ): Promise<ToolResult> {
    const target = this.#targets.get(name);
    if (target === undefined) {
      const known = [...this.#targets.keys()].join(", ") || "none";
      throw new UsageError(
        `there is no tool ${JSON.stringify(name.slice(0, 64))}. Tools: ${known}`,
      );
    }
    const problems = await schemaProblems(target.tool.schema, args);
    if (problems.length > 0) {
      return { text: `the arguments do not fit: ${problems.join("; ")}`, isError: true };
    }
    return await target.connection.call(target.own, args, { signal, timeoutMs });
  }

  /** The tools for chat.send(). */
  chatTools(timeoutMs: number): Record<string, Tool<Record<string, unknown>>> {
    const entries = this.tools.map(({ name, description, schema }) => {
      const run = async (args: unknown, { signal }: { signal: AbortSignal }): Promise<string> => {
        const { text, isError } = await this.call(name, args, { signal, timeoutMs });
        if (isError) throw new Error(text);
        return text;
      };
      return [name, { description, parameters: schema, run }] as const;
    });
    return Object.fromEntries(entries);
  }

  /** Every process that was started has ended when this resolves. */
  async close(): Promise<void> {
    await Promise.all(this.#connections.map((one) => one.close()));
  }
}

/** Failures that no server caused: the package is missing, the user has stopped it. */
const isOurs = (error: LanternError): boolean =>
  error instanceof AbortedError || error instanceof UsageError;

function checkNames(specs: readonly ServerSpec[]): void {
  const names = new Set<string>();
  for (const { name } of specs) {
    if (names.has(name)) throw new UsageError(`MCP: got two servers with the name ${name}`);
    names.add(name);
  }
}

/** The names that templates and APIs take. */
const safeName = (name: string): string => name.replaceAll(/[^\w.-]/g, "_").slice(0, 64) || "_";
