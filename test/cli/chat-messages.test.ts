// What `lantern chat` takes as a message and what as a command, and what it keeps of what was typed. The model is scripted.

import { expect, test } from "vitest";
import { ChatRepl } from "../../apps/cli/chat-repl.ts";
import type { CliContext } from "../../apps/cli/command.ts";
import { IdleWork } from "../../apps/cli/idle-work.ts";
import { palette } from "../../apps/cli/text.ts";
import { type ModelInfo, SourceError } from "../../src/index.ts";
import { interrupted } from "../../src/platform/node-cli.ts";
import type { RawListener, RawTerminal } from "../../src/platform/node-raw-terminal.ts";
import { scriptedChat } from "../support/tool-chat.ts";
import { FakeTerminal } from "./fake-terminal.ts";

function started(
  terminal: FakeTerminal & { raw?: () => RawTerminal },
  answers: string[],
): { repl: ChatRepl; sent: () => string[] } {
  terminal.inIsTerminal = true;
  const plain = palette(false);
  const context = {
    terminal,
    color: () => ({ out: plain, err: plain }),
    log: { has: () => false },
  } as unknown as CliContext;
  const { chat } = scriptedChat(answers);
  const info = { name: "scripted", contextSize: 100, backend: { placement: [] } } as unknown;
  const idle = new IdleWork([]);
  const repl = new ChatRepl(chat, info as ModelInfo, { limit: false }, context, idle);
  const sent = () =>
    chat.messages.filter(({ role }) => role === "user").map(({ content }) => content);
  return { repl, sent };
}

test("of several lines only those that begin with a command are one", async () => {
  const terminal = new FakeTerminal();
  const code = "// a comment\\";
  const lines = [code, "int x;", "/system Be", '"""', "/exit", '"""', "/what", "/undo\\", "x"];
  terminal.script = lines;
  const { repl, sent } = started(terminal, ["One.", "Two."]);
  await repl.run(undefined);
  expect(terminal.stderr).toContain("Unknown command: /what");
  expect(terminal.stderr).toContain("The last question and its answer were removed.");
  expect(terminal.stderr).toContain("The system message is set.");
  expect(sent()).toEqual(["// a comment\nint x;"]);
});

test("Ctrl-C twice at the prompt leaves; a message between them does not count", async () => {
  const terminal = new FakeTerminal();
  terminal.script = [interrupted, "Hi", interrupted, interrupted, "never"];
  const { repl, sent } = started(terminal, ["One.", "Two."]);
  expect(await repl.run(undefined)).toBe(130);
  expect(sent()).toEqual(["Hi"]);
  expect(terminal.script).toEqual(["never"]);
});

test("where what is typed cannot be kept, that is said once", async () => {
  let listener: RawListener;
  const raw = {
    columns: 40,
    rows: 10,
    draw: () => {},
    listen: (one: RawListener) => {
      listener = one;
    },
    divert: () => {},
    switchOn: () => {},
    close: () => {},
  } as unknown as RawTerminal;
  const tried: string[] = [];
  const typed = {
    read: async () => [],
    add: async (text: string) => {
      tried.push(text);
      throw new SourceError("the disk is full");
    },
  };
  const terminal = Object.assign(new FakeTerminal(), { raw: () => raw, typed });
  const { repl, sent } = started(terminal, ["One.", "Two."]);
  repl.keepTyped();
  const ended = repl.run(undefined);
  await expect.poll(() => listener !== undefined).toBe(true);
  for (const key of ["a", "\r", "b", "\r", "\x04"]) listener!.input(key);
  expect(await ended).toBe(0);
  expect(sent()).toEqual(["a", "b"]);
  expect(tried).toEqual(["a"]);
  expect(terminal.stderr.match(/not kept for later chats: the disk is full/g)).toHaveLength(1);
});
