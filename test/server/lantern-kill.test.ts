// `lantern serve` itself, killed in mid-answer and started again: the conversation is there, and goes on.
// Held against: the conversation of before.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import type { Message, Session } from "../../apps/sessions/session.ts";
import { scratchFile } from "../sessions/fakes.ts";
import { follow, request } from "./lantern-client.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));

interface Serving {
  base: string;
  child: ChildProcess;
}

async function serve(file: string): Promise<Serving> {
  const child = spawn(
    process.execPath,
    [launcher, "serve", "--port", "0", "--no-token", "--level", "1", "--sessions", file],
    { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, LANTERN_NO_LIMIT: "1" } },
  );
  onTestFinished(() => void child.kill("SIGKILL"));
  let said = "";
  for await (const piece of child.stdout!) {
    said += String(piece);
    const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
    if (url) return { base: `${url}/lantern/v1`, child };
  }
  throw new Error(`lantern serve ended: ${said}`);
}

async function kill({ child }: Serving, signal: NodeJS.Signals): Promise<void> {
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}

interface Answered {
  answers: Message[];
  run: { id: string };
}

test("a killed server has its conversations when it is started again", async () => {
  const file = scratchFile();
  const first = await serve(file);
  const settings = { temperature: 0, maxTokens: 3 };
  const session = await request<Session>(`${first.base}/sessions`, "POST", { settings }, 201);
  const path = `sessions/${session.id}/messages`;
  const asked = { content: "Once upon a time" };
  const done = await request<Answered>(`${first.base}/${path}`, "POST", asked, 201);
  await follow(`${first.base}/runs/${done.run.id}/events`);
  const before = await request<{ messages: Message[] }>(`${first.base}/${path}`);
  const long = { content: "Then", settings: { maxTokens: 200 } };
  const running = await request<Answered>(`${first.base}/${path}`, "POST", long, 201);
  await follow(`${first.base}/runs/${running.run.id}/events`, { stopAfter: 4 });
  await kill(first, "SIGKILL");

  const second = await serve(file);
  const after = await request<{ messages: Message[] }>(`${second.base}/${path}`);
  expect(after.messages.slice(0, 2)).toEqual(before.messages);
  expect(after.messages.slice(2)).toMatchObject([
    { role: "user", content: "Then", state: "complete" },
    { role: "assistant", id: running.answers[0]!.id, state: "aborted" },
  ]);
  const again = { regenerate: true };
  const anew = await request<Answered>(`${second.base}/${path}`, "POST", again, 201);
  const events = await follow(`${second.base}/runs/${anew.run.id}/events`);
  expect(events.at(-2)).toMatchObject({ name: "end", data: { state: "complete" } });
  await kill(second, "SIGTERM");
  expect(second.child.exitCode).toBe(0);
});
