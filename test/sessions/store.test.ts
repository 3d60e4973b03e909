// The store: trees of messages, the place a session stands at, search, and that what was deleted is gone from the disk.
// Held against: the messages that were saved, and the bytes of the file.

import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { hasRemains } from "../../apps/sessions/replaced.ts";
import { searchTerms } from "../../apps/sessions/search.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { Random } from "../support/random.ts";
import { scratchStore } from "./fakes.ts";

/** user "a" -> answer "A" -> user "b" -> answer "B", with a second answer "A2" beside "A". */
function talk(store: SessionStore) {
  const session = store.createSession({ title: "talk", settings: { temperature: 0.5 } });
  const add = (parent: string | null, role: "user" | "assistant", content: string) =>
    store.addMessage(session.id, parent, { role, content });
  const a = add(null, "user", "a");
  const answer = add(a.id, "assistant", "A");
  const b = add(answer.id, "user", "b");
  const answerB = add(b.id, "assistant", "B");
  const second = add(a.id, "assistant", "A2");
  return { session, a, answer, b, answerB, second };
}

const plain = (content: string) => ({ content, reasoning: null, calls: [], raw: null });

const contents = (messages: readonly { content: string }[]) => messages.map((m) => m.content);

describe("a session", () => {
  test("is what it was made of, also after a restart", () => {
    const { store, file } = scratchStore();
    const made = store.createSession({
      title: "Ünïcode 模型 🙂 \u0000 zero",
      mode: "story",
      model: "tiny",
      settings: { temperature: 0, topK: 3, systemPrompt: "be brief", stop: ["\n"] },
    });
    store.close();
    const again = scratchStore(file).store;
    expect(again.session(made.id)).toEqual(made);
    expect(made).toMatchObject({ mode: "story", model: "tiny", leaf: null, messageCount: 0 });
  });

  test("is listed by its last change, page by page", () => {
    const { store } = scratchStore();
    const ids = Array.from({ length: 7 }, (_, i) => store.createSession({ title: `${i}` }).id);
    store.changeSession(ids[2]!, { title: "2 again" });
    const seen: string[] = [];
    let cursor: string | null | undefined;
    do {
      const page = store.sessions({ limit: 3, ...(cursor && { cursor }) });
      seen.push(...page.sessions.map(({ id }) => id));
      cursor = page.next;
    } while (cursor);
    expect(seen).toEqual([2, 6, 5, 4, 3, 1, 0].map((i) => ids[i]));
    expect(() => store.sessions({ cursor: "1; DROP TABLE sessions" })).toThrow(/cursor: got/);
  });

  test("takes its title from the first message, and keeps one that was given", () => {
    const { store } = scratchStore();
    const { id } = store.createSession();
    const long = "Why does the second   question about lanterns never come up in conversation?";
    store.addMessage(id, null, { role: "user", content: `\n${long}\nmore` });
    expect(store.session(id).title).toBe(
      "Why does the second   question about lanterns never come…",
    );
    store.addMessage(id, null, { role: "user", content: "another beginning" });
    expect(store.session(id).title).toMatch(/^Why does/);
  });

  test("has settings that are changed one by one; null takes one away", () => {
    const { store } = scratchStore();
    const { id } = store.createSession({ settings: { temperature: 0.5, topK: 3 } });
    const changed = store.changeSession(id, { settings: { temperature: null, seed: 7 } });
    expect(changed.settings).toEqual({ topK: 3, seed: 7 });
  });

  test("that is not there is said so", () => {
    const { store } = scratchStore();
    expect(() => store.session("ses_nope")).toThrow('there is no session "ses_nope"');
    expect(() => store.messages("ses_nope")).toThrow(/there is no session/);
    expect(() => store.deleteSession("ses_nope")).toThrow(/there is no session/);
    const { id } = store.createSession();
    expect(() => store.changeSession(id, { leaf: "msg_nope" })).toThrow(
      `there is no message "msg_nope" in session "${id}"`,
    );
  });
});

describe("the tree", () => {
  test("has a path from the first message to any other", () => {
    const { store } = scratchStore();
    const { session, answerB, second } = talk(store);
    expect(contents(store.path(session.id, answerB.id))).toEqual(["a", "A", "b", "B"]);
    expect(contents(store.path(session.id, second.id))).toEqual(["a", "A2"]);
    expect(store.path(session.id, null)).toEqual([]);
    expect(contents(store.messages(session.id))).toEqual(["a", "A", "b", "B", "A2"]);
  });

  test("is stood at, gone back in, and switched in; nothing is lost and nothing counts as a change", () => {
    const { store } = scratchStore();
    const { session, a, answer, answerB, second } = talk(store);
    const before = store.session(session.id);
    expect(before.leaf).toBe(second.id);
    expect(store.changeSession(session.id, { leaf: a.id }).leaf).toBe(a.id);
    expect(store.changeSession(session.id, { branch: answer.id }).leaf).toBe(answerB.id);
    expect(store.changeSession(session.id, { branch: second.id }).leaf).toBe(second.id);
    expect(store.changeSession(session.id, { leaf: null }).leaf).toBeNull();
    expect(store.session(session.id).changedAt).toBe(before.changedAt);
    expect(store.messages(session.id)).toHaveLength(5);
  });

  test("of one session does not reach into another", () => {
    const { store } = scratchStore();
    const { a } = talk(store);
    const other = store.createSession();
    expect(() => store.addMessage(other.id, a.id, { role: "user", content: "x" })).toThrow(
      /there is no message/,
    );
    expect(() => store.changeSession(other.id, { leaf: a.id })).toThrow(/there is no message/);
    expect(() => store.path(other.id, a.id)).toThrow(/there is no message/);
    expect(store.messages(other.id)).toEqual([]);
  });

  test("may be thousands of messages deep, and goes as a whole", () => {
    const { store, database } = scratchStore();
    const { id } = store.createSession();
    let parent: string | null = null;
    database.transaction(() => {
      for (let i = 0; i < 5000; i++) {
        parent = store.addMessage(id, parent, { role: "user", content: `${i}` }).id;
      }
    });
    expect(store.path(id, parent)).toHaveLength(5000);
    store.deleteSession(id);
    expect(database.get("SELECT count(*) AS n FROM messages")).toMatchObject({ n: 0 });
  });
});

describe("deleting", () => {
  test("leaves neither rows nor a trace of the words in the files", async () => {
    const { store, file, database } = scratchStore();
    const keep = store.createSession({ title: "kept" });
    const { id } = store.createSession({ title: "Xylophonist title" });
    const secret = "zugzwangQuartz";
    for (let i = 0; i < 50; i++) {
      store.addMessage(id, null, { role: "user", content: `${secret} ${"filler ".repeat(200)}` });
    }
    expect(store.search(secret)).toHaveLength(20);
    store.deleteSession(id);
    expect(store.search(secret)).toEqual([]);
    expect(store.search("Xylophonist")).toEqual([]);
    await store.purgeDeleted();
    for (const path of [file, `${file}-wal`]) {
      const bytes = existsSync(path) ? readFileSync(path).toString("latin1").toLowerCase() : "";
      for (const word of [secret, "xylophonist", "zug", "gzw"]) {
        expect(bytes.includes(word.toLowerCase()), `${word} in ${path}`).toBe(false);
      }
    }
    expect(database.get("PRAGMA integrity_check")).toEqual({ integrity_check: "ok" });
    expect(store.sessions().sessions.map((session) => session.id)).toEqual([keep.id]);
  });
});

/** Answers that grow in turns, and titles that change: pages are divided again and again. Returns the sessions' ids. */
function grown(store: SessionStore, words: readonly string[], random: Random): string[] {
  const ids = words.map((word) => store.createSession({ title: word }).id);
  const running = [...Array(12).keys()].map((at) => {
    const content = `${words[at % 2]} `.repeat(1 + 30 * (at % 5));
    const model = null;
    return {
      word: words[at % 2]!,
      text: "",
      ...store.begin(ids[at % 2]!, null, { content, model, count: 1 }),
    };
  });
  for (let step = 0; step < 150; step++) {
    const one = running[random.below(running.length)]!;
    one.text += `${one.word} `.repeat(random.below(150));
    if (random.below(15) === 0) one.text = one.word;
    store.saveAnswers([{ id: one.answers[0]!.id, text: plain(one.text) }], []);
    const at = random.below(2);
    store.changeSession(ids[at]!, { title: `${words[at]} `.repeat(1 + random.below(40)) });
  }
  return ids;
}

test("a conversation that grew beside another leaves nothing in the free bytes of pages", async () => {
  const words = ["zugzwangQuartz", "harmless"];
  for (let seed = 1; seed <= 4; seed++) {
    const { store, file } = scratchStore();
    const [gone, kept] = grown(store, words, new Random(seed));
    store.deleteSession(gone!);
    await store.purgeDeleted();
    for (const path of [file, `${file}-wal`]) {
      expect(existsSync(path) && readFileSync(path).includes(words[0]!), `${seed} ${path}`).toBe(
        false,
      );
    }
    expect(store.messages(kept!)).toHaveLength(12);
    store.close();
    // Nothing is left to do.
    const again = scratchStore(file);
    expect(hasRemains(again.database)).toBe(false);
  }
});

test("a deletion that was cut short is finished by the next process", async () => {
  const { store, file } = scratchStore();
  const { id } = store.createSession({ title: "t" });
  for (let i = 0; i < 50; i++) {
    store.addMessage(id, null, { role: "user", content: "zugzwang" });
  }
  store.deleteSession(id);
  const cut = store.purgeDeleted(); // takes out a first one, and pauses
  store.close();
  await cut;
  const again = scratchStore(file);
  const left = () => again.database.get("SELECT count(*) AS n FROM search_deleted")!.n as number;
  expect(left()).toBe(49);
  expect(again.store.search("zugzwang")).toEqual([]);
  await again.store.purgeDeleted();
  expect(left()).toBe(0);
  expect(readFileSync(file).includes("zugzwang")).toBe(false);
});

describe("search", () => {
  const texts = (store: SessionStore, query: string) =>
    store.search(query).map(({ snippet }) => snippet.map(({ text }) => text).join(""));

  test("finds words, parts of words, phrases, any script, in titles and messages", () => {
    const { store } = scratchStore();
    const { id } = store.createSession({ title: "Lantern notes" });
    for (const content of [
      "the lighthouse KEEPER sleeps",
      "大模型推理系统",
      "keep calm",
      "Grüße",
    ]) {
      store.addMessage(id, null, { role: "user", content });
    }
    expect(texts(store, "keeper")).toEqual(["the lighthouse KEEPER sleeps"]);
    expect(texts(store, "house keep")).toEqual(["the lighthouse KEEPER sleeps"]);
    expect(texts(store, '"house keep"')).toEqual(["the lighthouse KEEPER sleeps"]);
    expect(texts(store, '"keep house"')).toEqual([]);
    expect(texts(store, "推理系")).toEqual(["大模型推理系统"]);
    expect(texts(store, "推理")).toEqual(["大模型推理系统"]); // two letters: read, not looked up
    expect(texts(store, "GRÜSSE")).toEqual([]);
    expect(texts(store, "grüße")).toEqual(["Grüße"]);
    expect(store.search("lantern")).toMatchObject([{ session: id, message: null }]);
  });

  test("shows the place, with what was found marked", () => {
    const { store } = scratchStore();
    const { id } = store.createSession();
    const content = `${"word ".repeat(100)}<b>needle</b> & ${"word ".repeat(100)}`;
    const message = store.addMessage(id, null, { role: "user", content });
    const [hit] = store.search("needle");
    expect(hit!.message).toBe(message.id);
    expect(hit!.snippet.filter((piece) => piece.hit)).toEqual([{ text: "needle", hit: true }]);
    const shown = hit!.snippet.map(({ text }) => text).join("");
    expect(shown).toMatch(/^….*<b>needle<\/b> & .*…$/);
    expect(shown.length).toBeLessThan(200);
  });

  test.each([
    '"',
    '""',
    '" OR 1',
    "* * *",
    "a AND",
    "NOT x",
    "text:a",
    "NEAR(a b)",
    "^abc",
    "abc*",
    "(((",
    "-abc",
    "%",
    "_",
    "\\",
    "'; DROP TABLE messages; --",
    "\u0000abc\u0000",
    "[a-z]+(",
    "\ud800abc",
    "{x}",
  ])("takes %j as text", (query) => {
    const { store } = scratchStore();
    const { id } = store.createSession();
    store.addMessage(id, null, { role: "user", content: "nothing of the kind" });
    expect(store.search(query)).toEqual([]);
    store.addMessage(id, null, { role: "user", content: `so: ${query.replaceAll('"', "")} it is` });
    expect(store.search(query)).toHaveLength(searchTerms(query).length > 0 ? 1 : 0);
    expect(store.messages(id)).toHaveLength(2);
  });

  test("does not see an answer that is being written, and does once it has ended", () => {
    const { store } = scratchStore();
    const { id } = store.createSession({ title: "t" });
    const asked = { content: "question", model: "m", count: 1 };
    const { answers } = store.begin(id, null, asked);
    store.saveAnswers([{ id: answers[0]!.id, text: plain("unfinished symphony") }], []);
    expect(store.search("symphony")).toEqual([]);
    const end = { stopReason: "end", error: null, tokens: null, timings: null } as const;
    store.saveAnswers(
      [],
      [{ id: answers[0]!.id, end: { ...plain("the symphony"), state: "complete", ...end } }],
    );
    expect(store.search("symphony")).toHaveLength(1);
    expect(store.search("unfinished")).toEqual([]);
  });
});

test("an answer that was being written when the process ended is aborted, with what was saved", () => {
  const { store, file, database } = scratchStore();
  const { id } = store.createSession();
  const { answers } = store.begin(id, null, { content: "hello", model: "m", count: 2 });
  store.saveAnswers([{ id: answers[0]!.id, text: plain("so far") }], []);
  database.close();
  const again = new SessionStore(openNodeDatabase(file));
  expect(again.messages(id)).toMatchObject([
    { role: "user", content: "hello", state: "complete" },
    { role: "assistant", content: "so far", state: "aborted" },
    { role: "assistant", content: "", state: "aborted" },
  ]);
  expect(again.search("so far")).toHaveLength(1);
  again.close();
});
