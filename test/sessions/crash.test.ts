// `kill -9` at any moment: what was said is there, the running answer lacks at most its last second, and the file is in
// order. LANTERN_TEST_ALL=1 does it six times, LANTERN_CRASHES=100 more often than every test run should.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import type { Message } from "../../apps/sessions/session.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { leftOut } from "../support/exhaustive.ts";
import { Random } from "../support/random.ts";
import { scratchFile } from "./fakes.ts";

const rounds = Number(process.env.LANTERN_CRASHES ?? (leftOut === undefined ? 6 : 3));
const writer = fileURLToPath(new URL("crash-writer.ts", import.meta.url));

/** What is known to have happened in all processes so far, by message. */
interface Known {
  /** Questions that were acknowledged. */
  asked: Map<string, string>;
  /** Lengths of answers that ended. */
  done: Map<string, number>;
}

/** What the last process said of the answer that it was writing. */
interface Unfinished {
  answer: string | undefined;
  words: { at: number; word: string }[];
}

test(`loses nothing but the last second (${rounds} times)`, {
  timeout: 60_000 + rounds * 10_000,
}, async () => {
  const file = scratchFile();
  const random = new Random(20260101);
  const known: Known = { asked: new Map(), done: new Map() };
  let interrupted = 0;
  let lost = 0;
  for (let round = 0; round < rounds; round++) {
    const said = await writeAndKill(file, random.below(1e6), 100 + random.below(2400));
    const unfinished = learn(said, known);
    const database = openNodeDatabase(file);
    expect(database.get("PRAGMA integrity_check")).toEqual({ integrity_check: "ok" });
    const store = new SessionStore(database);
    const messages = new Map(
      store.messages(store.sessions().sessions[0]!.id).map((message) => [message.id, message]),
    );
    checkKept(messages, known);
    if (unfinished.answer) {
      interrupted++;
      lost += checkUnfinished(messages.get(unfinished.answer)!, unfinished);
    }
    expect([...messages.values()].filter(({ state }) => state === "streaming")).toEqual([]);
    store.close();
  }
  expect(known.asked.size).toBeGreaterThan(0);
  expect(interrupted).toBeGreaterThan(0);
  console.log(
    `${rounds} kills: ${known.asked.size} questions and ${known.done.size} answers kept, ${interrupted} answers interrupted, ${lost} words of those lost`,
  );
});

/** Runs the writer for a while after its first word, kills it, and returns all that it said. */
async function writeAndKill(file: string, seed: number, ms: number): Promise<string[]> {
  const child: ChildProcess = spawn(process.execPath, [writer, file, `${seed}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  const { promise: speaks, resolve } = Promise.withResolvers<void>();
  child.stdout!.on("data", (piece: Buffer) => {
    output += piece.toString();
    if (output.includes("said")) resolve();
  });
  const closed = once(child, "close");
  await Promise.race([speaks, closed]);
  await new Promise((wait) => setTimeout(wait, ms));
  child.kill("SIGKILL");
  await closed;
  expect(child.signalCode, "the writer ended by itself").toBe("SIGKILL");
  return output.split("\n").slice(0, -1); // the last line may be half a line
}

function learn(lines: readonly string[], known: Known): Unfinished {
  const unfinished: Unfinished = { answer: undefined, words: [] };
  for (const line of lines) {
    const [what, first, second, ...rest] = line.split(" ");
    if (what === "asked") {
      known.asked.set(first!, rest.join(" "));
      unfinished.answer = second!;
    } else if (what === "done") {
      known.done.set(first!, Number(second));
      Object.assign(unfinished, { answer: undefined, words: [] });
    } else {
      unfinished.words.push({ at: Number(first), word: second! });
    }
  }
  return unfinished;
}

function checkKept(messages: ReadonlyMap<string, Message>, { asked, done }: Known): void {
  for (const [id, content] of asked) {
    expect(messages.get(id), `the question ${id}`).toMatchObject({ content, state: "complete" });
  }
  for (const [id, length] of done) {
    const answer = messages.get(id);
    expect(answer, `the answer ${id}`).toMatchObject({ state: "complete", stopReason: "end" });
    expect(answer!.content).toHaveLength(length);
  }
}

/** The process may have ended the answer and not lived to say so; otherwise it is a beginning, at most a second short. */
function checkUnfinished(answer: Message, { words }: Unfinished): number {
  expect(["aborted", "complete"]).toContain(answer.state);
  const saved = answer.content.trim() === "" ? [] : answer.content.trim().split(" ");
  expect(saved).toEqual(saved.map((_, at) => `w${at}`)); // a beginning, whole words
  const end = words.at(-1)?.at ?? 0;
  const old = words.filter(({ at }) => at < end - 1000);
  expect(saved.length, "words older than a second").toBeGreaterThanOrEqual(old.length);
  return Math.max(0, words.length - saved.length);
}
