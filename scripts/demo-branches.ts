// npm run demo:branches -- [MODEL] [TOKENS]: a record of the state that survives a restart. A server, a session with a beginning of about
// TOKENS tokens, ten branches of it; the server is killed (kill -9) and started again, and each branch continues. Prints the source of
// each prompt's state and the time of its first token.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [model = "stories15m", wanted = "100"] = process.argv.slice(2);
const tokens = Number(wanted);
if (!Number.isInteger(tokens) || tokens < 64) {
  console.error("usage: npm run demo:branches -- [MODEL] [TOKENS], at least 64");
  process.exit(2);
}
const launcher = fileURLToPath(new URL("../bin/lantern.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lantern-branches-"));
const branches = 10;
const quiet = ["--log-level", "error"];

interface Serving {
  base: string;
  child: ChildProcess;
}

async function serve(): Promise<Serving> {
  const files = [
    "--sessions",
    join(folder, "sessions.db"),
    "--cache-folder",
    join(folder, "state"),
  ];
  const args = [
    "serve",
    "-m",
    model,
    "--port",
    "0",
    "--no-token",
    "--json",
    "--temp",
    "0",
    ...quiet,
    ...files,
  ];
  const env = { ...process.env, LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const child = spawn(process.execPath, [launcher, ...args], {
    stdio: ["ignore", "pipe", "inherit"],
    env,
  });
  let out = "";
  for await (const piece of child.stdout!) {
    out += String(piece);
    if (!out.includes("\n")) continue;
    return { base: `${(JSON.parse(out) as { url: string }).url}/lantern/v1`, child };
  }
  throw new Error("lantern serve ended before it was ready");
}

interface Answer {
  id: string;
  state: string;
  tokens: { prompt: number; cached: number };
  timings: { msToFirstToken: number };
}

let server = await serve();
let session = "";

async function request<T>(path: string, body?: object): Promise<T> {
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${server.base}${path}`, { ...post, headers });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** Adds a message below another, and waits for the answer. */
async function tell(content: string, parent: string | null): Promise<Answer> {
  const path = `/sessions/${session}/messages`;
  const body = { content, parent, settings: { maxTokens: 32, temperature: 0 } };
  const { answers } = await request<{ answers: Answer[] }>(path, body);
  for (;;) {
    const { messages } = await request<{ messages: Answer[] }>(path);
    const answer = messages.find(({ id }) => id === answers[0]!.id);
    if (!answer) throw new Error("the answer is gone");
    if (answer.state !== "streaming") return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function show(what: string, { tokens: { prompt, cached }, timings }: Answer): void {
  const known = `${cached} of ${prompt} tokens known`.padEnd(26);
  console.log(
    `${what.padEnd(22)} ${known} first token after ${timings.msToFirstToken.toFixed(0)} ms`,
  );
}

const heroes = "cat,dog,girl,boy,bird,fox,bear,mouse,frog,fish".split(",");
try {
  const made = await request<{ id: string }>("/sessions", { mode: "chat" });
  session = made.id;
  const sentence = "Once upon a time there was a little house at the edge of a big dark forest. ";
  const beginning = await tell(sentence.repeat(Math.ceil(tokens / 18)), null);
  show("the beginning", beginning);
  const ends: Answer[] = [];
  for (const hero of heroes.slice(0, branches)) {
    const end = await tell(
      `Tell me a story about a ${hero} that comes to this house.`,
      beginning.id,
    );
    show(`branch ${ends.length + 1} (${hero})`, end);
    ends.push(end);
  }
  const closed = once(server.child, "close");
  server.child.kill("SIGKILL");
  await closed;
  const started = performance.now();
  server = await serve();
  console.log(
    `\nkill -9; the server is ready again after ${(performance.now() - started).toFixed(0)} ms\n`,
  );
  for (const [at, end] of ends.entries()) {
    show(`branch ${at + 1} goes on`, await tell("And what happens at night?", end.id));
  }
} finally {
  server.child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
