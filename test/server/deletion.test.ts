// Deleted is gone: a real server is told secrets, deletes them, is killed in between, and every byte of its data and cache folders is
// read after that: for the secret in UTF-8 and UTF-16, for its token ids, and for the keys and values that were computed of it. What
// a living conversation needs stays; of a private one nothing was ever there.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import { expect, onTestFinished, test } from "vitest";
import type { Message, Session } from "../../apps/sessions/session.ts";
import {
  RECORD_HEADER_BYTES,
  readRecordHeader,
  SEGMENT_HEADER_BYTES,
} from "../../src/engine/tiers/segment.ts";
import { follow, request } from "./lantern-client.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));

interface Serving {
  readonly root: string;
  readonly base: string;
  readonly child: ChildProcess;
  readonly said: string[];
}

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "lantern-deletion-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Everything that it keeps lies in the folder. */
async function serve(folder: string): Promise<Serving> {
  const args = ["serve", "-m", "stories15m", "--port", "0", "--no-token", "--no-web", "--json"];
  const child = spawn(process.execPath, [launcher, ...args, "-t", "1"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env,
      ...{ LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1", LANTERN_NO_CACHE_DISK: "" },
      ...{ LANTERN_DATA: join(folder, "data"), LANTERN_CACHE: join(folder, "cache") },
    },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const said: string[] = [];
  child.stderr!.setEncoding("utf8").on("data", (text: string) => void said.push(text));
  let out = "";
  for await (const piece of child.stdout!) {
    out += String(piece);
    if (!out.includes("\n")) continue;
    const { url } = JSON.parse(out) as { url: string };
    return { root: url, base: `${url}/lantern/v1`, child, said };
  }
  throw new Error(`lantern serve ended: ${said.join("")}`);
}

async function kill({ child }: Serving, signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
  const closed = once(child, "close");
  child.kill(signal);
  await closed;
}

interface Asked {
  answers: Message[];
  run: { id: string };
}

/** The context of the model has 256 tokens. */
const settings = { temperature: 0, maxTokens: 12 };

/** A story with one answer: its id, and the run that wrote it. */
async function tell(
  { base }: Serving,
  content: string,
  more: object = {},
): Promise<{ id: string; run: string; answer: string; cached: number }> {
  const made = { mode: "story", settings, ...more };
  const { id } = await request<Session>(`${base}/sessions`, "POST", made, 201);
  return { id, ...(await goOn(base, id, content)) };
}

async function goOn(
  base: string,
  id: string,
  content: string,
): Promise<{ run: string; answer: string; cached: number }> {
  const asked = await request<Asked>(`${base}/sessions/${id}/messages`, "POST", { content }, 201);
  const events = await follow(`${base}/runs/${asked.run.id}/events`);
  const answer = events.flatMap(({ name, data }) => (name === "delta" ? [data.text] : []));
  const end = events.find(({ name }) => name === "end")!.data as { tokens: { cached: number } };
  return { run: asked.run.id, answer: answer.join(""), cached: end.tokens.cached };
}

function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) =>
    entry.isFile() ? [join(entry.parentPath, entry.name)] : [],
  );
}

/** Files that hold one of these needles. */
function foundIn(folder: string, needles: readonly Buffer[]): string[] {
  return filesOf(folder).filter((file) => {
    const bytes = readFileSync(file);
    return needles.some((needle) => bytes.includes(needle));
  });
}

const wordsOf = (secret: string): Buffer[] => {
  const utf16 = Buffer.from(secret, "utf16le");
  return [Buffer.from(secret), utf16, Buffer.from(utf16).swap16()];
};

/** Runs of token ids as they stand in memory, and as text. */
async function idsOf({ root }: Serving, content: string): Promise<Buffer[]> {
  const body = { content, add_special: true };
  const { tokens } = await request<{ tokens: number[] }>(`${root}/tokenize`, "POST", body);
  return tokens.slice(0, -5).flatMap((_, at) => {
    const some = tokens.slice(at, at + 6);
    const plain = [some.join(","), some.join(", ")].map((text) => Buffer.from(text));
    return [Buffer.from(Int32Array.from(some).buffer), ...plain];
  });
}

/** What was computed, by the key of its unit: the end of each whole block, which is of its last token. */
function stateOf(folder: string): Map<string, Buffer> {
  const found = new Map<string, Buffer>();
  for (const file of filesOf(folder).filter((name) => name.endsWith(".state"))) {
    const bytes = readFileSync(file);
    for (let at = SEGMENT_HEADER_BYTES; at + RECORD_HEADER_BYTES <= bytes.length; ) {
      const record = readRecordHeader(bytes.subarray(at, at + RECORD_HEADER_BYTES), crc32);
      if (!record) break;
      at += RECORD_HEADER_BYTES + record.bytes;
      if (record.role !== "unit" || record.tokens < 32 || at > bytes.length) continue;
      found.set(`${record.key}.${record.kind}`, bytes.subarray(at - 64, at));
    }
  }
  return found;
}

const beginning = Array.from(
  { length: 4 },
  (_, i) => `Once upon a time there was a little house number ${i} with a red door.`,
).join(" ");
const secretOf = (name: string): string =>
  `The password of ${name} is zwölf-Quittenmus-${name}-77.`;
const textOf = (name: string): string =>
  `${beginning} ${Array.from({ length: 3 }, () => secretOf(name)).join(" ")}`;

test("a deleted conversation is nowhere, and the one that begins like it keeps its state", async () => {
  const folder = newFolder();
  const server = await serve(folder);
  const { base } = server;
  const kept = await tell(server, textOf("Anna"));
  await expect.poll(() => stateOf(folder).size).toBeGreaterThan(3);
  const before = stateOf(folder);
  const gone = await tell(server, textOf("Berta"));
  const needles = [
    ...wordsOf("Quittenmus-Berta"),
    ...(await idsOf(server, Array.from({ length: 3 }, () => secretOf("Berta")).join(" "))),
  ];
  await expect.poll(() => foundIn(folder, wordsOf("Quittenmus-Berta")).length).toBeGreaterThan(0);
  await expect.poll(() => stateOf(folder).size).toBeGreaterThan(before.size + 1);
  const all = [...stateOf(folder)];
  const theirs = all.flatMap(([key, piece]) => (before.has(key) ? [] : [Buffer.from(piece)]));
  expect(foundIn(folder, theirs).length).toBeGreaterThan(0);

  const answer = await request(`${base}/sessions/${gone.id}`, "DELETE");
  expect(answer).toEqual({ id: gone.id, deleted: true, warning: null });
  await request(`${base}/runs/${gone.run}/events`, "GET", undefined, 404);
  expect(foundIn(folder, theirs)).toEqual([]);
  await expect.poll(() => foundIn(folder, needles)).toEqual([]);
  // It was forgotten in memory, too: only what the other conversation has is known.
  const again = await tell(server, textOf("Berta"));
  expect(again.cached).toBeGreaterThanOrEqual(64);
  expect(again.cached).toBeLessThan(84);
  await request(`${base}/sessions/${again.id}`, "DELETE");
  expect(foundIn(folder, [...before.values()]).length).toBeGreaterThan(0);
  await kill(server);

  const next = await serve(folder);
  const more = await goOn(next.base, kept.id, " And then");
  expect(more.cached).toBeGreaterThan(120); // all of its own, from disk
  await request(`${next.base}/sessions/${kept.id}`, "DELETE");
  await expect.poll(() => foundIn(folder, wordsOf("Quittenmus"))).toEqual([]);
  expect(foundIn(folder, [...before.values()])).toEqual([]);
  await kill(next, "SIGTERM");
  expect(server.said.concat(next.said).join("")).not.toMatch(/damaged|Quittenmus/);
}, 240_000);

/** Deletes what a restarted server still has, and waits until nothing of it is left. */
async function finish(folder: string, id: string, needles: readonly Buffer[]): Promise<void> {
  const server = await serve(folder);
  const known = await fetch(`${server.base}/sessions/${id}`);
  // Where it was killed before the deletion was on disk, the conversation is whole.
  if (known.status === 200) await request(`${server.base}/sessions/${id}`, "DELETE");
  await expect.poll(() => foundIn(folder, needles)).toEqual([]);
  await kill(server);
  expect(server.said.join("")).not.toMatch(/damaged|Quittenmus/);
}

test("a server that is killed while it deletes goes on with that", async () => {
  const folder = newFolder();
  for (let turns = 0; turns < 4; turns++) {
    const name = `Carla${turns}`;
    const server = await serve(folder);
    const before = stateOf(folder);
    const gone = await tell(server, textOf(name));
    await expect.poll(() => stateOf(folder).size).toBeGreaterThan(before.size + 1);
    const after = [...stateOf(folder)].filter(([key]) => !before.has(key));
    const theirs = after.map(([, piece]) => Buffer.from(piece));
    const needles = [
      ...wordsOf(secretOf(name)),
      ...(await idsOf(server, Array.from({ length: 3 }, () => secretOf(name)).join(" "))).slice(30),
      ...theirs,
    ];
    const answered = fetch(`${server.base}/sessions/${gone.id}`, { method: "DELETE" });
    answered.catch(() => undefined);
    if (turns === 3) await answered;
    // Somewhere in it, wherever that is on this machine.
    else for (let i = 0; i < turns * 200; i++) await new Promise((soon) => setImmediate(soon));
    await kill(server);
    await finish(folder, gone.id, needles);
  }
}, 240_000);

test("an answer that is being written is deleted with its conversation", async () => {
  const folder = newFolder();
  const server = await serve(folder);
  const made = { mode: "story", settings: { ...settings, maxTokens: 100 } };
  const { id } = await request<Session>(`${server.base}/sessions`, "POST", made, 201);
  const content = textOf("Dora");
  const path = `${server.base}/sessions/${id}/messages`;
  const { run } = await request<Asked>(path, "POST", { content }, 201);
  const stream = await fetch(`${server.base}/runs/${run.id}/events`);
  const events = stream.body!.getReader();
  await events.read(); // it is there, and is followed
  await request(`${server.base}/sessions/${id}`, "DELETE");
  while (!(await events.read()).done); // and ends
  await request(`${server.base}/runs/${run.id}`, "GET", undefined, 404);
  expect(stateOf(folder).size).toBe(0);
  await expect.poll(() => foundIn(folder, wordsOf("Quittenmus"))).toEqual([]);
  await kill(server);
  expect(foundIn(folder, wordsOf("Quittenmus"))).toEqual([]);
}, 240_000);

test("a private conversation and a request with cache_disk: false are on no disk, ever", async () => {
  const folder = newFolder();
  const server = await serve(folder);
  const { base } = server;
  const hidden = await tell(server, textOf("Emma"), { private: true });
  const next = await goOn(base, hidden.id, " And then");
  expect(next.cached).toBeGreaterThan(120); // it is known, in memory
  const listed = await request<{ sessions: object[] }>(`${base}/sessions`);
  expect(listed.sessions).toMatchObject([{ id: hidden.id, private: true }]);
  const prompt = textOf("Frieda");
  const body = { prompt, n_predict: 8, temperature: 0, cache_disk: false };
  await request(`${server.root}/completion`, "POST", body);
  // What is saved is, as ever: by then all that came before would be as well.
  const kept = await tell(
    server,
    `${beginning} The end of all secrets is a long and happy day, they said.`,
  );
  await expect.poll(() => stateOf(folder).size).toBe(3);
  expect(foundIn(folder, wordsOf("Quittenmus"))).toEqual([]);
  for (const name of ["Emma", "Frieda"]) {
    const ids = await idsOf(server, Array.from({ length: 3 }, () => secretOf(name)).join(" "));
    expect(foundIn(folder, ids)).toEqual([]);
  }
  const found = await request<{ hits: object[] }>(`${base}/search?q=Quittenmus`);
  expect(found.hits).toEqual([]);
  await request(`${base}/sessions/${hidden.id}`, "DELETE");
  await request(`${base}/sessions/${hidden.id}`, "GET", undefined, 404);
  const again = await tell(server, textOf("Emma"), { private: true });
  expect(again.cached).toBeLessThan(84);
  await kill(server, "SIGTERM");
  expect(foundIn(folder, wordsOf("Quittenmus"))).toEqual([]);
  expect(server.said.join("")).not.toMatch(/Quittenmus/);
  const later = await serve(folder);
  await request(`${later.base}/sessions/${again.id}`, "GET", undefined, 404);
  await request(`${later.base}/sessions/${kept.id}`);
  await kill(later);
}, 240_000);
