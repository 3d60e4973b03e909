// How long others wait: starts `lantern serve`, lets one client stream an answer, and meanwhile sends hostile requests of
// 16 MB, and hostile grammars (test/support/hostile-grammars.ts), alone and twenty at once. Prints the stall table: the longest time
// that the stream stood still during each of them ("gap"), and of it apart how long the next request of that client waited for its first
// token at most ("first"): the client asks again as soon as it has an answer, and comes from the same address as the hostile ones.
//
//   npm run bench:stalls -- MODEL [--only NAME]
//
// The stream is read on a thread of its own, so that making and sending a request does not count.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { memoryMib, startLantern, stop } from "../test/cluster/processes.ts";
import { type HostileGrammar, hostileGrammars } from "../test/support/hostile-grammars.ts";
import { bench, load, text, timed } from "./harness.ts";

/** Below the server's own limit on bodies. */
const bytes = 15_800_000;
/** A request that is not answered by then is given up. */
const patienceMs = 90_000;

interface Hostile {
  name: string;
  path: string;
  body(): string;
  /** Flags of the server for this request. */
  flags?: readonly string[];
  /** Sent at once, instead of one. */
  bodies?(): readonly string[];
}

/** Several requests at once, as many generations under hostile grammars. */
const together = 20;

const repeated = (piece: string): string => piece.repeat(Math.floor(bytes / piece.length));
const list = (item: string): string => `[${repeated(`${item},`)}${item}]`;
const words = (): string => repeated("The quick brown fox, aged 37, doesn't jump. ");
const mixed = (): string =>
  Array.from({ length: bytes / 8 }, (_, i) => ((i * 2654435761) >>> 0).toString(36)).join(" ");

const json = (value: object): string => JSON.stringify(value);
/** A message that is written to the chat's API, without an answer worth the name. */
const messagesOf = (content: string, count = 1): string =>
  json({
    messages: Array.from({ length: count }, () => ({ role: "user", content })),
    max_tokens: 1,
  });
const chat = "/v1/chat/completions";
const nested =
  "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
const promptOf = (text: string): string => json({ prompt: text, n_predict: 1 });

/** By name: the path, and what makes the body; flags of the server, where a hostile template comes with the model. */
const hostiles: readonly [string, string, () => string, string[]?][] = [
  ["nothing", "/health", () => ""],
  ["prompt of words", "/completion", () => promptOf(words())],
  ["prompt of one letter", "/completion", () => promptOf(repeated("a"))],
  ["prompt of escapes", "/completion", () => `{"prompt":"${repeated("\\u0416")}","n_predict":1}`],
  ["chat of one message", chat, () => messagesOf(words())],
  ["/tokenize with pieces", "/tokenize", () => json({ content: mixed(), with_pieces: true })],
  ["/detokenize", "/detokenize", () => `{"tokens":${list("300")}}`],
  ["4M prompts", "/v1/completions", () => `{"prompt":${list('"a"')}}`],
  ["lists of tokens", "/v1/completions", () => `{"prompt":${list("[1]")}}`],
  ["5M empty messages", chat, () => `{"messages":${list("{}")}}`],
  [
    "parts of a message",
    chat,
    () => `{"messages":[{"role":"user","content":${list('{"type":"text","text":"a"}')}}]}`,
  ],
  ["embedding inputs", "/v1/embeddings", () => `{"input":${list('"a"')}}`],
  ["biases", "/completion", () => `{"prompt":"a","n_predict":1,"logit_bias":${list("[1,1]")}}`],
  ["brackets", "/completion", () => "[".repeat(bytes)],
  [
    "template of loops, 4,000 messages",
    chat,
    () => messagesOf("a", 4000),
    ["--chat-template", nested],
  ],
];

function grammarBody({ source }: HostileGrammar): string | undefined {
  const given = source();
  const fields = { prompt: "a", n_predict: 8, temperature: 0 };
  if ("gbnf" in given) return JSON.stringify({ ...fields, grammar: given.gbnf });
  if ("schema" in given) return JSON.stringify({ ...fields, json_schema: given.schema });
  if (!("regex" in given)) return undefined;
  const json_schema = { type: "string", pattern: given.regex };
  return JSON.stringify({ ...fields, json_schema });
}

function* grammarRows(): Iterable<Hostile> {
  const asked = hostileGrammars.flatMap((hostile) => {
    const body = (): string | undefined => grammarBody(hostile);
    return body() === undefined ? [] : [{ name: hostile.name, body: () => body()! }];
  });
  for (const { name, body } of asked) yield { name: `grammar: ${name}`, path: "/completion", body };
  for (let from = 0; from < asked.length; from += together) {
    const some = asked.slice(from, from + together);
    yield {
      name: `${some.length} grammars at once, from ${from}`,
      path: "/completion",
      body: () => "",
      bodies: () => some.map(({ body }) => body()),
    };
  }
}

const flags = { only: text() };
if (!isMainThread) await watch(workerData as string);
else {
  await bench("npm run bench:stalls --", "MODEL", flags, async ({ only }, [model]) => {
    const fixed = hostiles.map(([name, path, body, flags = []]) => ({ name, path, body, flags }));
    for (const hostile of [...fixed, ...grammarRows()] as Hostile[]) {
      if (only !== undefined && !hostile.name.includes(only)) continue;
      await measureRow(model!, hostile);
    }
    console.log(`load ${load().toFixed(1)}`);
  });
}

/** A server of its own for each: one that died or is still busy says nothing of the next request. */
async function measureRow(model: string, hostile: Hostile): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-stalls-"));
  const sessions = ["--sessions", join(folder, "sessions.db"), "--no-token", "--no-web"];
  const own = ["serve", "-m", model, "--port", "0", "--parallel", "4"];
  const server = await startLantern([...own, ...sessions, ...(hostile.flags ?? [])]);
  try {
    const url = server.ready.url as string;
    const worker = new Worker(new URL(import.meta.url), { workerData: url });
    const ask = async (): Promise<Waits> =>
      await new Promise((resolve) => {
        worker.once("message", (waits: Waits) => resolve(waits));
        worker.postMessage("gap");
      });
    await new Promise((resolve) => worker.once("message", resolve)); // it streams
    const body = hostile.body();
    await pause(500);
    await ask(); // what came before does not count
    const bodies = hostile.bodies?.() ?? [body];
    const { result: answers, ms: tookMs } = await timed(() =>
      Promise.all(bodies.map((one) => send(url + hostile.path, one))),
    );
    const answer = answers.map((one) => (answers.length > 1 ? one.slice(0, 3) : one)).join(" ");
    await pause(500);
    const { gapMs, firstMs } = await ask();
    await worker.terminate();
    const peakMib = memoryMib(server, "most");
    const peakMb = peakMib === undefined ? undefined : Math.round(1.048576 * peakMib);
    console.log(
      `${hostile.name.padEnd(24)} gap ${gapMs.toFixed(0).padStart(6)} ms   first ${firstMs.toFixed(0).padStart(6)} ms   answered in ${(tookMs / 1000).toFixed(2).padStart(6)} s   peak ${String(peakMb ?? "?").padStart(5)} MB   ${answer}`,
    );
  } finally {
    await stop(server, "SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
}

async function send(url: string, body: string): Promise<string> {
  try {
    const init = body === "" ? {} : { method: "POST", body };
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(patienceMs) });
    let size = 0;
    let text = "";
    for await (const piece of response.body ?? []) {
      size += piece.length;
      if (text.length < 200) text += new TextDecoder().decode(piece.subarray(0, 200));
    }
    return `${response.status} ${size} bytes: ${text.slice(0, 120).replaceAll("\n", " ")}`;
  } catch (error) {
    return `no answer: ${String(error)}`;
  }
}

/** The longest pauses: between two pieces of an answer, and from a request to the first piece. */
interface Waits {
  gapMs: number;
  firstMs: number;
}

/** On the other thread: reads one answer after the other, and says how long the longest pauses were since it was asked last. */
async function watch(url: string): Promise<void> {
  let last = performance.now();
  let waits: Waits = { gapMs: 0, firstMs: 0 };
  let begun = false;
  let isFirst = true;
  const look = (): void => {
    const now = performance.now();
    const which = isFirst ? "firstMs" : "gapMs";
    waits[which] = Math.max(waits[which], now - last);
    last = now;
  };
  parentPort!.on("message", () => {
    look();
    parentPort!.postMessage(waits);
    waits = { gapMs: 0, firstMs: 0 };
  });
  const fields = { prompt: "Once upon a time", stream: true, ignore_eos: true, n_predict: 200 };
  for (;;) {
    try {
      isFirst = true;
      last = performance.now();
      const response = await fetch(`${url}/completion`, {
        method: "POST",
        body: JSON.stringify(fields),
      });
      for await (const _ of response.body!) {
        look();
        isFirst = false;
        if (!begun) parentPort!.postMessage("begun");
        begun = true;
      }
    } catch {
      await pause(100); // the server may be dead: the pause grows
    }
  }
}
