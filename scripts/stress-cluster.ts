// npm run stress:cluster -- [REQUESTS] [SEED]: a cluster of processes (three NATS servers, three workers, two gateways) answers requests while its
// parts are killed (kill -9), stopped, slowed down and cut off. Half of the requests are streamed chats, half are lines of a batch; each goes to
// either gateway, as behind a load balancer. Each must be answered exactly once, with the model's text when it runs alone. Prints a table of the
// faults and their results.
//
// The worker that is cut off is in a network namespace of its own, if this machine allows one.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { open } from "../src/index.ts";
import { type Started, startLantern } from "../test/cluster/processes.ts";
import { startNats } from "../test/support/nats-servers.ts";
import { tinyFile } from "../test/support/tiny-file.ts";
import { batchOfFile, beginStress, postOf, pause as sleep, uploadOf } from "./stress-harness.ts";

const usual = { count: 2000, seed: 1, least: 10 };
const {
  count: requests,
  seed,
  random,
  folder,
} = beginStress("stress:cluster -- [REQUESTS] [SEED]", usual);
const maxTokens = 24;
const clients = 16;

const file = await tinyFile();
const space = makeNamespace();
const nats = await startNats(3, space ? "0.0.0.0" : "127.0.0.1");
const servers = nats.urls.join(",");
const workers: Started[] = [];
const gateways: Started[] = [];
const anyUrl = (): string => gateways[random.below(gateways.length)]!.ready.url as string;
let isOver = false;

const own = await open(file.path, { threads: 1, contextSize: 512, tuned: false });
const question = (at: number): string => `${at % 97} the cat ${"sat ".repeat(at % 13)}`;
const known = new Map<string, Promise<string>>();

/** The model's text when it runs alone. */
function expected(at: number): Promise<string> {
  const text = question(at);
  const made = known.get(text) ?? writeAlone(text);
  known.set(text, made);
  return made;
}

async function writeAlone(text: string): Promise<string> {
  const prompt = await own.applyTemplate([{ role: "user", content: text }]);
  return (await own.generate(prompt, { maxTokens, ...sampling }).result).text;
}

const sampling = { seed: 7, temperature: 0.9 };
const bodyOf = (text: string): object => ({
  ...{ model: "tiny", messages: [{ role: "user", content: text }], max_tokens: maxTokens },
  ...sampling,
});

async function startWorker(at: number): Promise<void> {
  const isInside = at === 0 && space !== undefined;
  const addresses = isInside ? servers.replaceAll("127.0.0.1", space.host) : servers;
  const args = ["worker", "--cluster", addresses, "-m", file.path, "-a", "tiny", "-c", "512"];
  const started = await startLantern([...args, "--threads", "1", "--parallel", "8"], {
    isMortal: true,
    ...(isInside && { within: ["ip", "netns", "exec", space.name] }),
  });
  workers[at] = started;
  // Restarts a process that has died, as a supervisor does.
  void started.ended.then(() => {
    if (isOver) return;
    deaths++;
    return startWorker(at);
  });
}

let deaths = 0;

/** Each gateway has a store of its own, which it opens again after a restart. */
async function startGateway(at: number, port: number): Promise<void> {
  const store = ["--no-sessions", "--batches", join(folder, `batches-${at}.db`)];
  const args = ["serve", "--cluster", servers, "--port", String(port), "--no-web", ...store];
  gateways[at] = await startLantern([...args, "--queue", "4096"]);
}

interface Counts {
  right: number;
  wrong: string[];
  retries: number;
}
const chats: Counts = { right: 0, wrong: [], retries: 0 };

/** One streamed chat; repeated as a client would, if the gateway is gone or full. */
async function chat(at: number): Promise<void> {
  for (;;) {
    try {
      const asked = postOf({ ...bodyOf(question(at)), stream: true });
      const response = await fetch(`${anyUrl()}/v1/chat/completions`, asked);
      if (response.status !== 200) throw new Error(`status ${response.status}`);
      const text = textOf(await response.text());
      const wanted = await expected(at);
      if (text === wanted) chats.right++;
      else
        chats.wrong.push(
          `chat ${at}: got ${JSON.stringify(text)}, expected ${JSON.stringify(wanted)}`,
        );
      return;
    } catch {
      chats.retries++;
      await sleep(200);
    }
  }
}

/** The text of a whole stream; throws if it has no end. */
function textOf(stream: string): string {
  const events = stream.split("\n").filter((line) => line.startsWith("data: "));
  if (events.at(-1) !== "data: [DONE]") throw new Error("the stream broke off");
  const parts = events.slice(0, -1).map((line) => JSON.parse(line.slice(6)));
  if (parts.some((part) => part.error)) throw new Error("an error in the stream");
  return parts.map(({ choices }) => choices[0]?.delta?.content ?? "").join("");
}

async function api(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const response = await fetch(`${anyUrl()}${path}`, init).catch(() => undefined);
    if (response?.ok) return response;
    await sleep(250);
  }
}

async function startBatch(count: number, poisonAt: number): Promise<string> {
  const lines = Array.from({ length: count }, (_, at) => ({
    ...{ custom_id: String(at), method: "POST", url: "/v1/chat/completions" },
    body: bodyOf(at === poisonAt ? "POISON" : question(at)),
  }));
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const input = (await (await api("/v1/files", uploadOf(text))).json()) as { id: string };
  const made = await api("/v1/batches", batchOfFile(input.id, "/v1/chat/completions"));
  return ((await made.json()) as { id: string }).id;
}

interface Line {
  custom_id: string;
  response: { status_code: number; body: { choices?: { message: { content: string } }[] } };
}

async function endOfBatch(id: string): Promise<Line[]> {
  for (;;) {
    const batch = (await (await api(`/v1/batches/${id}`)).json()) as Record<string, string | null>;
    if (batch.status === "completed") {
      const files = [batch.output_file_id, batch.error_file_id].filter((one) => one);
      const texts = await Promise.all(
        files.map(async (one) => await (await api(`/v1/files/${one}/content`)).text()),
      );
      return texts
        .join("")
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Line);
    }
    if (batch.status === "failed") throw new Error(`the batch failed: ${JSON.stringify(batch)}`);
    await sleep(500);
  }
}

const faults: Record<string, number> = {};

/** One fault after the other, until all requests are answered. */
async function breakThings(): Promise<void> {
  const kinds: readonly [name: string, happen: () => Promise<void>, most?: number][] = [
    [
      "kill -9 of a worker",
      async () => void workers[random.below(workers.length)]!.child.kill("SIGKILL"),
    ],
    [
      "a worker stopped for 7 s",
      async () => {
        const { child } = workers[random.below(workers.length)]!;
        child.kill("SIGSTOP");
        await sleep(7000);
        child.kill("SIGCONT");
      },
    ],
    [
      "kill -9 of a gateway, started again",
      async () => {
        const at = random.below(gateways.length);
        await killGateway(at, 0);
      },
    ],
    [
      "kill -9 of a gateway, away for 14 s",
      async () => {
        const [owner] = gateways.keys(); // the batch began there, unless the other one has it by now
        await killGateway(owner!, 14_000);
      },
    ],
    [
      "a worker with a tenth of its speed for 8 s",
      async () => {
        const { child } = workers[random.below(workers.length)]!;
        for (const until = performance.now() + 8000; performance.now() < until; ) {
          child.kill("SIGSTOP");
          await sleep(180);
          child.kill("SIGCONT");
          await sleep(20);
        }
      },
    ],
    [
      "kill -9 of a NATS server",
      async () => {
        const at = random.below(3);
        nats.kill(at);
        await sleep(3000);
        await nats.restart(at);
        await sleep(2000);
      },
    ],
    [
      "kill -9 of all NATS servers, which come back with empty stores",
      async () => {
        await Promise.all([0, 1, 2].map((at) => nats.wipe(at)));
        await sleep(10_000);
      },
      2, // with the store, NATS forgets how many workers the poisoned line has ended
    ],
    ...(space
      ? [["a worker cut off for 8 s", () => space.cut(8000)] as [string, () => Promise<void>]]
      : []),
  ];
  for (let at = 0; !isOver; at++) {
    await sleep(1500);
    if (isOver) return;
    const [name, happen, most = Infinity] = kinds[at % kinds.length]!;
    if ((faults[name] ?? 0) >= most) continue;
    await happen();
    faults[name] = (faults[name] ?? 0) + 1;
  }
}

async function killGateway(at: number, awayMs: number): Promise<void> {
  const { child, ended, ready } = gateways[at]!;
  child.kill("SIGKILL");
  await ended;
  await sleep(awayMs);
  await startGateway(at, Number(new URL(ready.url as string).port));
}

/** A network of its own for one worker; undefined: not on this machine. */
function makeNamespace():
  | { name: string; host: string; cut(ms: number): Promise<void>; remove(): void }
  | undefined {
  const name = `lantern${process.pid % 10_000}`;
  const [outside, inside] = [`lo${process.pid % 10_000}`, `li${process.pid % 10_000}`];
  const subnet = `10.${100 + (process.pid % 100)}.77`;
  const ip = (...args: string[]): void => void execFileSync("ip", args, { stdio: "ignore" });
  try {
    ip("netns", "add", name);
    ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name);
    ip("addr", "add", `${subnet}.1/24`, "dev", outside);
    ip("link", "set", outside, "up");
    ip("-n", name, "addr", "add", `${subnet}.2/24`, "dev", inside);
    ip("-n", name, "link", "set", inside, "up");
    ip("-n", name, "link", "set", "lo", "up");
  } catch {
    console.log("no network namespaces on this machine: nothing is cut off");
    return undefined;
  }
  return {
    ...{ name, host: `${subnet}.1` },
    async cut(ms) {
      ip("link", "set", outside, "down");
      await sleep(ms);
      ip("link", "set", outside, "up");
    },
    remove: () => ip("netns", "del", name),
  };
}

try {
  await Promise.all([startWorker(0), startWorker(1), startWorker(2)]);
  await Promise.all([startGateway(0, 0), startGateway(1, 0)]);
  await chat(0);
  const started = performance.now();
  const half = Math.floor(requests / 2);
  const poisonAt = Math.floor(half / 3);
  const batch = await startBatch(half, poisonAt);
  const breaking = breakThings();
  let next = 1;
  const askers = Array.from({ length: clients }, async () => {
    while (next < requests - half) await chat(next++);
  });
  const [lines] = await Promise.all([endOfBatch(batch), Promise.all(askers)]);
  isOver = true;
  await breaking;
  const seconds = (performance.now() - started) / 1000;
  const wrong: string[] = [...chats.wrong];
  const seen = new Set<string>();
  for (const { custom_id: id, response } of lines) {
    if (seen.has(id)) wrong.push(`line ${id} is answered twice`);
    seen.add(id);
    const at = Number(id);
    const text = response.body.choices?.[0]?.message.content;
    if (at === poisonAt) {
      if (response.status_code !== 500)
        wrong.push(`the poisoned line: status ${response.status_code}`);
    } else if (text !== (await expected(at))) {
      wrong.push(`line ${id}: ${JSON.stringify(response).slice(0, 300)}`);
    }
  }
  for (let at = 0; at < half; at++) if (!seen.has(String(at))) wrong.push(`line ${at} is lost`);
  console.log(
    `seed ${seed}: ${requests - half} chats and ${half} lines in ${seconds.toFixed(0)} s`,
  );
  console.log(`| fault | times |\n|---|---:|`);
  for (const [name, times] of Object.entries(faults)) console.log(`| ${name} | ${times} |`);
  console.log(`| a request that kills whoever takes it | 1 |`);
  console.log(`workers that died: ${deaths}; requests that clients repeated: ${chats.retries}`);
  console.log(
    `right answers: ${chats.right} chats, ${lines.length - 1} lines, 1 error for the poisoned line`,
  );
  console.log(`wrong, twice or lost: ${wrong.length}`);
  for (const one of wrong.slice(0, 10)) console.error(one);
  if (wrong.length > 0) process.exitCode = 1;
} finally {
  isOver = true;
  for (const one of [...workers, ...gateways]) one?.child.kill("SIGKILL");
  await own.dispose();
  nats.close();
  space?.remove();
  file.remove();
}
