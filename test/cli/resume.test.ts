// lantern chat --resume: a chat goes on after the process was killed, with the text that it would have had.
// Held against: the text of a chat that was not killed.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ChatStore, findChat, newChatId } from "../../apps/cli/chat-store.ts";
import type { ChatMessage } from "../../src/index.ts";
import { nodeChatFiles } from "../../src/platform/node-chats.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lantern-resume-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const command = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const long = `Tell me a story about a cat, a dog, ${"a small bird that sings in the tree, ".repeat(8)}please.`;

/** A chat with lines through a pipe, in a data folder of its own. */
class ChatProcess {
  readonly child: ChildProcess;
  err = "";
  readonly ended: Promise<void>;
  readonly #chats: string;

  constructor(data: string, args: string[]) {
    this.#chats = join(data, "chats");
    const flags = ["--template", "zephyr", "--temp", "0", "-n", "12", "-t", "1", "--no-tune"];
    const env = {
      ...process.env,
      LANTERN_DATA: data,
      LANTERN_CACHE: join(data, "cache"),
      LANTERN_NO_LIMIT: "1",
    };
    this.child = spawn(process.execPath, [command, "chat", ...args, ...flags], { env });
    this.child.stdout!.resume();
    this.child.stderr!.on("data", (text) => {
      this.err += text;
    });
    this.ended = new Promise((done) => this.child.on("close", () => done()));
  }

  /** Sends a line; the answer, once the chat is in its file with so many messages. */
  async ask(line: string, count: number): Promise<string> {
    this.child.stdin!.write(`${line}\n`);
    for (;;) {
      const [name] = await readdir(this.#chats).catch(() => []);
      const text = name?.endsWith(".json") ? await readFile(join(this.#chats, name), "utf8") : "";
      const { messages = [] } =
        text === "" ? {} : (JSON.parse(text) as { messages: ChatMessage[] });
      if (messages.length === count) return messages.at(-1)!.content;
      if (this.child.exitCode !== null) throw new Error(`it ended: ${this.err}`);
      await new Promise((later) => setTimeout(later, 20));
    }
  }

  async end(): Promise<void> {
    this.child.stdin!.end();
    await this.ended;
  }
}

test("a killed chat goes on with the text that it would have had", async () => {
  const [whole, cut] = [join(folder, "whole"), join(folder, "cut")];
  const straight = new ChatProcess(whole, ["-m", "stories15m"]);
  const first = await straight.ask(long, 2);
  const second = await straight.ask("And then?", 4);
  await straight.end();

  const killed = new ChatProcess(cut, ["-m", "stories15m"]);
  expect(await killed.ask(long, 2)).toBe(first);
  killed.child.kill("SIGKILL");
  await killed.ended;

  const resumed = new ChatProcess(cut, ["--resume"]);
  expect(await resumed.ask("And then?", 4)).toBe(second);
  await resumed.end();
  const [name, ...others] = await readdir(join(cut, "chats"));
  expect(others).toEqual([]);
  expect((await stat(join(cut, "chats", name!))).mode & 0o777).toBe(0o600);
  const { messages } = JSON.parse(await readFile(join(cut, "chats", name!), "utf8"));
  expect(messages.map(({ role }: { role: string }) => role)).toEqual([
    "user",
    "assistant",
    "user",
    "assistant",
  ]);
});

test("chats are found by the beginning of their ids, and damaged ones are named", async () => {
  const data = join(folder, "named");
  const files = nodeChatFiles({ LANTERN_DATA: data });
  await expect(findChat(files, true)).rejects.toThrow("there is no chat");
  const message = [{ role: "user" as const, content: "Hello" }];
  for (const id of ["20260101-000000-aaaa", "20260102-000000-bbbb", "20260102-000000-cccc"]) {
    expect(await new ChatStore(files, id, "tiny").save(message)).toBeUndefined();
  }
  expect(await findChat(files, "20260101")).toMatchObject({ model: "tiny", messages: message });
  await expect(findChat(files, "20260102")).rejects.toThrow("the beginning of 2 ids");
  await expect(findChat(files, "2025")).rejects.toThrow("there is no such chat");
  await expect(findChat(files, "../secret")).rejects.toThrow("there is no such chat");
  for (const text of ["", "{", '{"version":9}', '{"version":1,"model":"m","messages":[7]}']) {
    await writeFile(join(data, "chats", "20260101-000000-aaaa.json"), text);
    await expect(findChat(files, "20260101")).rejects.toThrow("damaged");
  }
  expect(newChatId(new Date(0), 0.5)).toBe("19700101-000000-8000");
});

test("a folder that cannot be written is said once, and the chat goes on", async () => {
  const data = join(folder, "file");
  await writeFile(data, "in the way");
  const store = new ChatStore(nodeChatFiles({ LANTERN_DATA: data }), "a", "tiny");
  const message = [{ role: "user" as const, content: "Hello" }];
  expect(await store.save(message)).toContain("not kept for --resume");
  expect(await store.save(message)).toBeUndefined();
});
