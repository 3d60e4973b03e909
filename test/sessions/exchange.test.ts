// Conversations as files: what is exported comes back the same, and what is wrong with a file is said before anything is
// saved.

import { describe, expect, test } from "vitest";
import {
  exportMarkdown,
  exportSession,
  importSession,
  type SessionFile,
} from "../../apps/sessions/exchange.ts";
import type { SessionStore } from "../../apps/sessions/store.ts";
import { scratchStore } from "./fakes.ts";

function filled(store: SessionStore): string {
  const { id } = store.createSession({
    title: "Trip 🙂",
    model: "tiny",
    settings: { systemPrompt: "Be kind.", temperature: 0.2, stop: ["END"] },
  });
  const { answers } = store.begin(id, null, {
    content: "Where\u0000 to?",
    model: "tiny",
    count: 2,
  });
  const timings = {
    msToFirstToken: 12.5,
    tokensPerSecond: 80,
    promptMs: 10,
    generatedMs: 100,
    percentOfLimit: 61.5,
    boundBy: "bandwidth",
  };
  const tokens = { prompt: 9, cached: 3, generated: 2 };
  const plain = { reasoning: null, calls: [], raw: null };
  const call = { id: "call_1", name: "look", arguments: '{"at":"`map`"}' };
  const ended = { ...call, state: "done", result: "north", by: "hand" } as const;
  const more = { reasoning: "A map?\nYes.", calls: [ended], raw: null };
  const end = { state: "complete", stopReason: "end", error: null, tokens, timings } as const;
  store.saveAnswers([], [{ id: answers[0]!.id, end: { content: "North.", ...more, ...end } }]);
  const failed = { state: "error", stopReason: null, tokens: null, timings: null } as const;
  store.saveAnswers(
    [],
    [{ id: answers[1]!.id, end: { content: "So", error: "lost", ...plain, ...failed } }],
  );
  store.changeSession(id, { leaf: answers[0]!.id });
  return id;
}

const asFile = (file: SessionFile): SessionFile => JSON.parse(JSON.stringify(file)) as SessionFile;

describe("JSON", () => {
  test("of version 1 has no reasoning and no calls", async () => {
    const { store } = scratchStore();
    const file = asFile(exportSession(store, filled(store), 99));
    const messages = file.messages.map(({ reasoning: _, calls: _calls, ...old }) => old);
    const other = scratchStore().store;
    const { id } = await importSession(other, { ...file, version: 1, messages });
    expect(other.messages(id)[1]).toMatchObject({ content: "North.", reasoning: null, calls: [] });
  });

  test("comes back the same in another store", async () => {
    const { store } = scratchStore();
    const id = filled(store);
    const file = asFile(exportSession(store, id, 99));
    const other = scratchStore().store;
    expect(await importSession(other, file)).toEqual(store.session(id));
    expect(other.messages(id)).toEqual(store.messages(id));
    expect(exportSession(other, id, 99)).toEqual(file);
    expect(other.search("North")).toHaveLength(1);
  });

  test("becomes a copy with ids of its own where the ids are taken", async () => {
    const { store } = scratchStore();
    const id = filled(store);
    const copy = await importSession(store, asFile(exportSession(store, id)));
    expect(copy.id).not.toBe(id);
    expect(store.sessions().sessions).toHaveLength(2);
    const shape = (which: string) => {
      const messages = store.messages(which);
      const at = new Map(messages.map((message, index) => [message.id, index]));
      return messages.map(({ id: _, parent, ...rest }) => [parent && at.get(parent), rest]);
    };
    expect(shape(copy.id)).toEqual(shape(id));
    expect(store.path(copy.id, copy.leaf).map(({ content }) => content)).toContain("North.");
  });

  test("of a running answer is an aborted one", async () => {
    const { store } = scratchStore();
    const { id } = store.createSession();
    store.begin(id, null, { content: "q", model: "m", count: 1 });
    const file = asFile(exportSession(store, id));
    const other = scratchStore().store;
    await importSession(other, file);
    expect(other.messages(id)[1]).toMatchObject({ state: "aborted" });
  });

  test("may have its messages in any order", async () => {
    const { store } = scratchStore();
    const id = filled(store);
    const file = asFile(exportSession(store, id));
    file.messages.reverse();
    const other = scratchStore().store;
    await importSession(other, file);
    expect(other.path(id, file.session.leaf).map(({ content }) => content)).toEqual([
      "Where\u0000 to?",
      "North.",
    ]);
  });
});

describe("a file that is refused", () => {
  type Spoil = (file: SessionFile) => unknown;
  const cases: [string, RegExp, Spoil][] = [
    ["is no object", /the file/, () => "hello"],
    ["is null", /the file/, () => null],
    ["is a list", /the file/, () => []],
    ["has another format", /format/, (f) => ({ ...f, format: "chatgpt" })],
    ["has a newer version", /version: got 3, expected at most 2/, (f) => ({ ...f, version: 3 })],
    ["has an unknown field", /Unrecognized key/, (f) => ({ ...f, extra: 1 })],
    [
      "would change every object",
      /Unrecognized key/,
      (f) => JSON.parse(JSON.stringify(f).replace(/^\{/, '{"__proto__":{"polluted":1},')),
    ],
    ["has no messages", /messages/, ({ messages: _, ...f }) => f],
    ["has a wrong role", /messages.0.role/, (f) => put(f, "role", "system")],
    ["has a wrong state", /messages.0.state/, (f) => put(f, "state", "done")],
    ["has content that is no text", /messages.0.content/, (f) => put(f, "content", { a: 1 })],
    ["has a time that is no time", /messages.0.createdAt/, (f) => put(f, "createdAt", 1e300)],
    ["has a negative time", /messages.0.changedAt/, (f) => put(f, "changedAt", -1)],
    ["has an id that is SQL", /messages.0.id/, (f) => put(f, "id", "'; DROP TABLE messages; --")],
    ["has an id that is a path", /messages.0.id/, (f) => put(f, "id", "../../etc/passwd")],
    [
      "has a parent that is missing",
      /"msg_gone" that is missing/,
      (f) => put(f, "parent", "msg_gone"),
    ],
    ["has its own parent", /own ancestor/, (f) => put(f, "parent", f.messages[0]!.id)],
    ["has a circle", /own ancestor/, (f) => put(f, "parent", f.messages[1]!.id)],
    [
      "has the same id twice",
      /the same id/,
      (f) => ({ ...f, messages: [...f.messages, f.messages[0]] }),
    ],
    [
      "stands at a message that is not there",
      /session.leaf/,
      (f) => ({ ...f, session: { ...f.session, leaf: "msg_gone" } }),
    ],
    [
      "has settings that are wrong",
      /settings.temperature/,
      (f) => ({ ...f, session: { ...f.session, settings: { temperature: -1 } } }),
    ],
    [
      "has settings that nobody knows",
      /Unrecognized key/,
      (f) => ({ ...f, session: { ...f.session, settings: { evil: 1 } } }),
    ],
  ];
  const put = (file: SessionFile, name: string, value: unknown): unknown => ({
    ...file,
    messages: file.messages.map((message, at) =>
      at === 0 ? { ...message, [name]: value } : message,
    ),
  });

  test.each(cases)("%s", async (_, expected, spoil) => {
    const { store } = scratchStore();
    const good = asFile(exportSession(store, filled(store)));
    const other = scratchStore().store;
    await expect(importSession(other, spoil(good))).rejects.toThrow(expected);
    expect(other.sessions().sessions).toEqual([]);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  test("has too many messages", async () => {
    const { store } = scratchStore();
    const good = asFile(exportSession(store, filled(store)));
    const messages = Array.from({ length: 100_001 }, () => good.messages[0]);
    await expect(importSession(store, { ...good, messages })).rejects.toThrow(/messages: Too big/);
  });
});

test("a chain of ten thousand messages, in the worst order, is read in reasonable steps", async () => {
  const { store } = scratchStore();
  const good = asFile(exportSession(store, filled(store)));
  const chain = Array.from({ length: 10_000 }, (_, i) => ({
    ...good.messages[0]!,
    id: `m${i}`,
    parent: i === 0 ? null : `m${i - 1}`,
  })).reverse();
  const session = { ...good.session, id: "long", leaf: "m9999" };
  await importSession(store, { ...good, session, messages: chain });
  expect(store.path("long", "m9999")).toHaveLength(10_000);
});

describe("an import of many messages", () => {
  function many(store: SessionStore, count: number): SessionFile {
    const good = asFile(exportSession(store, filled(store)));
    const messages = Array.from({ length: count }, (_, i) => ({
      ...good.messages[0]!,
      id: `m${i}`,
      parent: i === 0 ? null : `m${i - 1}`,
      content: `message number ${i}`,
    }));
    return { ...good, session: { ...good.session, id: "many", leaf: "m0" }, messages };
  }

  test("lets everything else have its turn, and nobody sees half of it", async () => {
    const { store } = scratchStore();
    const file = many(store, 20_000);
    let done = false;
    let turns = 0;
    const importing = importSession(store, file).finally(() => {
      done = true;
    });
    while (!done) {
      await new Promise((resolve) => setImmediate(resolve));
      turns++;
      if (!done) expect(store.sessions().sessions).toHaveLength(1);
    }
    expect((await importing).messageCount).toBe(20_000);
    expect(turns).toBeGreaterThan(20);
    expect(store.sessions().sessions).toHaveLength(2);
  });

  test("twice at once: one of them is a copy", async () => {
    const { store } = scratchStore();
    const file = many(store, 500);
    const [one, other] = await Promise.all([
      importSession(store, file),
      importSession(store, file),
    ]);
    expect(one.id).toBe("many");
    expect(other.id).not.toBe("many");
    expect(other.messageCount).toBe(500);
  });

  test("that fails on the way leaves nothing", async () => {
    const { store } = scratchStore();
    const file = many(store, 500);
    const add = store.addImported.bind(store);
    let pieces = 0;
    store.addImported = (id, messages) => {
      if (++pieces === 3) throw new Error("the disk is full");
      add(id, messages);
    };
    await expect(importSession(store, file)).rejects.toThrow("the disk is full");
    expect(store.sessions().sessions).toHaveLength(1);
    expect(store.hasId("m0")).toBe(false);
  });

  test("whose process died is gone at the next start", () => {
    const { store, file } = scratchStore();
    const { session, messages } = many(store, 10);
    store.beginImport({ ...session, leaf: null });
    store.addImported("many", messages);
    expect(store.hasId("m0")).toBe(true);
    store.close();
    const again = scratchStore(file).store;
    expect(again.sessions().sessions).toHaveLength(1);
    expect(again.hasId("m0")).toBe(false);
    expect(again.hasId("many")).toBe(false);
  });
});

describe("Markdown", () => {
  test("of a chat has the branch that it stands on", () => {
    const { store } = scratchStore();
    const id = filled(store);
    expect(exportMarkdown(store, id)).toBe(
      '# Trip 🙂\n\n**System**\n\nBe kind.\n\n---\n\n**User**\n\nWhere\u0000 to?\n\n---\n\n**Assistant (tiny)**\n\n> Reasoning:\n> \n> A map?\n> Yes.\n\nNorth.\n\n**Call of look** (done)\n\n```\n{"at":"`map`"}\n```\n\n```\nnorth\n```\n',
    );
  });

  test("of a story is the story", () => {
    const { store } = scratchStore();
    const { id } = store.createSession({ mode: "story", title: "Fox" });
    const { id: parent } = store.addMessage(id, null, { role: "user", content: "Once upon" });
    store.addMessage(id, parent, { role: "assistant", content: " a time." });
    expect(exportMarkdown(store, id)).toBe("# Fox\n\nOnce upon a time.\n");
  });
});
