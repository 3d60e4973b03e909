// HTTP: damaged bodies for every route and damaged requests byte by byte, against a real server with a tiny model. No answer
// may be a 500, nothing may be logged as a bug, and afterwards /health says ok and an ordinary request gets its usual answer.

import { mkdtempSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type RunningServer, startServer } from "../../../apps/server/serve.ts";
import { type Model, open } from "../../../src/index.ts";
import { openNodeDatabase } from "../../../src/platform/node-database.ts";
import { type Random, seededRandom } from "../../formats/mutate.ts";
import { tinyGguf } from "../../support/tiny-file.ts";
import { awkwardStrings } from "../awkward.ts";
import { httpSamples } from "../http-samples.ts";
import { applyJsonEdits, type JsonEdit, randomJsonEdit } from "../json-edits.ts";
import { type FuzzTarget, type Json, shapeOf } from "../target.ts";

interface Call {
  method: string;
  path: string;
  body: Json;
  edits: JsonEdit[];
  headers?: Record<string, string>;
  /** The request as text instead, sent as it is. */
  raw?: string;
}

interface Input {
  calls: Call[];
}

const answerLimitMs = 15_000;
const usual = { prompt: "the cat", n_predict: 8, temperature: 0, cache_prompt: false };

let model: Model;
let server: RunningServer;
const bugs: string[] = [];
let expected = "";

const headers: readonly [string, string][] = [
  ["content-type", "text/plain"],
  ["content-type", "application/json; charset=utf-16"],
  ["content-encoding", "gzip"],
  ["authorization", "Bearer constructor"],
  ["authorization", "Basic \u00ff"],
  ["accept", "text/event-stream"],
  ["origin", "null"],
  ["host", "evil.example"],
  ["x-api-key", "__proto__"],
  ["range", "bytes=0-"],
  ["expect", "100-continue"],
];

function rawRequest(random: Random, { method, path, body }: Call): string {
  const json = JSON.stringify(body);
  const length = random.pick([
    json.length,
    0,
    json.length + 5,
    json.length - 1,
    -1,
    1e20,
    "x",
    "0x10",
  ]);
  const first = random.pick([
    `${method} ${path} HTTP/1.1`,
    `${method} ${path} HTTP/9.9`,
    `${method} http://other.example${path} HTTP/1.1`,
    `${method} ${path}\u0000 HTTP/1.1`,
    `${method}  HTTP/1.1`,
    `G\u0001T ${path} HTTP/1.1`,
    `${method} /${"a".repeat(20_000)} HTTP/1.1`,
    `${method} ${path}?${"%".repeat(9)}&a=%zz&__proto__=1 HTTP/1.1`,
    `${method} //..//..%2f..%2fetc HTTP/1.1`,
    "",
  ]);
  const more = random.pick([
    "",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    `X: ${"y".repeat(9000)}\r\n`,
    "X-A: 1\r\n".repeat(150),
    " folded: x\r\n",
    "Bad Header\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "Host: a\r\nHost: b\r\n",
  ]);
  const host = random.pick(["Host: 127.0.0.1\r\n", "Host: 127.0.0.1\r\n", "", "Host: [::1\r\n"]);
  const end = random.pick(["\r\n", "\r\n", "\n", ""]);
  const chunk = random.pick([
    json,
    `5\r\nhello\r\n0\r\n\r\n`,
    `ffffffffff\r\n${json}`,
    json.slice(1),
  ]);
  return `${first}\r\n${host}Connection: close\r\nContent-Length: ${length}\r\n${more}${end}${chunk}`;
}

function makeCall(random: Random): Call {
  const [method, path, body] = random.pick(httpSamples);
  const place = random.below(8) === 0 ? random.pick(awkwardStrings) : undefined;
  const call: Call = {
    method,
    path:
      place === undefined ? path : path.replace(":id", encodeURIComponent(place.toWellFormed())),
    body,
    edits: [],
  };
  for (let i = random.below(4); i > 0; i--) call.edits.push(randomJsonEdit(body, random));
  if (random.below(5) === 0) call.headers = Object.fromEntries([random.pick(headers)]);
  if (random.below(5) === 0) call.raw = rawRequest(random, call);
  return call;
}

/** Everything that comes back, as text; the status in front. */
async function send(call: Call): Promise<string> {
  if (typeof call.raw === "string") return await sendRaw(call.raw);
  const { method } = call;
  const path = call.path.replace(":id", await sessionId());
  const withBody = method !== "GET" && method !== "HEAD";
  const response = await fetch(new URL(path, server.url), {
    method,
    headers: { "content-type": "application/json", ...call.headers },
    signal: AbortSignal.timeout(answerLimitMs),
    ...(withBody && { body: JSON.stringify(applyJsonEdits(call.body, call.edits)) }),
  });
  return `${response.status} ${(await response.text()).slice(0, 2000)}`;
}

/** Of the newest session; one is made where all are gone. */
async function sessionId(): Promise<string> {
  const url = new URL("/lantern/v1/sessions", server.url);
  const { sessions } = (await (await fetch(url)).json()) as { sessions: { id: string }[] };
  if (sessions[0]) return sessions[0].id;
  const made = await fetch(url, { method: "POST", body: "{}" });
  return ((await made.json()) as { id: string }).id;
}

async function sendRaw(text: string): Promise<string> {
  return await new Promise((resolve, reject) => {
    const socket = connect(server.port, "127.0.0.1");
    let answer = "";
    const done = (): void => {
      socket.destroy();
      resolve(
        answer === "" ? "closed" : (/^HTTP\/1\.1 (\d+[\s\S]{0,2000})/.exec(answer)?.[1] ?? answer),
      );
    };
    socket.setTimeout(1000, done); // a request that is not whole is waited for
    socket.on("data", (data) => {
      answer += data.toString("latin1");
    });
    socket.on("close", done);
    socket.on("error", () => resolve("reset"));
    socket.on("connect", () => {
      socket.end(text, "latin1");
    });
    setTimeout(() => reject(new Error("a raw request hangs")), answerLimitMs).unref();
  });
}

async function usualAnswer(): Promise<string> {
  const response = await fetch(new URL("/completion", server.url), {
    method: "POST",
    body: JSON.stringify(usual),
    signal: AbortSignal.timeout(answerLimitMs),
  });
  const { content } = (await response.json()) as { content?: string };
  return `${response.status} ${content}`;
}

export const target: FuzzTarget = {
  name: "http",
  describe: "damaged requests to every route of a server with a tiny model",
  limitMs: 60_000,
  async prepare() {
    const file = new File([new Uint8Array(await tinyGguf())], "tiny.gguf");
    model = await open(file, { threads: 1, parallel: 4, contextSize: 128 });
    const folder = mkdtempSync(join(tmpdir(), "sessions-"));
    server = await startServer({
      models: { tiny: model },
      version: "fuzz",
      port: 0,
      graceMs: 200,
      token: false, // every route is reached
      headersTimeoutMs: 2000,
      requestTimeoutMs: 5000,
      sessions: () => openNodeDatabase(join(folder, "sessions.db")),
      log: (line) => bugs.push(line),
    });
    expected = await usualAnswer();
  },
  make(seed, base) {
    const random = seededRandom(seed);
    const before = (base as unknown as Input | undefined)?.calls ?? [];
    const calls = [
      ...before.slice(-3),
      ...Array.from({ length: 1 + random.below(3) }, () => makeCall(random)),
    ];
    return { calls } as unknown as Json;
  },
  async run(_seed, value) {
    const { calls } = value as unknown as Input;
    if (!Array.isArray(calls)) return undefined;
    bugs.length = 0;
    const outcomes: string[] = [];
    for (const call of calls) {
      if (typeof call?.path !== "string" || typeof call.method !== "string") continue;
      const answer = await send(call).catch((error: unknown) => {
        if (error instanceof TypeError) return `client: ${error.message}`; // fetch itself refuses it
        throw error;
      });
      if (answer.startsWith("500")) throw new Error(`${call.method} ${call.path}: ${answer}`);
      outcomes.push(`${call.path} ${answer.slice(0, 200)}`);
    }
    if (bugs.length > 0) throw new Error(`logged: ${bugs.join("\n")}`);
    const health = await fetch(new URL("/health", server.url), {
      signal: AbortSignal.timeout(answerLimitMs),
    });
    if (health.status !== 200) throw new Error(`/health: ${health.status} ${await health.text()}`);
    const answer = await usualAnswer();
    if (answer !== expected) throw new Error(`the usual answer became ${JSON.stringify(answer)}`);
    return shapeOf(outcomes.at(-1) ?? "none");
  },
  async dispose() {
    await server.stop();
    await model.dispose();
  },
};
