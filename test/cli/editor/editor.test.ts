// The text that is being typed, key by key.
// Held against: texts and cursors written here.

import { describe, expect, test } from "vitest";
import { Editor, type EditorOptions } from "../../../apps/cli/editor/editor.ts";
import { asMessage, goesOn } from "../../../apps/cli/editor/message.ts";
import { Recall } from "../../../apps/cli/editor/recall.ts";
import { EditorView } from "../../../apps/cli/editor/view.ts";

/** "some text<left><ctrl-w>": types it; the text with | at the cursor, or what a key asked for. */
function typed(keys: string, options: EditorOptions = {}, columns = 80): string {
  const view = new EditorView({ prompt: "> ", next: ". " });
  const editor = new Editor({
    goesOn: (text) => goesOn(text, true),
    vertical: (of, rows) => view.vertical(of, rows),
    ...options,
  });
  for (const part of keys.split(/(<[^>]+>)/)) {
    const key = /^<(.+)>$/.exec(part)?.[1];
    const event =
      key === undefined ? { kind: "text" as const, text: part } : { kind: "key" as const, key };
    const outcome = editor.handle(event);
    view.layOut(editor, columns, 24);
    if (outcome?.kind === "submit") return `sent: ${outcome.text}`;
    if (outcome) return outcome.kind;
  }
  return `${editor.text.slice(0, editor.cursor)}|${editor.text.slice(editor.cursor)}`;
}

describe("keys", () => {
  test.each([
    ["abc<left>x", "abx|c"],
    ["abc<ctrl-a>x<ctrl-e>y", "xabcy|"],
    ["one two<alt-b>x", "one x|two"],
    ["one two three<ctrl-left><ctrl-left><ctrl-right>", "one two| three"],
    ["one two<ctrl-w>", "one |"],
    ["a-b c-d<ctrl-w>", "a-b |"],
    ["a-b c-d<alt-backspace>", "a-b c-|"],
    ["one two<home><alt-d>", "| two"],
    ["one two<left><left><ctrl-k>", "one t|"],
    ["one two<left><left><ctrl-u>", "|wo"],
    ["one two<ctrl-w>x<ctrl-y>", "one xtwo|"],
    ["ab<ctrl-t>", "ba|"],
    ["abc<left><left><delete>", "a|c"],
    ["abc<backspace><backspace>", "a|"],
    ["<backspace><delete><left><right><up><down><ctrl-k><ctrl-u><ctrl-w><ctrl-t>", "|"],
    // what a reader sees as one character goes as one
    ["a👨‍👩‍👧<backspace>b", "ab|"],
    ["ae\u0301<left>", "a|e\u0301"],
    ["日本<left><delete>", "日|"],
    ["🇩🇪🇫🇷<backspace>", "🇩🇪|"],
    // lines
    ["one<alt-enter>two", "one\ntwo|"],
    ["one<shift-enter>two<ctrl-a>", "one\n|two"],
    ["one<ctrl-j>two<home><left>", "one|\ntwo"],
    ["one<ctrl-j>two<home><backspace>", "one|two"],
    ["one<ctrl-j>two<up>x", "onex|\ntwo"],
    ["one<ctrl-j>longer<up><down>", "one\nlon|ger"],
    ["one<ctrl-j>two<ctrl-home><ctrl-k><ctrl-k>", "|two"],
    ["one<ctrl-j>two<home><ctrl-u>", "one|two"],
    ["<ctrl-j>x<ctrl-home><end>", "|\nx"],
    // the end
    ["hi<enter>", "sent: hi"],
    ["<enter>", "sent: "],
    ["one<ctrl-j>two<up><enter>", "sent: one\ntwo"],
    ["hi<ctrl-c>", "interrupt"],
    ["<ctrl-d>", "end"],
    ["ab<left><ctrl-d>", "a|"],
    ["hi<ctrl-l>", "clear screen"],
    ["hi<ctrl-z>", "suspend"],
    ["hi<ctrl-\\>", "quit"],
    ["a<tab>b", "a\tb|"],
    ["a<escape><ctrl-g><f5>b", "ab|"],
  ])("%s: %j", (keys, expected) => {
    expect(typed(keys)).toBe(expected);
  });

  test("Up and Down go by rows of a long line, too", () => {
    expect(typed("aaaa bbbb cccc<up>x", {}, 13)).toBe("aaaax| bbbb cccc");
    expect(typed("aaaa bbbb cccc<up><up><down><end>", {}, 13)).toBe("aaaa bbbb cccc|");
  });

  test("Ctrl-C keeps what it has cleared for Ctrl-Y", () => {
    const editor = new Editor({});
    editor.insert("long work");
    expect(editor.interrupt()).toEqual({ kind: "interrupt", hadText: true });
    const next = new Editor({}, editor.cut);
    next.handle({ kind: "key", key: "ctrl-y" });
    expect(next.text).toBe("long work");
  });
});

describe("a text that goes on", () => {
  test.each([
    ["one\\<enter>two<enter>", "sent: one\ntwo"],
    ['"""<enter>one<enter>two<enter>"""<enter>', 'sent: """\none\ntwo\n"""'],
    ['"""one<enter>two"""<enter>', 'sent: """one\ntwo"""'],
    ['"""one"""<enter>', 'sent: """one"""'],
    ['"""one<enter>three<up><end><enter>x', '"""one\nx|\nthree'],
  ])("%s: %j", (keys, expected) => {
    expect(typed(keys)).toBe(expected);
  });

  test.each([
    ['"""\none\n\ntwo\n"""', "one\n\ntwo", true],
    ['"""one"""', "one", true],
    ['  """ a """  ', " a ", true],
    ['"""\n/exit\n"""', "/exit", true],
    ['""""""', "", true],
    ['"""\n"""', "", true],
    ['say """', 'say """', false],
    ["/exit", "/exit", false],
  ])("%j is %j", (text, message, isQuoted) => {
    expect(asMessage(text, true)).toEqual({ text: message, isQuoted });
  });

  test("through a pipe quotes are text", () => {
    expect(goesOn('"""', false)).toBeUndefined();
    expect(asMessage('"""a"""', false)).toEqual({ text: '"""a"""', isQuoted: false });
    expect(goesOn("one\\", false)).toBe("one\n");
  });
});

describe("what was typed before", () => {
  const someTyped = () => new Recall(["first", "one\ntwo", "last"]);

  test.each([
    ["<up>", "last|"],
    ["<up><up>", "one\ntwo|"],
    ["<up><up><up><up>", "first|"],
    ["<up><up><up><down><down>", "last|"],
    ["draft<up><down>", "draft|"],
    ["draft<up>er<ctrl-p><ctrl-n><ctrl-n>", "draft|"],
    ["<up>er<ctrl-p><ctrl-n>", "laster|"],
    ["<down>", "|"],
    ["<ctrl-r>t", "las|t"],
    ["<ctrl-r>o", "|one\ntwo"],
    ["<ctrl-r>t<ctrl-r><enter>", "sent: one\ntwo"],
    ["<ctrl-r>t<ctrl-r><ctrl-r><end>x", "firstx|"],
    ["<ctrl-r>nothing<ctrl-g>", "|"],
    ["draft<ctrl-r>fi<escape>", "draft|"],
    ["<ctrl-r>fiq<backspace><right>", "f|irst"],
  ])("%s: %j", (keys, expected) => {
    expect(typed(keys, { recall: someTyped() })).toBe(expected);
  });

  test("empty texts and repeated ones are not kept, and changes to old ones are forgotten when something is sent", () => {
    const recall = someTyped();
    expect([" ", "last", "new"].map((text) => recall.add(text))).toEqual([false, false, true]);
    expect(recall.move(-1, "")).toBe("new");
    expect(recall.move(-1, "changed")).toBe("last");
    recall.add("x");
    expect([recall.move(-1, ""), recall.move(-1, "")]).toEqual(["x", "new"]);
  });
});

test("Tab completes a command", () => {
  const complete = (text: string) => (text === "/sa" ? "/save " : undefined);
  expect(typed("/sa<tab>a.md", { complete })).toBe("/save a.md|");
  expect(typed("/x<tab>", { complete })).toBe("/x|");
});

test("a text that is higher than the terminal is shown around its cursor", () => {
  const view = new EditorView({ prompt: "> ", next: ". " });
  const editor = new Editor({});
  editor.insert(Array.from({ length: 50 }, (_, at) => `line ${at}`).join("\n"));
  const shown = (height: number) => view.layOut(editor, 40, height).rows.map(({ text }) => text);
  expect(shown(3)).toEqual([". line 47", ". line 48", ". line 49"]);
  editor.cursor = 0;
  expect(shown(3)).toEqual(["> line 0", ". line 1", ". line 2"]);
  editor.cursor = editor.text.indexOf("line 4\n");
  expect(shown(3)).toEqual([". line 2", ". line 3", ". line 4"]);
  expect(shown(1)).toEqual([". line 4"]);
  expect(view.layOut(editor, 40, 3).cursor).toEqual({ row: 0, column: 2 });
});
