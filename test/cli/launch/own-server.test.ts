// lantern launch as processes: a server of its own with a tiny model, which the client reaches and which ends with it, whatever ends it: an exit code, a signal to the launcher, its death; a port in use.

import { type ChildProcess, spawn } from "node:child_process";
import * as fs from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { isRunning } from "../../../src/platform/node-process.ts";
import { tinyFile } from "../../support/tiny-file.ts";

const lantern = fileURLToPath(new URL("../../../bin/lantern.js", import.meta.url));
const waits = { timeout: 120_000, interval: 50 };
const limit = 300_000;

/** Writes down what it was given, and stays until OUT.end has an exit code, or until a signal, for which it has codes of its own. */
const fake = `#!${process.execPath}
const fs = require("node:fs");
const out = process.env.FAKE_OUT;
process.on("SIGINT", () => process.exit(41));
process.on("SIGTERM", () => process.exit(42));
fs.writeFileSync(out + ".part", JSON.stringify({ env: process.env, id: process.pid }));
fs.renameSync(out + ".part", out);
setInterval(() => { if (fs.existsSync(out + ".end")) process.exit(Number(fs.readFileSync(out + ".end", "utf8"))); }, 20);
`;

let model: Awaited<ReturnType<typeof tinyFile>>;
let folder: string;
let out: string;
const launched: ChildProcess[] = [];
beforeAll(async () => {
  model = await tinyFile({ seed: 3 });
});
afterAll(() => model.remove());
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-launch-own-"));
  out = join(folder, "out.json");
  fs.mkdirSync(join(folder, "programs"));
  fs.writeFileSync(join(folder, "programs", "claude"), fake, { mode: 0o755 });
});
afterEach(() => {
  for (const child of launched.splice(0)) child.kill("SIGKILL");
  fs.rmSync(folder, { recursive: true, force: true });
});

interface Facts {
  id: number;
  env: Record<string, string>;
}
interface Launched {
  child: ChildProcess;
  ended: Promise<number | string>;
  said(): string;
}

function start(file: string = model.path): Launched {
  const env = {
    ...process.env,
    ...{ HOME: folder, LANTERN_CACHE: join(folder, "cache"), LANTERN_DATA: join(folder, "data") },
    ...{ LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1", LANTERN_API_KEY: "sk-key", FAKE_OUT: out },
    PATH: `${join(folder, "programs")}:${process.env.PATH}`,
  };
  const words = [lantern, "launch", "claude", file];
  const child = spawn(process.execPath, words, { env, stdio: ["ignore", "pipe", "pipe"] });
  launched.push(child);
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream!.on("data", (piece) => (said += piece));
  const ended = new Promise<number | string>((resolve) =>
    child.on("close", (code, signal) => resolve(code ?? signal!)),
  );
  return { child, ended, said: () => said };
}

async function clientOf({ ended, said }: Launched): Promise<Facts> {
  let code: unknown;
  void ended.then((value) => (code = value));
  await expect.poll(() => fs.existsSync(out) || code !== undefined, waits).toBe(true);
  expect(fs.existsSync(out), said()).toBe(true);
  return JSON.parse(fs.readFileSync(out, "utf8")) as Facts;
}

const answers = async (url: string): Promise<boolean> =>
  await fetch(`${url}/health`).then(
    () => true,
    () => false,
  );

/** The process of the only server that is announced. */
function serverProcess(): number {
  const [record] = fs.readdirSync(join(folder, "cache", ".servers"));
  return Number(record!.replace(".json", ""));
}

test(
  "the client reaches a server of its own with a key that nobody sees; both end with the client's exit code",
  async () => {
    const run = start();
    const { env } = await clientOf(run);
    const url = env.ANTHROPIC_BASE_URL!;
    expect(env.CLAUDE_CODE_AUTO_COMPACT_WINDOW).toMatch(/^\d+$/);
    const headers = { authorization: `Bearer ${env.ANTHROPIC_AUTH_TOKEN}` };
    expect((await fetch(`${url}/v1/models`, { headers })).status).toBe(200);
    expect((await fetch(`${url}/v1/models`)).status).toBe(401);
    const server = serverProcess();
    if (process.platform === "linux") {
      const words = fs.readFileSync(`/proc/${server}/cmdline`, "latin1").split("\0");
      expect(words).toContain("serve");
      expect(words.join(" ")).not.toContain("sk-key");
    }
    fs.writeFileSync(`${out}.end`, "7");
    expect(await run.ended, run.said()).toBe(7);
    expect(isRunning(server)).toBe(false);
    expect(await answers(url)).toBe(false);
    expect(run.said()).not.toContain("sk-key");
  },
  limit,
);

test.each([
  ["SIGINT", 41],
  ["SIGTERM", 42],
] as const)(
  "%s is passed on, and the server ends after the client",
  async (signal, code) => {
    const run = start();
    await clientOf(run);
    const server = serverProcess();
    run.child.kill(signal);
    expect(await run.ended, run.said()).toBe(code);
    expect(isRunning(server)).toBe(false);
  },
  limit,
);

test(
  "a launcher that is killed leaves no server behind",
  async () => {
    const run = start();
    const { id } = await clientOf(run);
    const server = serverProcess();
    expect(isRunning(server)).toBe(true);
    run.child.kill("SIGKILL");
    await expect.poll(() => isRunning(server), waits).toBe(false);
    process.kill(id, "SIGTERM");
  },
  limit,
);

test(
  "the usual port is in use: the client gets another",
  async () => {
    const holder = createServer();
    const listening = new Promise<void>((resolve) => {
      holder.on("error", () => resolve()); // somebody else has it, which is as good
      holder.listen(8080, "127.0.0.1", resolve);
    });
    await listening;
    try {
      const run = start();
      const { env } = await clientOf(run);
      expect(new URL(env.ANTHROPIC_BASE_URL!).port).not.toBe("8080");
      fs.writeFileSync(`${out}.end`, "0");
      expect(await run.ended, run.said()).toBe(0);
    } finally {
      holder.close();
    }
  },
  limit,
);

test(
  "a model that cannot be opened: the server's own words, and the client is not started",
  async () => {
    const bad = join(folder, "bad.gguf");
    fs.writeFileSync(bad, "GGUF and nothing more");
    const run = start(bad);
    expect(await run.ended).toBe(3);
    expect(run.said()).toContain("launch: the server ended with code");
    expect(run.said()).toContain("bad.gguf");
    expect(fs.existsSync(out)).toBe(false);
  },
  limit,
);
