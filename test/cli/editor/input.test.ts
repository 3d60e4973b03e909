// The messages of a chat from an emulated terminal: what is sent, what is asked, and what is typed meanwhile.
// Held against: an emulated terminal's screen.

import { describe, expect, test } from "vitest";
import { type ChatInput, EditedInput, LineInput } from "../../../apps/cli/editor/input.ts";
import { Recall } from "../../../apps/cli/editor/recall.ts";
import { palette } from "../../../apps/cli/text.ts";
import { interrupted } from "../../../src/platform/node-cli.ts";
import type { RawListener, RawTerminal } from "../../../src/platform/node-raw-terminal.ts";
import { TerminalEmulator } from "../../support/terminal-emulator.ts";

class FakeRaw implements RawTerminal {
  readonly screen = new TerminalEmulator(40, 12);
  readonly asked: string[] = [];
  readonly modes: string[] = [];
  write: (text: string) => void = () => {};
  #listener: RawListener | undefined;

  get columns(): number {
    return this.screen.columns;
  }
  get rows(): number {
    return this.screen.rows;
  }
  drawn = 0;
  draw(text: string): void {
    this.drawn++;
    this.screen.write(text);
  }
  listen(listener: RawListener): void {
    this.#listener = listener;
  }
  divert(writer: (text: string) => void): void {
    this.write = writer;
  }
  switchOn(on: string): void {
    this.modes.push(on);
    this.draw(on);
  }
  interrupt(): void {
    this.asked.push("interrupt");
  }
  suspend(): void {
    this.asked.push("suspend");
  }
  quit(): void {
    this.asked.push("quit");
  }
  close(): void {
    this.asked.push("close");
  }
  /** A read for each. */
  type(...reads: string[]): void {
    for (const read of reads) this.#listener!.input(read);
  }
  hangUp(): void {
    this.#listener!.ended();
  }
  goOn(): void {
    this.#listener!.resumed();
  }
}

function opened(before: string[] = [], environment: Record<string, string> = {}) {
  const raw = new FakeRaw();
  const sent: string[] = [];
  const input: ChatInput = new EditedInput(raw, {
    recall: new Recall(before),
    onSent: async (text) => void sent.push(text),
    complete: () => undefined,
    color: palette(false),
    env: (name) => environment[name],
  });
  return { raw, input, sent };
}

const keys = (text: string): string[] => [...text];

describe("on a terminal", () => {
  test("pasted lines are one message, which Enter sends", async () => {
    const { raw, input, sent } = opened();
    const message = input.next();
    raw.type("\x1b[200~one\rtwo\x1b[201~", "\r");
    expect(await message).toEqual({ text: "one\ntwo", isQuoted: false });
    expect(raw.screen.text).toBe("> one\n. two");
    expect(sent).toEqual(["one\ntwo"]);
    expect(raw.screen.modes).toContain("?2004");
  });

  test("lines that come in one read without marks are not sent", async () => {
    const { raw, input } = opened();
    const message = input.next();
    raw.type("one\rtwo\r");
    await expect.poll(() => raw.screen.text).toBe("> one\n. two\n.");
    raw.type("\r");
    expect(await message).toMatchObject({ text: "one\ntwo" });
  });

  test.each([
    ["with marks", "\x1b[200~", "\x1b[201~"],
    ["without marks", "", ""],
  ])("a long paste is drawn once, not for every read: %s", async (_, before, after) => {
    const { raw, input } = opened();
    const message = input.next();
    const lines = Array.from({ length: 3000 }, (_, at) => `line ${at}`);
    const drawn = raw.drawn;
    raw.type(before, ...lines.map((line) => `${line}\r`), after);
    await expect.poll(() => raw.screen.text).toContain("line 2999");
    expect(raw.drawn - drawn).toBeLessThanOrEqual(2);
    raw.type("\r");
    expect(await message).toEqual({ text: lines.join("\n"), isQuoted: false });
  });

  test("one line with Enter in one read is sent, after a while", async () => {
    const { raw, input } = opened();
    const message = input.next();
    raw.type("hello\r");
    expect(await message).toMatchObject({ text: "hello" });
  });

  test("what is typed during an answer is for the next message, and never for a question", async () => {
    const { raw, input } = opened();
    raw.type(...keys("y\rlater"));
    const answer = input.ask("Delete all?");
    expect(raw.screen.text).toBe("Delete all?\n?");
    raw.type("n", "\r");
    expect(await answer).toBe("n");
    expect(await input.next()).toMatchObject({ text: "y" });
    const rest = input.next();
    raw.type("\r");
    expect(await rest).toMatchObject({ text: "later" });
  });

  test("Ctrl-C during an answer interrupts it; at the prompt it clears the text", async () => {
    const { raw, input } = opened();
    raw.type("\x03");
    expect(raw.asked).toEqual(["interrupt"]);
    const first = input.next();
    raw.type("a", "\x03");
    expect(await first).toEqual({ kind: interrupted, cleared: true });
    const second = input.next();
    raw.type("\x03");
    expect(await second).toEqual({ kind: interrupted, cleared: false });
    expect(raw.screen.text).toBe("> a\n>");
  });

  test("Ctrl-Z takes the prompt away, and going on brings it back", async () => {
    const { raw, input } = opened();
    const message = input.next();
    raw.type("a", "\x1a");
    expect(raw.asked).toEqual(["suspend"]);
    expect(raw.screen.text).toBe("");
    raw.draw("$ fg\r\n");
    raw.goOn();
    expect(raw.screen.text).toBe("$ fg\n> a");
    raw.type("\r");
    expect(await message).toMatchObject({ text: "a" });
  });

  test("a terminal that goes away is the end", async () => {
    const { raw, input } = opened();
    const message = input.next();
    raw.hangUp();
    expect(await message).toBeUndefined();
    expect(await input.next()).toBeUndefined();
    input.close();
    expect(raw.asked).toEqual(["close"]);
  });

  test("keys are asked for as the terminal knows them", () => {
    const { raw } = opened();
    raw.type("\x1b[?0u", "\x1b[?0u");
    expect(raw.modes).toEqual(["\x1b[?2004h", "\x1b[>1u"]);
    expect(opened([], { TMUX: "x" }).raw.modes).toEqual(["\x1b[?2004h", "\x1b[>4;1m"]);
  });

  test("control characters are shown, and sent as they are", async () => {
    const { raw, input } = opened();
    const message = input.next();
    raw.type("\x1b[200~a\x1b[2Jb\u202ec\x1b[201~", "\r");
    expect(await message).toMatchObject({ text: "a\x1b[2Jb\u202ec" });
    expect(raw.screen.text).toBe("> a␛[2Jb\ufffdc");
  });
});

describe("by lines", () => {
  const input = (lines: (string | typeof interrupted)[], isTerminal: boolean) =>
    new LineInput({ next: async () => lines.shift(), close: () => {} }, palette(false), {
      inIsTerminal: isTerminal,
      out: () => {},
    });

  test("a backslash goes on, and on a terminal so do quotes", async () => {
    const lines = ["one\\", "two", '"""', "/exit", '"""'];
    const terminal = input([...lines], true);
    expect(await terminal.next()).toEqual({ text: "one\ntwo", isQuoted: false });
    expect(await terminal.next()).toEqual({ text: "/exit", isQuoted: true });
    expect(await terminal.next()).toBeUndefined();
    const pipe = input([...lines], false);
    const found = [];
    for (let one = await pipe.next(); one; one = await pipe.next()) found.push(one);
    expect(found).toEqual(
      ["one\ntwo", '"""', "/exit", '"""'].map((text) => ({ text, isQuoted: false })),
    );
  });

  test("the input ends within a message, and Ctrl-C drops it", async () => {
    expect(await input(["one\\"], false).next()).toMatchObject({ text: "one\n" });
    const stopped = input(["one\\", interrupted, "two"], true);
    expect(await stopped.next()).toEqual({ kind: interrupted, cleared: false });
    expect(await stopped.next()).toMatchObject({ text: "two" });
  });
});
