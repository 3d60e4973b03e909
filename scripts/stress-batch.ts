// npm run stress:batch -- [ROUNDS] [SEED] [PART...]: real processes answer batches while they are killed (kill -9) at random moments, run
// out of disk, get hostile files, are cancelled, expire, and share a store. Every request must have exactly one line in the output, and
// every text must equal the model's text when it runs alone. Prints a table; the exit code is 1 after any error.
//
// Parts: server, cli, disk, hostile, cancel, expiry, two (default: all). A full disk is a tmpfs, if this user may mount one.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { open } from "../src/index.ts";
import { memoryMib, type Started, startLantern, stop } from "../test/cluster/processes.ts";
import { tinyFile } from "../test/support/tiny-file.ts";
import { batchOfFile, beginStress, Findings, pause as sleep, uploadOf } from "./stress-harness.ts";

const stress = beginStress("stress:batch -- [ROUNDS] [SEED] [PART...]", { count: 20, seed: 1 });
const { count: rounds, random, folder } = stress;
const findings = new Findings();
const count = 300;
const maxTokens = 24;
const file = await tinyFile({ noTemplate: true });
const launcher = fileURLToPath(new URL("../bin/lantern.js", import.meta.url));
const env = { ...process.env, LANTERN_NO_TUNE: "1", LANTERN_NO_LIMIT: "1" };
const between = (low: number, high: number): number =>
  low + Math.floor(random.unit() * (high - low));

const promptOf = (at: number): string => `${at % 29} the cat ${"sat ".repeat(at % 17)}`;
const options = { seed: 7, temperature: 0.9 };
const lines = Array.from({ length: count }, (_, at) => ({
  ...{ custom_id: `r${at}`, method: "POST", url: "/v1/completions" },
  body: {
    model: "tiny",
    prompt: promptOf(at),
    max_tokens: maxTokens,
    ignore_eos: true,
    ...options,
  },
}));
const input = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
const inputPath = join(folder, "in.jsonl");
writeFileSync(inputPath, input);

/** The model's text when it runs alone. */
const alone = new Map<string, string>();
{
  await using model = await open(file.path, { threads: 1, contextSize: 512, tuned: false });
  for (const { body } of lines) {
    if (alone.has(body.prompt)) continue;
    const asked = { maxTokens, ignoreEos: true, ...options };
    alone.set(body.prompt, (await model.generate(body.prompt, asked).result).text);
  }
}

interface Answer {
  custom_id: string;
  response: { status_code: number; body: { choices?: { text: string }[]; error?: object } } | null;
  error: { code: string } | null;
}

interface Sum {
  right: number;
  /** Lines with an error, by its code. */
  errors: Record<string, number>;
  wrong: string[];
}

/** Compares lines of outputs with the expected ones. */
function checked(answers: readonly Answer[], total = count): Sum {
  const sum: Sum = { right: 0, errors: {}, wrong: [] };
  const seen = new Set<string>();
  for (const { custom_id, response, error } of answers) {
    if (seen.has(custom_id)) sum.wrong.push(`${custom_id} has two answers`);
    seen.add(custom_id);
    const text = response?.body.choices?.[0]?.text;
    const code = error?.code ?? (response?.body.error as { code?: string } | undefined)?.code;
    if (text === undefined) {
      sum.errors[String(code)] = (sum.errors[String(code)] ?? 0) + 1;
    } else if (text === alone.get(promptOf(Number(custom_id.slice(1))))) sum.right++;
    else sum.wrong.push(`${custom_id} has another text: ${JSON.stringify(text)}`);
  }
  if (seen.size !== total) sum.wrong.push(`${seen.size} of ${total} requests have an answer`);
  return sum;
}

const parse = (text: string): Answer[] =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Answer);

async function serve(store: string, more: readonly string[] = []): Promise<Started> {
  const args = [
    "serve",
    "-m",
    file.path,
    "-a",
    "tiny",
    "-c",
    "512",
    "--threads",
    "1",
    "--port",
    "0",
  ];
  const own = ["--no-web", "--no-sessions", "--no-token", "--batches", join(store, "b.db")];
  return await startLantern([...args, ...own, ...more]);
}

const urlOf = ({ ready }: Started): string => ready.url as string;

async function upload(url: string, bytes: string | Uint8Array<ArrayBuffer>): Promise<Response> {
  return await fetch(`${url}/v1/files`, uploadOf(bytes));
}

interface Batch {
  id: string;
  status: string;
  output_file_id?: string;
  error_file_id?: string;
  request_counts: { total: number; completed: number; failed: number };
  errors?: { data: { message: string }[] };
}

async function create(url: string, bytes: string | Uint8Array<ArrayBuffer>): Promise<Batch> {
  const { id } = (await (await upload(url, bytes)).json()) as { id: string };
  return await createOf(url, id);
}

async function createOf(url: string, id: string): Promise<Batch> {
  const made = await fetch(`${url}/v1/batches`, batchOfFile(id, "/v1/completions"));
  return (await made.json()) as Batch;
}

async function batchOf(url: string, id: string): Promise<Batch> {
  return (await (await fetch(`${url}/v1/batches/${id}`)).json()) as Batch;
}

async function ended(url: string, id: string, seconds = 60): Promise<Batch> {
  for (let tries = 0; tries < seconds * 20; tries++) {
    const batch = await batchOf(url, id);
    if (["completed", "failed", "cancelled", "expired"].includes(batch.status)) return batch;
    await sleep(50);
  }
  const last = JSON.stringify(await batchOf(url, id));
  throw new Error(`batch ${id} did not end within ${seconds} s: ${last}`);
}

async function answersOf(url: string, batch: Batch): Promise<Answer[]> {
  const files = [batch.output_file_id, batch.error_file_id].filter((id) => id);
  const texts = await Promise.all(
    files.map(async (id) => await (await fetch(`${url}/v1/files/${id}/content`)).text()),
  );
  return texts.flatMap(parse);
}

function report(part: string, what: string, sum: Pick<Sum, "wrong"> & Partial<Sum>): void {
  const errors = Object.entries(sum.errors ?? {}).map(([code, n]) => `${n} ${code}`);
  const right = sum.right === undefined ? "" : `${sum.right} right`;
  const found = [right, ...errors].filter((one) => one !== "");
  findings.add([part, what, found.join(", ")], sum.wrong);
}

const place = (name: string): string => {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  return path;
};

async function killServer(): Promise<void> {
  const store = place("server");
  let server = await serve(store);
  const { id } = await create(urlOf(server), input);
  let kills = 0;
  for (; kills < rounds; kills++) {
    await sleep(between(0, 700));
    await stop(server, "SIGKILL");
    server = await serve(store);
    if (["completed", "failed"].includes((await batchOf(urlOf(server), id)).status)) break;
  }
  const batch = await ended(urlOf(server), id);
  const sum = checked(await answersOf(urlOf(server), batch));
  await stop(server);
  report("kill -9 of the server", `${kills} kills, ${count} lines`, sum);
}

async function killCommand(): Promise<void> {
  const output = join(place("cli"), "out.jsonl");
  const args = ["batch", inputPath, "-o", output, "-m", file.path, "-t", "1", "-c", "512"];
  const run = () => {
    const child = spawn(process.execPath, [launcher, ...args], { env, stdio: "ignore" });
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    return { child, ended };
  };
  let kills = 0;
  for (; kills < rounds; kills++) {
    const { child, ended } = run();
    const code = await Promise.race([ended, sleep(between(300, 2500)).then(() => undefined)]);
    if (code !== undefined) break;
    child.kill("SIGKILL");
    await ended;
  }
  const code = await run().ended;
  const sum = checked(parse(readFileSync(output, "utf8")));
  if (code !== 0 && sum.right === count) sum.wrong.push(`exit code ${code}`);
  report("kill -9 of lantern batch", `${kills} kills, ${count} lines`, sum);
}

async function fullDisk(): Promise<void> {
  const store = place("disk");
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=16m", "tmpfs", store], { stdio: "ignore" });
  } catch {
    report("full disk", "skipped: this user may not mount a tmpfs", { wrong: [] });
    return;
  }
  try {
    const wrong: string[] = [];
    const server = await serve(store);
    const url = urlOf(server);
    const { id } = await create(url, input);
    for (let tries = 0; (await batchOf(url, id)).status === "validating"; tries++) {
      if (tries > 600) wrong.push("validating did not end");
      await sleep(20);
    }
    const free = (): number =>
      Number(execFileSync("df", ["--output=avail", "-B1", store]).toString().split("\n")[1]);
    try {
      writeFileSync(join(store, "fill"), new Uint8Array(free()));
    } catch {
      // the server was faster: the disk is as full as it gets
    }
    await sleep(3000);
    const during = await batchOf(url, id);
    if (!during.status) wrong.push(`while full: ${JSON.stringify(during)}`);
    const refused = await upload(url, input);
    if (refused.status === 200) wrong.push("an upload was accepted on a full disk");
    if ((await fetch(`${url}/health`)).status !== 200) wrong.push("not healthy while full");
    rmSync(join(store, "fill"));
    const batch = await ended(url, id);
    const sum = checked(await answersOf(url, batch));
    await stop(server);
    const facts = `16 MiB of tmpfs is full at ${during.request_counts?.completed} lines, then free again; upload meanwhile: ${refused.status}`;
    report("full disk", facts, { ...sum, wrong: [...wrong, ...sum.wrong] });
  } finally {
    execFileSync("umount", ["-l", store]);
  }
}

/** The expected result of each hostile file: a refusal of the upload, or a batch that failed and names the line. */
async function hostile(): Promise<void> {
  const utf8 = new TextEncoder();
  const good = JSON.stringify(lines[0]);
  const bytes = (...parts: (string | number[])[]): Uint8Array<ArrayBuffer> =>
    Uint8Array.from(
      parts.flatMap((part) => [...(typeof part === "string" ? utf8.encode(part) : part)]),
    );
  const big = (text: string, times: number): string => text.repeat(times);
  const cases: [string, string | Uint8Array<ArrayBuffer>, RegExp][] = [
    [
      "a line of 17 MiB",
      `${good}\n{"custom_id":"${big("x", 17 << 20)}"}\n`,
      /line 2 has \d+ bytes/,
    ],
    ["bytes that are no UTF-8", bytes(good, "\n", [0xff, 0xfe, 0x80], "\n"), /line 2 is not JSON/],
    ["the same custom_id twice", `${good}\n${good}\n`, /line 2.*earlier line/],
    ["100,000 brackets", `${good}\n${big("[", 100_000)}\n`, /line 2 is not JSON/],
    ["100,000 nested lists", `${good}\n${big("[", 1e5)}${big("]", 1e5)}\n`, /line 2 is not/],
    [
      "a body of 100,000 lists",
      `{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":${big("[", 1e5)}${big("]", 1e5)}}}`,
      /line 1|completed/,
    ],
    ["NUL between lines", `${good}\n\u0000\n`, /line 2 is not JSON/],
    ["nothing", "", /no requests|empty/i],
    ["1,000,000 empty lines", big("\n", 1_000_000), /no requests/],
    ["50,001 lines", lines50k(), /more than 50000/],
    [
      "__proto__ as a body",
      `{"custom_id":"a","method":"POST","url":"/v1/completions","body":"__proto__"}`,
      /"body"/,
    ],
    ["another route", `${good.replace("/v1/completions", "/lantern/v1/models/delete")}\n`, /"url"/],
    ["a stream", `${good.replace('"max_tokens"', '"stream":true,"max_tokens"')}\n`, /body\.stream/],
    ["a lone surrogate", `${good.replace("r0", "\\ud800")}\n`, /completed|custom_id/],
  ];
  const server = await serve(place("hostile"));
  const url = urlOf(server);
  const wrong: string[] = [];
  for (const [name, content, expected] of cases) {
    const sent = await upload(url, content);
    const answer = (await sent.json()) as { id?: string; error?: { message: string } };
    let said = answer.error?.message ?? "";
    if (answer.id !== undefined) {
      const batch = await ended(url, (await createOf(url, answer.id)).id, 60);
      said = `${batch.status} ${(batch.errors?.data ?? []).map(({ message }) => message).join("; ")}`;
    }
    if (!expected.test(said)) wrong.push(`${name}: ${said.slice(0, 300)}`);
    if ((await fetch(`${url}/health`)).status !== 200) wrong.push(`${name}: not healthy`);
  }
  const claim = await claimed(Number(new URL(url).port));
  if (!/^HTTP\/1\.1 4\d\d/.test(claim)) wrong.push(`a claim of 1 GB: ${claim.slice(0, 100)}`);
  const most = memoryMib(server, "most");
  const { id } = await create(url, input);
  const sum = checked(await answersOf(url, await ended(url, id)));
  await stop(server);
  const facts = `${cases.length} files, a claim of 1 GB (${claim.slice(9, 12)}), then ${count} lines; at most ${most?.toFixed(0)} MB`;
  report("hostile files", facts, { ...sum, wrong: [...wrong, ...sum.wrong] });
}

function lines50k(): string {
  const { body: _, ...rest } = lines[0]!;
  return Array.from({ length: 50_001 }, (_, at) =>
    JSON.stringify({ ...rest, custom_id: `x${at}`, body: {} }),
  ).join("\n");
}

/** A body that says it has 1 GB, and comes one byte at a time. */
async function claimed(port: number): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  let said = "";
  socket.on("data", (data) => {
    said += data.toString();
  });
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.on("error", () => {});
  socket.write(
    `POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: ${1e9}\r\n\r\n--x\r\n`,
  );
  await Promise.race([closed, sleep(5000)]);
  socket.destroy();
  return said;
}

async function cancelled(): Promise<void> {
  const server = await serve(place("cancel"));
  const url = urlOf(server);
  const wrong: string[] = [];
  let answered = 0;
  const times = Math.min(rounds, 10);
  for (let round = 0; round < times; round++) {
    const { id } = await create(url, input);
    await sleep(between(0, 600));
    await fetch(`${url}/v1/batches/${id}/cancel`, { method: "POST" });
    const batch = await ended(url, id);
    const answers = await answersOf(url, batch);
    const sum = answers.length === 0 ? checked([], 0) : checked(answers);
    wrong.push(...sum.wrong);
    answered += sum.right;
  }
  await stop(server);
  report("cancelled in the middle", `${times} batches, ${answered} lines answered before`, {
    wrong,
  });
}

async function expired(): Promise<void> {
  const store = place("expiry");
  let server = await serve(store);
  const { id } = await create(urlOf(server), input);
  await sleep(400);
  await stop(server, "SIGKILL");
  const database = new DatabaseSync(join(store, "b.db"));
  const columns = database.prepare("SELECT name FROM pragma_table_info('batches')").all();
  const column = columns.map(({ name }) => String(name)).find((name) => /expires/.test(name))!;
  database.prepare(`UPDATE batches SET ${column} = ? WHERE id = ?`).run(Date.now() + 2500, id);
  database.close();
  server = await serve(store);
  const batch = await ended(urlOf(server), id);
  const sum = checked(await answersOf(urlOf(server), batch));
  await stop(server);
  report("expired after a kill", `state ${batch.status}`, sum);
}

/** The second process on a store must report it and end, and the first must not notice. */
async function two(): Promise<void> {
  const store = place("two");
  const server = await serve(store);
  const { id } = await create(urlOf(server), input);
  const wrong: string[] = [];
  const second = await serve(store);
  const listed = await fetch(`${urlOf(second)}/v1/batches`);
  const said = await listed.text();
  if (listed.status !== 503 || !/another process/.test(said)) wrong.push(said.slice(0, 300));
  await stop(second);
  const sum = checked(await answersOf(urlOf(server), await ended(urlOf(server), id)));
  await stop(server);
  report("two servers, one store", "the second serves without batches (503), which says why", {
    ...sum,
    wrong: [...wrong, ...sum.wrong],
  });
  const output = join(store, "out.jsonl");
  const args = ["batch", inputPath, "-o", output, "-m", file.path, "-t", "1", "-c", "512"];
  const runs = [0, 1].map(() => {
    const child = spawn(process.execPath, [launcher, ...args], { env });
    let said = "";
    child.stderr.on("data", (data: Buffer) => {
      said += data.toString();
    });
    return new Promise<[number | null, string]>((resolve) =>
      child.once("close", (code) => resolve([code, said])),
    );
  });
  const codes = await Promise.all(runs);
  const failed = codes.filter(([code]) => code !== 0);
  const result = checked(parse(readFileSync(output, "utf8")));
  for (const [code, said] of failed) {
    if (!/another process/.test(said)) result.wrong.push(`exit ${code}: ${said.slice(-300)}`);
  }
  if (failed.length > 1) result.wrong.push("both commands failed");
  report(
    "two commands, one output",
    `exit codes ${codes.map(([code]) => code).join(", ")}`,
    result,
  );
}

try {
  await findings.run(stress, ["what", "how", "came of it"], {
    ...{ server: killServer, cli: killCommand, disk: fullDisk, hostile },
    ...{ cancel: cancelled, expiry: expired, two },
  });
} finally {
  file.remove();
}
