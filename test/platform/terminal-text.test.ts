// What reaches a terminal: our colours and progress lines work, escape sequences of others are shown and do nothing.

import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { palette } from "../../apps/cli/text.ts";
import { plainText, terminalText } from "../../src/platform/terminal-text.ts";

const hostile: readonly [what: string, text: string][] = [
  ["a title", "\x1b]0;owned\x07"],
  ["a cleared screen", "\x1b[2J\x1b[H"],
  ["a question that the terminal answers", "\x1b[6n\x1b[c"],
  ["the clipboard", "\x1b]52;c;ZXZpbA==\x1b\\"],
  ["a link", "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\"],
  ["hidden text", "\x1b[8mhidden\x1b[0m"],
  ["C1 controls", "\x9b2J\x9d0;x\x9c"],
  ["a line that is written over", "safe\rEVIL"],
  ["backspaces", "safe\b\b\b\bevil"],
  ["text turned around", "exe.\u202egpj\u202c \u2066x\u2069"],
  ["NUL and DEL", "\0\x7f"],
];

// biome-ignore lint/suspicious/noControlCharactersInRegex: none of them may be left
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/;

describe("terminalText", () => {
  test.each(hostile)("%s is shown, and does nothing", (_, text) => {
    expect(terminalText(`name: ${text}\n`)).not.toMatch(controls);
    expect(plainText(text)).not.toMatch(controls);
  });

  test("what Lantern colours stays coloured, and no more than that", () => {
    const { bold, dim, green, red } = palette(true);
    for (const paint of [bold, dim, green, red]) {
      expect(terminalText(paint("words"))).toBe(paint("words"));
      expect(terminalText(paint("\x1b[2Jwords"))).toBe(paint("␛[2Jwords"));
    }
    expect(plainText(bold("words"))).toBe("␛[1mwords␛[22m"); // a model's words have none
  });

  test("lines that Lantern writes over work, and nothing inside them does", () => {
    expect(terminalText("\r50 %\x1b[K")).toBe("\r50 %\x1b[K");
    expect(terminalText("\r\x1b[K")).toBe("\r\x1b[K");
    expect(terminalText("\ra\rb\x1b[2K\x1b[K")).toBe("\ra␍b␛[2K\x1b[K");
  });

  test("ordinary text in any script is left as it is", () => {
    const text = "Grüße, 你好, שלום, مرحبا, 👩‍👩‍👧 e\u0301\n\ttab\n";
    expect(terminalText(text)).toBe(text);
    expect(plainText("a\r\nb")).toBe("a\nb");
  });
});

test.each([true, false])("the process's own streams, on a terminal: %s", (isTerminal) => {
  const cli = new URL("../../src/platform/node-cli.ts", import.meta.url).href;
  const script = `process.stdout.isTTY = process.stderr.isTTY = ${isTerminal};
    const { nodeTerminal } = await import(${JSON.stringify(cli)});
    const terminal = nodeTerminal();
    terminal.out("out \\x1b]0;x\\x07\\n");
    terminal.err("err \\x1b[2J\\n");`;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ["--no-warnings", "--input-type=module", "-e", script],
    { encoding: "utf8" },
  );
  expect(stdout).toBe(isTerminal ? "out ␛]0;x␇\n" : "out \x1b]0;x\x07\n");
  expect(stderr).toBe(isTerminal ? "err ␛[2J\n" : "err \x1b[2J\n");
});
