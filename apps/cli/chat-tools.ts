// Tools in `lantern chat`: the servers that the flags name, and the display of every call. A call is shown before it runs, with its
// arguments and its server, and runs only if the user allows it or has allowed it before.

import type { Command } from "commander";
import {
  type AnswerEvent,
  knowsTools,
  type Model,
  type ToolCall,
  type ToolOptions,
  type ToolOutcome,
  UsageError,
} from "../../src/index.ts";
import { interrupted } from "../../src/platform/node-cli.ts";
import { boundedFetch, startLineProgram } from "../../src/platform/node-lines.ts";
import { plainText } from "../../src/platform/terminal-text.ts";
import type { ServerSpec } from "../mcp/config.ts";
import { callMs } from "../mcp/limits.ts";
import { CallPolicy, type Confirmation } from "../mcp/policy.ts";
import type { McpServers } from "../mcp/servers.ts";
import type { CliContext } from "./command.ts";
import type { ChatInput } from "./editor/input.ts";
import { numberFlag, repeatedFlag } from "./flag-values.ts";
import { outPlain, plural } from "./text.ts";

export interface ToolFlags {
  tools?: string;
  mcp?: string[];
  allowTool?: string[];
  yesTools?: boolean;
  toolSteps: number;
  toolTimeout: number;
}

export function addToolFlags(command: Command): Command {
  return command
    .option(
      "--tools <file>",
      'let the model call tools of the MCP servers in this file: {"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}} (docs/library/tools.md); every call is shown, and you are asked before it runs',
    )
    .option(
      "--mcp <server>",
      'let the model call tools of this MCP server: a command in quotes ("npx -y SERVER /tmp"), or a URL; repeatable',
      repeatedFlag,
    )
    .option("--allow-tool <name>", "run this tool without asking; repeatable", repeatedFlag)
    .option("--yes-tools", "run all tools without asking: the model decides alone what they do")
    .option(
      "--tool-steps <n>",
      "how often the model may answer one message, calls of tools included",
      numberFlag({ integer: true, min: 1, max: 1000 }),
      8,
    )
    .option(
      "--tool-timeout <s>",
      "how long a call of a tool may take, in seconds",
      numberFlag({ min: 0.1, max: 86_400 }),
      callMs / 1000,
    );
}

/** The servers that the flags name; undefined: none. */
export async function openChatTools(
  flags: ToolFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<ChatTools | undefined> {
  const { tools, mcp, allowTool = [], yesTools } = flags;
  if (tools === undefined && mcp === undefined) {
    if (!yesTools && allowTool.length === 0) return undefined;
    const flag = yesTools ? "--yes-tools" : "--allow-tool";
    throw new UsageError(`chat: got ${flag} without tools, expected --tools FILE or --mcp, too`);
  }
  const servers = await openServers({ file: tools, servers: mcp }, context, signal);
  const unknown = allowTool.find((name) => servers.find(name) === undefined);
  if (unknown === undefined) return new ChatTools(servers, flags, context);
  await servers.close();
  const names = servers.tools.map(({ name }) => name).join(", ") || "none";
  throw new UsageError(`--allow-tool: there is no tool "${unknown}". Tools: ${names}`);
}

/** Connects to the servers of a file, and to those of commands and URLs. */
export async function openServers(
  { file, servers = [] }: { file?: string | undefined; servers?: readonly string[] | undefined },
  { terminal, log }: CliContext,
  signal: AbortSignal,
): Promise<McpServers> {
  // Commands without tools start without these.
  const { readServers, serverOf } = await import("../mcp/config.ts");
  const { McpServers } = await import("../mcp/servers.ts");
  const specs: ServerSpec[] = [
    ...(file === undefined ? [] : readServers(await terminal.readText(file), file)),
    ...servers.map((text, at) => serverOf(text, at + 1)),
  ];
  terminal.err(`Connecting to ${plural(specs.length, "MCP server")}\n`);
  const platform = { startProgram: startLineProgram, boundedFetch };
  const opened = await McpServers.open(specs, platform, signal);
  for (const note of opened.notes) log.warn(`Warning: ${note}\n`);
  return opened;
}

/** A note for the user if the model's own template knows no tools. */
export async function toolFormatNote(name: string, model: Model): Promise<string | undefined> {
  const format = await model.answerFormat();
  if (format === undefined || knowsTools(format)) return undefined;
  return `The chat template of ${name} knows no tools: the system message describes them, and how well it calls them is up to the model.`;
}

/** Characters of arguments and results that are shown. */
const shownArguments = 4000;
const shownResult = 300;

/** The servers of a chat. */
type Servers = Pick<McpServers, "tools" | "servers" | "find" | "chatTools" | "close">;

export class ChatTools {
  readonly #servers: Servers;
  readonly #flags: ToolFlags;
  readonly #context: CliContext;
  #policy: CallPolicy | undefined;
  /** Stops the running answer. */
  #stop: () => void = () => {};
  #isMidLine = false;

  constructor(servers: Servers, flags: ToolFlags, context: CliContext) {
    this.#servers = servers;
    this.#flags = flags;
    this.#context = context;
  }

  /** "MCP tools: add, echo". */
  summary(): string {
    const { tools, servers } = this.#servers;
    const lines = servers.map(({ name, status, problem }) => {
      const own = tools.filter(({ server }) => server === name).map((tool) => tool.name);
      return status === "ready" ? `${name}: ${own.join(", ") || "no tools"}` : problem!;
    });
    return lines.join("\n");
  }

  /** The options for chat.send(). `input`: the user's confirmations. */
  options(
    input: ChatInput,
    stop: () => void,
  ): ToolOptions<Record<string, Record<string, unknown>>> {
    const { toolSteps, toolTimeout } = this.#flags;
    const timeoutMs = Math.ceil(toolTimeout * 1000);
    const policy = this.#policyWith(input);
    this.#stop = stop;
    return {
      tools: this.#servers.chatTools(timeoutMs),
      maxSteps: toolSteps,
      toolTimeoutMs: timeoutMs + 1000, // the server's own time is over first: its message says more
      onCall: (call) => {
        this.#showCall(call);
        return policy.decide(call);
      },
    };
  }

  /** One policy for the whole chat: "always" lasts. */
  #policyWith(input: ChatInput): CallPolicy {
    const allowed = this.#flags.yesTools ? "all" : (this.#flags.allowTool ?? []);
    const ask = (call: ToolCall): Promise<Confirmation> => this.#ask(call, input);
    this.#policy ??= new CallPolicy(allowed, this.#context.terminal.inIsTerminal ? ask : undefined);
    return this.#policy;
  }

  async #ask({ name }: ToolCall, input: ChatInput): Promise<Confirmation> {
    for (let tries = 0; tries < 3; tries++) {
      const line = await input.ask(`Run ${name}? y: yes, n: no, a: always in this chat  `);
      if (line === interrupted) this.#stop();
      if (typeof line !== "string") return "no";
      const answer = line.trim().toLowerCase();
      if (answer === "y" || answer === "yes") return "once";
      if (answer === "a" || answer === "always") return "always";
      if (answer === "n" || answer === "no") return "no";
    }
    return "no";
  }

  /** Writes the answer to stdout, and everything about calls to stderr. */
  async show(events: AsyncIterable<AnswerEvent>): Promise<void> {
    for await (const event of events) {
      showText(event, this.#context);
      if (event.kind === "content") this.#isMidLine = !event.text.endsWith("\n");
      else if (event.kind === "outcome") this.#showOutcome(event.outcome);
    }
    this.#isMidLine = false;
  }

  #showCall({ name, arguments: args }: ToolCall): void {
    const server = this.#servers.find(name)?.server ?? "";
    this.#note(`${name} (${server}) ${shortened(JSON.stringify(args), shownArguments)}`);
  }

  #showOutcome({ call, status, text, fullLength }: ToolOutcome): void {
    const length = fullLength ?? text.length;
    const result = shortened(text.replaceAll(/\s+/g, " "), shownResult);
    if (status === "ok") this.#note(`  ${plural(length, "character")}: ${result}`);
    else this.#note(`  ${call.name} did not run to its end (${status}): ${result}`);
    if (status === "refused" && !this.#context.terminal.inIsTerminal) {
      this.#note(`  Allow it with --allow-tool ${call.name}, or all tools with --yes-tools.`);
    }
  }

  #note(text: string): void {
    const { terminal } = this.#context;
    if (this.#isMidLine) terminal.out("\n");
    this.#isMidLine = false;
    terminal.err(`${this.#context.color().err.dim(text)}\n`);
  }

  async close(): Promise<void> {
    await this.#servers.close();
  }
}

/** The answer goes to stdout, the reasoning before it to stderr. */
export function showText(event: AnswerEvent, { terminal, color }: CliContext): void {
  if (event.kind === "content") outPlain(terminal, event.text);
  else if (event.kind === "reasoning") terminal.err(color().err.dim(plainText(event.text)));
}

function shortened(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text.slice(0, most)}... (${plural(text.length - most, "more character")})`;
}
