// The parts of the web app that need no browser: the tree, the joints of a story, axes, events, formats.
// Held against: values written here.

import { expect, test } from "vitest";
import type { Message } from "../../apps/sessions/session.ts";
import { linearAxis, logAxis } from "../../apps/web/src/components/axis.ts";
import { readEvents } from "../../apps/web/src/event-stream.ts";
import { splitAttachments, withAttachments } from "../../apps/web/src/state/attachments.ts";
import { bytesText, digits, grouped, msText, othersText } from "../../apps/web/src/state/format.ts";
import { joinDraft } from "../../apps/web/src/state/story-text.ts";
import { splitThought } from "../../apps/web/src/state/thought.ts";
import {
  countBelow,
  newestBelow,
  pathTo,
  siblings,
  treeOf,
} from "../../apps/web/src/state/tree.ts";

function message(id: string, parent: string | null): Message {
  const none = { model: null, stopReason: null, error: null, tokens: null, timings: null };
  const more = { reasoning: null, calls: [] };
  const times = { createdAt: 0, changedAt: 0 };
  return { id, parent, role: "user", content: id, state: "complete", ...more, ...times, ...none };
}

test("cores that others used stand beside a speed that they made slower", () => {
  expect(othersText({ othersCores: 1.84, cores: 2 })).toBe("others used 1.8 of 2 cores");
  expect(othersText({})).toBeUndefined();
});

test("a tree of messages", () => {
  const list: [string, string | null][] = [
    ["a", null],
    ["b", "a"],
    ["c", "b"],
    ["d", "a"],
    ["e", "d"],
    ["f", null],
  ];
  const tree = treeOf(list.map(([id, parent]) => message(id, parent)));
  const ids = (messages: readonly Message[]) => messages.map(({ id }) => id).join("");
  expect(ids(pathTo(tree, "c"))).toBe("abc");
  expect(ids(pathTo(tree, null))).toBe("");
  expect(ids(pathTo(tree, "unknown"))).toBe("");
  expect(ids(siblings(tree, tree.get("d")!))).toBe("bd");
  expect(ids(siblings(tree, tree.get("f")!))).toBe("af");
  expect(newestBelow(tree, "a")).toBe("e");
  expect(newestBelow(tree, "b")).toBe("c");
  expect(countBelow(tree, "a")).toBe(2);
  expect(countBelow(tree, "c")).toBe(0);
});

test.each([
  ["It began.", "Then", " Then"],
  ["It began. ", "Then", "Then"],
  ["It began", ", and", ", and"],
  ["It began", "  and  ", "  and"],
  ["said:", "“Hello”", " “Hello”"],
  ["", "Once", "Once"],
  ["End.", "\n\nNext ", "\n\nNext"],
  ["x", "", ""],
])("%j and %j meet as %j", (before, draft, joined) => {
  expect(joinDraft(before, draft)).toBe(joined);
});

test.each([
  ["Hello", null, "Hello"],
  ["<think>\nhm\n</think>\n\nHello", "hm", "Hello"],
  ["<think>hm", "hm", ""],
  ["<think></think>Hello", "", "Hello"],
  ["hm\n</think>\n\nHello", "hm", "Hello"], // the template wrote the beginning
  ["The tag </think> ends it", null, "The tag </think> ends it"],
  ["Write <think>\n</think> so", null, "Write <think>\n</think> so"],
])("%j: a thought and an answer", (text, thought, answer) => {
  expect(splitThought(text)).toMatchObject({ thought, answer });
});

test("files in a message come out as they went in", () => {
  const files = [
    { name: "a.md", text: "# A\n\n```js\n1\n```\n\nFile: b\n```\nno\n```" },
    { name: "my notes.txt", text: "one\n\ntwo" },
  ];
  for (const text of ["Look:\n\n```\ncode\n```", ""]) {
    expect(splitAttachments(withAttachments(text, files))).toEqual({ text, files });
  }
  const plain = "File: x\n```\nin the middle\n```\n\nof a text";
  expect(splitAttachments(plain)).toEqual({ text: plain, files: [] });
  const middle = `${plain}\n\nFile: y\n\`\`\`\nat the end\n\`\`\``;
  expect(splitAttachments(middle)).toEqual({
    text: plain,
    files: [{ name: "y", text: "at the end" }],
  });
  const open = "\n\nFile: x\n```\n".repeat(20_000);
  expect(splitAttachments(open)).toEqual({ text: open, files: [] });
});

test("axes have round ticks and keep their ends", () => {
  const log = logAxis([1, 8192], 0, 100, 10);
  expect(log.ticks).toEqual([1, 10, 100, 1000]);
  expect([log.at(1), log.at(8192)]).toEqual([0, 100]);
  const linear = linearAxis([3, 312], 200, 0, 5);
  expect(linear.ticks).toEqual([0, 100, 200, 300, 400]);
  expect([linear.at(0), linear.at(400)]).toEqual([200, 0]);
  const exact = linearAxis([8192], 0, 100, 5, true);
  expect(exact.at(8192)).toBe(100);
  expect(exact.ticks.every((tick) => tick <= 8192)).toBe(true);
  // Minutes before now: everything lies between the ends, too.
  const past = linearAxis([-4.2, -0.1, 0], 10, 110, 5, true);
  expect(past.ticks).toEqual([-4, -3, -2, -1, 0]);
  expect([past.at(-4.2), past.at(-2.1), past.at(0)]).toEqual([10, 60, 110]);
});

test("events are read whole, wherever the network cuts them", async () => {
  const text =
    ': hello\n\nevent: delta\nid: 3\ndata: {"text":"ä"}\n\ndata: a\ndata: b\r\n\r\nevent: cut';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 7, bytes.length]) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size)
          controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    const events = [];
    for await (const event of readEvents(body)) events.push(event);
    expect(events, `pieces of ${size}`).toEqual([
      { name: "delta", id: "3", data: '{"text":"ä"}' },
      { name: "message", id: undefined, data: "a\nb" },
    ]);
  }
});

test("numbers as people read them", () => {
  expect([0, 0.01234, 1.2345, 12.345, 123.45, 1234.5].map(digits)).toEqual([
    ...["0", "0.012", "1.23", "12.3", "123", "1,235"],
  ]);
  expect(digits(Number.NaN)).toBe("–");
  const values = Array.from({ length: 200 }, (_, at) => (at % 2 ? 1 : -1) * 1.37 ** (at / 2 - 20));
  for (const places of [0, 1, 3]) {
    const expected = values.map((v) => v.toLocaleString("en", { maximumFractionDigits: places }));
    expect(values.map((value) => grouped(value, places))).toEqual(expected);
  }
  expect([999, 61_248_745, 25.8e9].map(bytesText)).toEqual(["999 B", "61.2 MB", "25.8 GB"]);
  expect([0.5, 12.34, 1500, 90_000].map(msText)).toEqual(["500 µs", "12.3 ms", "1.5 s", "1.5 min"]);
});
