// lantern chat --tools and --mcp with real servers: the flags, and the processes that are started and ended.
// Held against: the calls that a real MCP server got.

import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { hasMcpSdk, noMcpSdk } from "../support/mcp-sdk.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { toolTemplate } from "../support/tool-chat.ts";
import { FakeTerminal } from "./fake-terminal.ts";

describe("flags", () => {
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
  const server = fileURLToPath(new URL("../support/mcp-server.ts", import.meta.url));
  const mcp = `"${process.execPath}" "${server}"`;

  async function run(args: string[], terminal = new FakeTerminal()) {
    const code = await main(["chat", ...args], terminal, downloads);
    return { code, err: terminal.stderr, out: terminal.stdout };
  }

  test("what is wrong is said before a model is loaded", async () => {
    const terminal = new FakeTerminal();
    terminal.files.set("t.json", "{");
    const at = ["-m", "/nonexistent.gguf"];
    expect(await run([...at, "--tools", "t.json"], terminal)).toMatchObject({
      code: 2,
      err: expect.stringContaining("t.json: it is no JSON"),
    });
    expect((await run([...at, "--yes-tools"])).err).toContain("got --yes-tools without tools");
    expect((await run([...at, "--mcp", " "])).err).toContain("--mcp: got no command");
    expect(await run([...at, "--mcp", mcp, "--regex", "a+"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("got tools and a grammar, expected one of them"),
    });
  });

  test.skipIf(!hasMcpSdk)(
    `a server's tools reach the prompt, and its process ends${noMcpSdk}`,
    async () => {
      const file = await tinyFile({
        more: [
          ["llama.context_length", { type: "u32", value: 4096 }],
          ["tokenizer.chat_template", { type: "string", value: toolTemplate }],
        ],
      });
      try {
        const terminal = new FakeTerminal();
        terminal.script = ["/tools", "Hello", "/save a.json"];
        const model = ["-m", file.path, "--temp", "0", "-n", "3", "--no-history"];
        const absent = ["--mcp", "/nonexistent/program"];
        const unknown = await run([...model, "--mcp", mcp, "--allow-tool", "nothing"]);
        expect(unknown.err).toContain('--allow-tool: there is no tool "nothing". Tools: add, echo');
        const { err } = await run([...model, "--mcp", mcp, ...absent], terminal);
        expect(err).toContain("Connecting to 2 MCP servers");
        expect(err).toContain("MCP server mcp2: /nonexistent/program cannot be started");
        expect(err).toContain("mcp1: add, echo, fail, picture, environment, wait");
        expect(terminal.files.get("a.json")).toContain('"role": "assistant"');
        expect(err).not.toContain("knows no tools");
        const generic = new FakeTerminal();
        generic.script = ["Hello", "/save a.json"];
        const told = await run([...model, "--template", "chatml", "--mcp", mcp], generic);
        expect(told.err.match(/knows no tools: the system message describes them/g)).toHaveLength(
          1,
        );
        expect(generic.files.get("a.json")).toContain('"role": "assistant"');
      } finally {
        file.remove();
      }
    },
    60_000,
  );
});
