// lantern chat in a real terminal, by key strokes: what is sent, what the screen shows, and how the terminal is left. What every key does
// is in editor/editor.test.ts.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cellsOf } from "../../apps/cli/editor/widths.ts";
import { wrapLine } from "../../apps/cli/editor/wrap.ts";
import type { ChatMessage } from "../../src/index.ts";
import { noTmux, quoted, Tmux } from "../support/tmux.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const flags = "-m stories15m --template zephyr --temp 0 -t 1 --no-tune";

/** An answer that ends with Ctrl-C only, however fast the machine is. */
const endless = "-n 1000000 --ignore-eos --context-shift";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-chat-terminal-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A shell in a terminal, with a data folder of its own. */
class Shell extends Tmux {
  readonly data: string;

  constructor(name: string, columns = 60, rows = 24, environment: Record<string, string> = {}) {
    const data = join(folder, name);
    super(columns, rows, {
      LANTERN_DATA: data,
      LANTERN_CACHE: join(folder, "cache"),
      LANTERN_NO_LIMIT: "1",
      LANTERN_NO_CACHE_DISK: "1",
      ...environment,
    });
    this.data = data;
  }

  /** Starts a chat on an empty screen. `variables`: "TERM=dumb". */
  async chat(more = "-n 5", variables = ""): Promise<void> {
    await this.empty();
    const file = join(folder, "chat.sh"); // a command line would fill the screen
    const command = `${quoted(process.execPath)} ${quoted(launcher)} chat ${flags} "$@"`;
    const started = `sh -c ${quoted(`echo $$ > ${quoted(this.#pid)}; exec ${command}`)} chat "$@"`;
    writeFileSync(file, `${started}\necho ended with $?\n`);
    this.type(`${variables} sh ${file} ${more}`);
    this.press("Enter");
    await this.shows(/^>$/m);
  }

  async empty(): Promise<void> {
    await this.shows(/^\$$/m);
    this.type("clear");
    this.press("Enter");
    await expect.poll(() => this.screen).toBe("$");
    this.run("clear-history");
  }

  get #pid(): string {
    return `${this.data}.pid`;
  }

  kill(signal: NodeJS.Signals): void {
    process.kill(Number(readFileSync(this.#pid, "utf8")), signal);
  }

  /** Messages of the user in the last chat. */
  get sent(): string[] {
    return this.messages.filter(({ role }) => role === "user").map(({ content }) => content);
  }

  get messages(): ChatMessage[] {
    const chats = join(this.data, "chats");
    const [last] = readdirSync(chats).toSorted().reverse();
    return (JSON.parse(readFileSync(join(chats, last!), "utf8")) as { messages: ChatMessage[] })
      .messages;
  }

  /** An answer has ended, and the prompt is there again. */
  async answered(count: number): Promise<void> {
    await expect
      .poll(() => (this.run("capture-pane", "-p", "-S", "-").match(/tokens?\/s/g) ?? []).length)
      .toBe(count);
    await this.shows(/^>$/m);
  }

  async leave(): Promise<void> {
    this.press("C-d");
    await this.shows("ended with 0");
  }
}

if (noTmux !== undefined) test.skip(`lantern chat in a terminal [skipped: ${noTmux}]`, () => {});
else {
  describe("messages", () => {
    let shell: Shell;
    beforeAll(() => {
      shell = new Shell("messages");
    });
    afterAll(() => shell.close());

    test("pasted lines are one message, whether the terminal marks them or not", async () => {
      await shell.chat();
      shell.paste("first line\nsecond\n\tthird \x1b[31mred", true);
      await shell.shows("> first line\n. second\n.         third ␛[31mred");
      shell.press("Enter");
      await shell.answered(1);
      shell.paste("fourth\nfifth\n", false);
      await shell.shows("> fourth\n. fifth\n.");
      shell.press("Enter");
      await shell.answered(2);
      expect(shell.sent).toEqual(["first line\nsecond\n\tthird \x1b[31mred", "fourth\nfifth"]);
    });

    test("Alt+Enter, Shift+Enter, Ctrl-J, a backslash and quotes begin lines", async () => {
      // Each key when the last has had its effect: keys that come at once are pasted lines.
      for (const [word, key] of [
        ["a", "M-Enter"],
        ["b", "S-Enter"],
        ["c", "C-j"],
        ["d\\", "Enter"],
      ] as const) {
        shell.type(word);
        await expect.poll(() => shell.screen.endsWith(` ${word}`)).toBe(true);
        shell.press(key);
        await shell.shows(/\n\.$/);
      }
      shell.type("e");
      await shell.shows(/\. e$/);
      shell.press("Enter");
      await shell.answered(3);
      expect(shell.sent.at(-1)).toBe("a\nb\nc\nd\ne");
      for (const line of ['"""', "/not a command"]) {
        shell.type(line);
        await expect.poll(() => shell.screen.endsWith(line)).toBe(true);
        shell.press("Enter");
        await shell.shows(/\n\.$/);
      }
      shell.type('end"""');
      await shell.shows(/end"""$/);
      shell.press("Enter");
      await shell.answered(4);
      expect(shell.sent.at(-1)).toBe("/not a command\nend");
    });

    test("keys edit, and Ctrl-C clears", async () => {
      shell.type("one two");
      await shell.shows("> one two");
      shell.press("C-Left", "C-u", "Home", "C-k", "C-y", "C-y");
      await shell.shows(/^> twotwo$/m);
      shell.press("C-c");
      await shell.shows(/> twotwo\n.*Ctrl-C again.*\n>$/);
      shell.press("Up", "Up");
      await shell.shows('> """\n. /not a command\n. end"""');
      shell.press("C-r");
      shell.type("econ");
      await shell.shows("search: econ");
      await shell.shows("> first line");
      shell.press("C-c"); // ends the search
      await shell.shows('> """\n. /not a command\n. end"""');
      shell.press("C-c");
      await expect.poll(() => shell.screen).toMatch(/again to leave, or type \/exit\.\n>$/);
    });

    test("what is typed during an answer is the next message", async () => {
      await shell.leave();
      await shell.chat(endless);
      shell.type("Tell me a story");
      await shell.shows("Tell me a story");
      shell.press("Enter");
      await shell.shows(/Tell me a story\n\S+/);
      shell.type("and then");
      shell.press("C-c");
      await shell.shows("(stopped)");
      await shell.shows(/^> and then$/m);
    });
  });

  describe("the screen", () => {
    test("an answer is broken between words, and again when the terminal is resized", async () => {
      const shell = new Shell("wrap", 44, 30);
      try {
        await shell.chat("-n 120");
        shell.type("Tell me a story about a cat 日本");
        await shell.shows("日本");
        shell.press("Enter");
        await shell.answered(1);
        const answer = shell.messages.at(-1)!.content.trim();
        const rows = (columns: number): string =>
          answer
            .split("\n")
            .flatMap((line) => wrapLine(line, columns - 1).map(({ shown }) => shown.trimEnd()))
            .join("\n");
        expect(rows(44).split("\n").length).toBeGreaterThan(6);
        expect(shell.screen).toContain(`> Tell me a story about a cat 日本\n${rows(44)}\n`);
        shell.type("a question 日本語 that goes over several rows of it");
        for (const [columns, height] of [
          [30, 40],
          [70, 20],
          [25, 30],
          [50, 30],
        ] as const) {
          shell.resize(columns, height);
          await shell.shows(rows(columns).split("\n").slice(-4).join("\n"));
          const [first] = wrapLine(
            "a question 日本語 that goes over several rows of it",
            columns - 3,
          );
          await shell.shows(`\n> ${first!.shown.trimEnd()}`);
        }
        expect(shell.screen).toContain(`> Tell me a story about a cat 日本\n${rows(50)}\n`);
        const typed = wrapLine("a question 日本語 that goes over several rows of it", 47);
        expect(shell.cursor.column).toBe(2 + typed.at(-1)!.width);
      } finally {
        shell.close();
      }
    });

    test("characters are as wide as the terminal draws them", async () => {
      const shell = new Shell("widths");
      try {
        const texts = [
          "abc",
          "日本語",
          "ｆｕｌｌ",
          "한국어",
          "e\u0301a\u0323\u0302",
          "🙂👍",
          "👨‍👩‍👧",
          "→…€",
          "ไทย",
          "שלום",
          "क",
        ];
        const file = join(folder, "widths.mjs");
        const source = `
          process.stdin.setRawMode(true);
          const answer = () => new Promise((done) => process.stdin.once("data", (data) => done(String(data))));
          const found = [];
          for (const text of ${JSON.stringify(texts)}) {
            process.stdout.write("\\r\\x1b[K" + text + "\\x1b[6n");
            found.push(Number(/;(\\d+)R/.exec(await answer())[1]) - 1);
          }
          process.stdout.write("\\r\\nwidths " + found.join(",") + "\\r\\n");
          process.exit();
        `;
        writeFileSync(file, source);
        shell.type(`${quoted(process.execPath)} ${file}`);
        shell.press("Enter");
        await shell.shows(/^widths .*$/m);
        const found = /^widths (.*)$/m.exec(shell.screen)![1]!.split(",").map(Number);
        expect(Object.fromEntries(texts.map((text, at) => [text, found[at]]))).toEqual(
          Object.fromEntries(texts.map((text) => [text, cellsOf(text)])),
        );
      } finally {
        shell.close();
      }
    });

    test("NO_COLOR, and a terminal that can do nothing", async () => {
      const shell = new Shell("plain", 60, 24, { NO_COLOR: "1" });
      try {
        await shell.chat();
        expect(shell.colored).not.toContain("\x1b[");
        await shell.leave();
        await shell.chat("-n 5", "TERM=dumb");
        const raw = join(folder, "dumb");
        shell.run("pipe-pane", `cat > ${quoted(raw)}`);
        shell.paste("one\ntwo\n", false);
        await shell.answered(1);
        for (const line of ['"""three', "four\\", 'five"""']) {
          shell.type(line);
          shell.press("Enter");
        }
        await shell.answered(2);
        expect(shell.sent).toEqual(["one\ntwo", "three\nfour\\\nfive"]);
        await expect
          .poll(() => readFileSync(raw, "utf8"))
          .toMatch(/tokens?\/s[\s\S]*tokens?\/s[\s\S]*> $/);
        expect(readFileSync(raw, "utf8")).not.toContain("\x1b");
        await shell.leave();
      } finally {
        shell.close();
      }
    });
  });

  describe("what was typed before", () => {
    test("is there in the next chat, unless it is not to be kept", async () => {
      const shell = new Shell("typed");
      try {
        await shell.chat("-n 2");
        shell.paste("one\ntwo", true);
        await shell.shows("> one\n. two");
        shell.press("Enter");
        await shell.answered(1);
        await shell.leave();
        await shell.chat("-n 2 --no-history");
        shell.type("/undo");
        await shell.shows("> /undo");
        shell.press("Enter");
        await shell.shows("nothing to undo");
        shell.press("Up", "Up");
        await shell.shows(/> one\n\. two$/);
        shell.press("C-c");
        await shell.shows(/Ctrl-C again/);
        await shell.leave();
        const kept = readFileSync(join(shell.data, "typed.jsonl"), "utf8");
        expect(kept.trim()).toBe('"one\\ntwo"');
      } finally {
        shell.close();
      }
    });
  });

  describe("the terminal", () => {
    let shell: Shell;
    beforeAll(() => {
      shell = new Shell("left");
    });
    afterAll(() => shell.close());

    /** Keys are lines again, pasted text is not marked, and keys come as ever. */
    async function isAsBefore(): Promise<void> {
      await shell.empty();
      shell.type("clear; stty -a | grep -ow -e '-*icanon' -e '-*echo'; cat -v");
      shell.press("Enter");
      await shell.shows("icanon\necho");
      expect(shell.screen).not.toMatch(/-icanon|-echo/);
      shell.paste("pasted", true);
      shell.press("Enter", "C-d");
      await expect.poll(() => shell.screen.match(/^pasted$/gm)?.length).toBe(2);
      await shell.shows(/^\$$/m);
    }

    test("is as before after Ctrl-D, after Ctrl-C twice, and after a signal", async () => {
      await shell.chat();
      await shell.leave();
      await isAsBefore();
      await shell.chat();
      shell.press("C-c");
      await shell.shows("Ctrl-C again");
      shell.press("C-c");
      await shell.shows("ended with 130");
      await isAsBefore();
      for (const signal of ["SIGTERM", "SIGHUP"] as const) {
        await shell.chat();
        shell.kill(signal);
        await shell.shows("ended with");
        await isAsBefore();
      }
    });

    test("is as before while a chat is stopped, and the chat goes on", async () => {
      await shell.chat();
      shell.type("half a message");
      await shell.shows("> half a message");
      shell.press("C-z");
      await shell.shows(/Stopped[\s\S]*^\$$/m);
      await isAsBefore();
      shell.type("fg");
      shell.press("Enter");
      await shell.shows(/^> half a message$/m);
      shell.press("Enter");
      await shell.answered(1);
      expect(shell.sent).toEqual(["half a message"]);
      await shell.leave();
      await isAsBefore();
    });

    test("is as before after Ctrl-C has stopped an answer, and then the chat", async () => {
      await shell.chat(endless);
      shell.type("Hi");
      shell.press("Enter");
      await shell.shows(/> Hi\n\S+/);
      shell.press("C-c");
      await shell.shows(/\(stopped\)\n[^\n]*tokens\/s[^\n]*\n>/); // the next line can be typed: before, a second one ends the chat
      shell.press("C-c");
      await shell.shows("Ctrl-C again");
      shell.press("C-c");
      await shell.shows("ended with 130");
      await isAsBefore();
    });
  });
}
