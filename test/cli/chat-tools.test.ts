// Tools in `lantern chat`: every call is shown and asked for, and what cannot be asked is refused. The model is scripted, so that it
// calls what a test wants; chat-mcp.test.ts has real servers.

import { describe, expect, test } from "vitest";
import { ChatRepl } from "../../apps/cli/chat-repl.ts";
import { ChatTools, type ToolFlags } from "../../apps/cli/chat-tools.ts";
import type { CliContext } from "../../apps/cli/command.ts";
import { IdleWork } from "../../apps/cli/idle-work.ts";
import { palette } from "../../apps/cli/text.ts";
import type { McpServers } from "../../apps/mcp/servers.ts";
import type { ModelInfo } from "../../src/index.ts";
import { interrupted } from "../../src/platform/node-cli.ts";
import { callText, type Line, scriptedChat } from "../support/tool-chat.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const about = { server: "files", description: "", schema: { type: "object" } };

/** Two tools of one server, and what was run. */
function fakeServers(ran: unknown[], onHang: () => void): Pick<McpServers, keyof McpServers> {
  const tool = (name: string) => ({ name, ...about });
  const chatTool = (name: string) => ({
    parameters: { type: "object" },
    run: async (args: unknown, { signal }: { signal: AbortSignal }) => {
      ran.push([name, args]);
      if (name === "hang") {
        const stopped = new Promise((stop) => signal.addEventListener("abort", stop));
        onHang();
        await stopped;
      }
      return `\u001b[2J${"long ".repeat(200)}`;
    },
  });
  return {
    tools: [tool("read"), tool("hang")],
    servers: [
      { name: "files", status: "ready" },
      { name: "web", status: "failed", problem: "MCP server web: gone" },
    ],
    notes: [],
    find: (name) => tool(name),
    chatTools: () => ({ read: chatTool("read"), hang: chatTool("hang") }),
    call: () => Promise.reject(new Error("not here")),
    close: async () => {},
  };
}

async function chat(
  lines: Line[],
  script: FakeTerminal["script"],
  {
    isTerminal = true,
    flags = {},
    onHang = () => {},
  }: {
    isTerminal?: boolean;
    flags?: Partial<ToolFlags>;
    /** The tool that hangs was called. */
    onHang?: (terminal: FakeTerminal) => void;
  } = {},
) {
  const terminal = new FakeTerminal();
  terminal.inIsTerminal = isTerminal;
  terminal.script = script;
  const plain = palette(false);
  const context = {
    terminal,
    color: () => ({ out: plain, err: plain }),
    log: { has: () => false },
  } as unknown as CliContext;
  const ran: unknown[] = [];
  const { chat: conversation, prompts } = scriptedChat(lines);
  const info = { name: "scripted", contextSize: 100, backend: { placement: [] } } as unknown;
  const repl = new ChatRepl(
    conversation,
    info as ModelInfo,
    { limit: false },
    context,
    new IdleWork([]),
  );
  repl.useTools(
    new ChatTools(
      fakeServers(ran, () => onHang(terminal)),
      { toolSteps: 8, toolTimeout: 60, ...flags },
      context,
    ),
  );
  await repl.run(undefined);
  return { ran, out: terminal.stdout, err: terminal.stderr, prompts, left: terminal.script };
}

describe("a call", () => {
  const call = callText("read", { path: "a.txt" });

  test("is shown with its server and arguments, runs after yes, and its result is shown shortened", async () => {
    const { ran, out, err, prompts } = await chat([`Looking.${call}`, "It is long."], ["Hi", "y"]);
    expect(ran).toEqual([["read", { path: "a.txt" }]]);
    expect(err).toContain('read (files) {"path":"a.txt"}');
    expect(err).toContain("1004 characters: ");
    expect(err).toContain("more characters)");
    expect(out).toContain("Looking.\n");
    expect(out).toContain("It is long.\n");
    expect(prompts[1]).toContain("long long");
  });

  test("is refused after no, and after three answers that are neither", async () => {
    const { ran, prompts, out } = await chat(
      [call, "Fine.", call, "Well."],
      ["Hi", "n", "Again", "?", "maybe", "later"],
    );
    expect(ran).toEqual([]);
    expect(prompts[1]).toContain("error: the user refused this call");
    expect(out).toContain("Well.");
  });

  test("always is for this tool and this chat; others are still asked for", async () => {
    const lines = [call, "One.", call, "Two.", callText("hang", {}), "Three."];
    const { ran } = await chat(lines, ["1", "a", "2", "3", "n"]);
    expect(ran).toEqual([
      ["read", { path: "a.txt" }],
      ["read", { path: "a.txt" }],
    ]);
  });

  test("through a pipe: refused, unless it is on the list or --yes-tools is given", async () => {
    const lines = [`${call}\n${callText("hang", {})}`, "Done."];
    const none = await chat(lines, ["Hi"], { isTerminal: false });
    expect(none.ran).toEqual([]);
    expect(none.err).toContain("Allow it with --allow-tool read, or all tools with --yes-tools.");
    const one = await chat(lines, ["Hi"], { isTerminal: false, flags: { allowTool: ["read"] } });
    expect(one.ran).toEqual([["read", { path: "a.txt" }]]);
    const short = { yesTools: true, toolTimeout: 0.05 };
    const all = await chat(lines, ["Hi"], { isTerminal: false, flags: short });
    expect(all.ran).toHaveLength(2);
  });

  test("Ctrl-C at the question stops the answer; the chat goes on", async () => {
    const { ran, out, left } = await chat([call, "Still here."], ["Hi", interrupted, "There?"]);
    expect(ran).toEqual([]);
    expect(out).toContain("Still here.");
    expect(left).toEqual([]);
  });

  test("Ctrl-C stops a call that hangs; the chat goes on", async () => {
    const { ran, out, err } = await chat(
      [`Wait.${callText("hang", {})}`, "Back."],
      ["1", "y", "2"],
      { onHang: (terminal) => terminal.pressCtrlC() },
    );
    expect(ran).toHaveLength(1);
    expect(err).toContain("hang did not run to its end (stopped)");
    expect(out).toContain("Back.");
  });

  test("the limit of steps is said", async () => {
    const flags = { yesTools: true, toolSteps: 2 };
    const { ran, err } = await chat(Array(5).fill(call), ["Hi"], { flags });
    expect(ran).toHaveLength(1);
    expect(err).toContain("--tool-steps allows more steps");
  });

  test("/tools lists servers, also those that failed", async () => {
    const { err } = await chat([], ["/tools"]);
    expect(err).toContain("files: read, hang\nMCP server web: gone");
  });
});
